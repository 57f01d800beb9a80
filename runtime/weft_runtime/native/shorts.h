// A look at a tile of queries in whole numbers of 16 bits: half the products of float32, and most rows are certain.
//
// Query x and key w, centred and scaled, are stood for by whole numbers X and K: |s x - X| <= a, |s w - K| <= b with the
// scale s. Scores are exact in them: V = |K|^2 / 2 - <X, K> (rounded down) for distances, -<X, K> + offset otherwise.
//
//   distances   D = |X - K| is s times the true distance up to a + b, and D^2 = |X|^2 + 2 V up to 2. A key is not the best
//               if its D is larger than that of another one by more than 2 (a + b).
//   any score   |V - s^2 v| <= |X| b + a |K| + a b (+ b |K| + b^2 for the squares of distances) + 1; a key is not the
//               best if its V is larger than that of another one by more than twice that.
#pragma once

#include "table.h"

namespace weft {

struct InShorts {
  int features, pairs;
  float factor;               // of a centred feature
  std::vector<int16_t> rows;  // (TILE, 2 pairs)
  std::vector<int32_t> tile;  // (pairs, TILE)
  int32_t best[TILE] = {}, second[TILE] = {}, index[TILE];
  float square[TILE] = {};  // |X|^2

  InShorts(int features, float factor)
      : features(features), pairs(pairs_of(features)), factor(factor), rows(TILE * 2 * (size_t)pairs),
        tile(TILE * (size_t)pairs) {}

#if WEFT_SHORTS
  static void eight(const float* x, const float* centre, __m128 factor, int16_t* out) {
    const __m128 a = _mm_mul_ps(_mm_sub_ps(_mm_loadu_ps(x), _mm_loadu_ps(centre)), factor);
    const __m128 b = _mm_mul_ps(_mm_sub_ps(_mm_loadu_ps(x + 4), _mm_loadu_ps(centre + 4)), factor);
    _mm_storeu_si128((__m128i*)out, _mm_packs_epi32(_mm_cvtps_epi32(a), _mm_cvtps_epi32(b)));
  }

  void put(int p, const float* x, const float* centre) {
    int16_t* out = rows.data() + (size_t)p * 2 * pairs;
    const __m128 by = _mm_set1_ps(factor);
    int f = 0;
    for (; f + 8 <= features; f += 8) eight(x + f, centre + f, by, out + f);
    if (f == features) return;
    float rest[8] = {}, origin[8] = {};
    for (int e = 0; f + e < features; e++) rest[e] = x[f + e], origin[e] = centre[f + e];
    eight(rest, origin, by, out + f);
  }

  void scan(const int32_t* table, const int32_t* bias, int blocks, int waiting) {
    transpose((const float*)rows.data(), pairs, (float*)tile.data());
    const int used = (waiting + W * POINTS - 1) / (W * POINTS) * (W * POINTS);
    for (int p = 0; p < used; p += W) {
      Floats sum{};
      for (int f = 0; f < pairs; f++) {
        const Ints x = load(&tile[(size_t)f * TILE + p]);
        sum += number(products(x, x));
      }
      store(square + p, sum);
      store(best + p, every(FAR));
      store(second + p, every(FAR));
      store(index + p, every((int32_t)0));
    }
    for (int b = 0; b < blocks; b++)
      for (int p = 0; p < used; p += W * POINTS)
        block(table + (size_t)b * pairs * KEYS, bias + (size_t)b * KEYS, b * KEYS, p);
  }

  void block(const int32_t* w, const int32_t* bias, int32_t first, int p) {
    Ints sum[KEYS][POINTS];
#pragma GCC unroll 8
    for (int j = 0; j < KEYS; j++)
#pragma GCC unroll 8
      for (int q = 0; q < POINTS; q++) sum[j][q] = every(bias[j]);
    const int32_t* x = tile.data() + p;
    for (int f = 0; f < pairs; f++, x += TILE, w += KEYS) {
      Ints v[POINTS];
#pragma GCC unroll 8
      for (int q = 0; q < POINTS; q++) v[q] = load(x + q * W), in_register(v[q]);  // not loaded for every key
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        const Ints k = every(w[j]);
#pragma GCC unroll 8
        for (int q = 0; q < POINTS; q++) add_products(sum[j][q], v[q], k);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < POINTS; q++) {
      const int at = p + q * W;
      Ints one = load(best + at), two = load(second + at), name = load(index + at);
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        const Ints v = sum[j][q], less = v < one;
        two = least(two, most(v, one));
        one = least(v, one);
        name = less ? every(first + j) : name;
      }
      store(best + at, one);
      store(second + at, two);
      store(index + at, name);
    }
  }
#else
  void put(int, const float*, const float*) {}
  void scan(const int32_t*, const int32_t*, int, int) {}
#endif
};

}  // namespace weft
