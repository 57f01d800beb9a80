// Scores that stay -> the matrix of their exponentials, every row scaled to a maximum of 1.
//
// Scores are made in float64, distances from differences. Columns of the matrix beyond the keys, and rows beyond the
// queries, are 0.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "exponentials.h"
#include "product.h"
#include "team.h"

extern "C" {

// One summand of a score: <q, k>, or coefficient * |q - k|^2; times a number of the query or of the key.
struct WeftPart {
  const double* q;      // (rows, features)
  const double* k;      // (features, padded)
  const double* scale;  // (rows,) or (padded,), or null
  double coefficient;
  int32_t features, distance, side;  // side of the scale: 1 query, 2 key
};

struct WeftCosts {
  void* matrix;  // (rows up to a multiple of 8, stride)
  int64_t rows, columns, padded, stride;
  int32_t is_double, parts, threads;
  const WeftPart* part;
  const double* base;  // (padded,): added to every score of a column
  double* peak;        // out (rows,): the largest of a row, which is taken off
  double least;        // out: the smallest of the largest entries of the columns
};

}  // extern "C"

namespace weftc {

constexpr int L = W / 2;            // float64 numbers in a vector
constexpr int TOGETHER = 4;         // vectors whose sums are held at a time
constexpr int STEP = L * TOGETHER;  // divides 64

static inline Doubles load64(const double* at) {
  Doubles v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
static inline void store64(double* at, Doubles v) { std::memcpy(at, &v, sizeof v); }

// Adds the summand for one query to scores (padded,).
static void add(const WeftPart& part, const WeftCosts& costs, int64_t row, double* scores) {
  const double* q = part.q + row * part.features;
  const double factor = (part.distance ? part.coefficient : 1.0) * (part.side == 1 ? part.scale[row] : 1.0);
  for (int64_t c = 0; c < costs.padded; c += STEP) {
    Doubles sum[TOGETHER] = {};
    for (int f = 0; f < part.features; f++) {
      const double* k = part.k + f * costs.padded + c;
      for (int t = 0; t < TOGETHER; t++) {
        const Doubles key = load64(k + t * L);
        if (part.distance) {
          const Doubles apart = q[f] - key;
          sum[t] += apart * apart;
        } else {
          sum[t] += q[f] * key;
        }
      }
    }
    for (int t = 0; t < TOGETHER; t++) {
      Doubles value = sum[t] * factor;
      if (part.side == 2) value *= load64(part.scale + c + t * L);
      store64(scores + c + t * L, load64(scores + c + t * L) + value);
    }
  }
}

template <class Real>
static void fill_row(const WeftCosts& costs, int64_t row, double* scores, Real* out, Real* high) {
  std::memcpy(scores, costs.base, sizeof(double) * costs.padded);
  for (int p = 0; p < costs.parts; p++) add(costs.part[p], costs, row, scores);
  double most[BLOCK];
  for (int e = 0; e < BLOCK; e++) most[e] = scores[e];
  for (int64_t c = BLOCK; c < costs.padded; c += BLOCK)
    for (int e = 0; e < BLOCK; e++) most[e] = scores[c + e] > most[e] ? scores[c + e] : most[e];
  double peak = most[0];
  for (int e = 1; e < BLOCK; e++) peak = most[e] > peak ? most[e] : peak;
  costs.peak[row] = peak;
  for (int64_t c = 0; c < costs.padded; c += BLOCK) {
    double x[BLOCK];
    for (int e = 0; e < BLOCK; e++) x[e] = scores[c + e] - peak;
    exps(x, out + c);
    for (int e = 0; e < BLOCK; e++) high[c + e] = out[c + e] > high[c + e] ? out[c + e] : high[c + e];
  }
  std::fill(out + costs.columns, out + costs.stride, Real(0));
}

// Asks for large pages where the memory is not used yet: touching it for the first time is then several times faster.
static void prepare(void* memory, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t page = 1 << 21;
  const uintptr_t first = ((uintptr_t)memory + page - 1) / page * page, last = ((uintptr_t)memory + bytes) / page * page;
  if (last > first) (void)madvise((void*)first, last - first, MADV_HUGEPAGE);  // a hint: failing changes nothing
#else
  (void)memory, (void)bytes;
#endif
}

template <class Real>
static void fill(WeftCosts& costs) {
  Real* matrix = (Real*)costs.matrix;
  const int64_t all = (costs.rows + ROWS - 1) / ROWS * ROWS, each = part_rows(all), parts = (all + each - 1) / each;
  prepare(matrix, all * costs.stride * (int64_t)sizeof(Real));
  std::vector<Real> high(parts * costs.padded);  // the largest entries of the columns, part by part
  std::vector<double> scores(parts * costs.padded);
  Team::run(all * costs.padded < 1 << 16 ? 1 : costs.threads, [&](Team& team) {
    team.share(parts, [&](int64_t part) {
      for (int64_t row = part * each; row < std::min(all, (part + 1) * each); row++) {
        Real* out = matrix + row * costs.stride;
        if (row < costs.rows)
          fill_row(costs, row, scores.data() + part * costs.padded, out, high.data() + part * costs.padded);
        else
          std::fill(out, out + costs.stride, Real(0));
      }
    });
  });
  Real least = Real(1);
  for (int64_t c = 0; c < costs.columns; c++) {
    Real most = Real(0);
    for (int64_t part = 0; part < parts; part++) most = std::max(most, high[part * costs.padded + c]);
    least = std::min(least, most);
  }
  costs.least = least;
}

}  // namespace weftc

extern "C" int32_t weftc_costs(WeftCosts* costs) {
  try {
    costs->is_double ? weftc::fill<double>(*costs) : weftc::fill<float>(*costs);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
