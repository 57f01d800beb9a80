// A matrix times a vector, in one pass over the matrix.
//
// Products are added in float32 over short runs and in float64 beyond, so that the error does not grow with the length.

#include <cstdint>
#include <cstring>
#include <vector>

#include "threads.h"

namespace weft {

constexpr int64_t RUN = 64;  // products added in the precision of the matrix

template <class Real>
static double dot(const Real* row, const Real* x, int64_t count) {
  double sum = 0;
  int64_t c = 0;
  for (; c + RUN <= count; c += RUN) {
    Real part[16] = {};
    for (int64_t at = 0; at < RUN; at += 16)
      for (int e = 0; e < 16; e++) part[e] += row[c + at + e] * x[c + at + e];
    Real half[8];
    for (int e = 0; e < 8; e++) half[e] = part[e] + part[e + 8];
    for (int e = 0; e < 8; e++) sum += (double)half[e];
  }
  for (; c < count; c++) sum += (double)(row[c] * x[c]);
  return sum;
}

template <class Real>
static bool product(const Real* matrix, int64_t rows, int64_t columns, const Real* x, double* out, int threads) {
  return share(rows, 64, threads, [&](int64_t first, int64_t last, int) {
    for (int64_t i = first; i < last; i++) out[i] = dot(matrix + i * columns, x, columns);
  });
}

}  // namespace weft

// out[i] = sum_j matrix[i, j] x[j]
extern "C" int32_t weft_product(const void* matrix, int32_t is_double, int64_t rows, int64_t columns, const void* x,
                                double* out, int32_t threads) {
  const bool good =
      is_double ? weft::product((const double*)matrix, rows, columns, (const double*)x, out, threads)
                : weft::product((const float*)matrix, rows, columns, (const float*)x, out, threads);
  return good ? 0 : 1;
}
