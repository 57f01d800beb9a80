// A kept matrix times a vector of its columns, and its transpose times a vector of its rows, in one pass over it.
//
// Products are added in the precision of the matrix over short runs and in float64 beyond, so that the error does not
// grow with the length. Rows are padded to multiples of ROWS and columns to multiples of RUN, with zeros.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "vectors.h"

namespace weftc {

constexpr int64_t RUN = 64;   // columns whose products a row adds before it turns to float64
constexpr int64_t ROWS = 8;   // rows at a time: what a column adds before it turns to float64
constexpr int64_t PARTS = 16; // of the rows; each has its own sums of columns, whoever makes them

// How many rows make a part. It depends on the matrix alone, and so do the sums: the same bits for any threads.
static inline int64_t part_rows(int64_t rows) {
  const int64_t even = (rows + PARTS - 1) / PARTS;
  return std::max<int64_t>(64, (even + ROWS - 1) / ROWS * ROWS);
}

typedef double Doubles __attribute__((vector_size(4 * W)));

// Adds numbers to float64 sums, one by one.
static inline void add_up(double* sums, Doubles numbers) {
  Doubles now;
  std::memcpy(&now, sums, sizeof now);
  now += numbers;
  std::memcpy(sums, &now, sizeof now);
}

static inline void add_up(double* sums, Floats numbers) {
#if defined(__AVX512F__)
  const __m512 all = (__m512)numbers;
  add_up(sums, (Doubles)_mm512_cvtps_pd(_mm512_castps512_ps256(all)));
  add_up(sums + 8, (Doubles)_mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(all), 1))));
#elif defined(__AVX__)
  const __m256 all = (__m256)numbers;
  add_up(sums, (Doubles)_mm256_cvtps_pd(_mm256_castps256_ps128(all)));
  add_up(sums + 4, (Doubles)_mm256_cvtps_pd(_mm256_extractf128_ps(all, 1)));
#else
  float each[W];
  std::memcpy(each, &numbers, sizeof each);
  for (int e = 0; e < W; e++) sums[e] += (double)each[e];
#endif
}

// A vector of the matrix, loaded once although two sums use it.
template <class Vector, class Real>
static inline Vector loaded(const Real* at) {
  Vector v;
  std::memcpy(&v, at, sizeof v);
#if defined(__AVX512F__)
  asm("" : "+v"(v));
#elif defined(__SSE2__)
  asm("" : "+x"(v));
#endif
  return v;
}

// Rows `first` up to `last`: row[i] = sum_c m[i, c] w[c], column[c] += sum_i m[i, c] z[i].
template <class Real, bool Along, bool Across>
__attribute__((noinline)) static void pass(const Real* matrix, int64_t stride, int64_t columns, int64_t first,
                                           int64_t last, const Real* w, const Real* z, double* row, double* column) {
  constexpr int L = 4 * W / (int)sizeof(Real);
  typedef Real V __attribute__((vector_size(4 * W)));
  for (int64_t i = first; i < last; i += ROWS) {
    double sum[ROWS][L] = {};
    const Real* m = matrix + i * stride;
    for (int64_t c = 0; c < columns; c += RUN) {
      V along[ROWS] = {};
      for (int64_t v = 0; v < RUN; v += L) {
        V x = {}, even = {}, odd = {};
        if (Along) std::memcpy(&x, w + c + v, sizeof x);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
          const V a = loaded<V>(m + r * stride + c + v);
          if (Along) along[r] += a * x;
          if (Across && r % 2) odd += a * z[i + r];
          if (Across && r % 2 == 0) even += a * z[i + r];
        }
        if (Across) add_up(column + c + v, even + odd);
      }
#pragma GCC unroll 8
      for (int r = 0; Along && r < ROWS; r++) add_up(sum[r], along[r]);
    }
    for (int r = 0; Along && r < ROWS; r++) {
      double total = 0;
      for (int e = 0; e < L; e++) total += sum[r][e];
      row[i + r] = total;
    }
  }
}

}  // namespace weftc
