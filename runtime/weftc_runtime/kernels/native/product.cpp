// A kept matrix, or its transpose, times a vector.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "product.h"
#include "team.h"

namespace weftc {

template <class Real>
static void product(const Real* matrix, int64_t rows, int64_t columns, int64_t stride, bool turned, const Real* x,
                    double* out, int threads) {
  const int64_t each = part_rows(rows), parts = (rows + each - 1) / each;
  std::vector<double> sums(turned ? parts * columns : 0);
  Team::run(rows * columns < 1 << 16 ? 1 : threads, [&](Team& team) {
    team.share(parts, [&](int64_t part) {
      const int64_t first = part * each, last = std::min(rows, first + each);
      if (turned)
        pass<Real, false, true>(matrix, stride, columns, first, last, nullptr, x, nullptr, sums.data() + part * columns);
      else
        pass<Real, true, false>(matrix, stride, columns, first, last, x, nullptr, out, nullptr);
    });
  });
  if (!turned) return;
  std::fill(out, out + columns, 0.0);
  for (int64_t part = 0; part < parts; part++)
    for (int64_t c = 0; c < columns; c++) out[c] += sums[part * columns + c];
}

}  // namespace weftc

// out[i] = sum_j matrix[i, j] x[j], or turned: out[j] = sum_i matrix[i, j] x[i]. Rows are a multiple of 8, columns of 64.
extern "C" int32_t weftc_product(const void* matrix, int32_t is_double, int64_t rows, int64_t columns, int64_t stride,
                                int32_t turned, const void* x, double* out, int32_t threads) {
  try {
    if (is_double)
      weftc::product((const double*)matrix, rows, columns, stride, turned, (const double*)x, out, threads);
    else
      weftc::product((const float*)matrix, rows, columns, stride, turned, (const float*)x, out, threads);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
