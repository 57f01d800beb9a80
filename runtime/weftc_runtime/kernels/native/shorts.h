// A look at a tile of queries in whole numbers of 16 bits: half the products of float32, and most rows are certain.
//
// Query x and key w, centred and scaled, are stood for by whole numbers X and K: |s x - X| <= a, |s w - K| <= b with the
// scale s. Scores are exact in them: V = |K|^2 / 2 - <X, K> (rounded down) for distances, -<X, K> + offset otherwise.
//
//   distances   D = |X - K| is s times the true distance up to a + b, and D^2 = |X|^2 + 2 V up to 2. A key is not the best
//               if its D is larger than that of another one by more than 2 (a + b).
//   any score   |V - s^2 v| <= |X| b + a |K| + a b (+ b |K| + b^2 for the squares of distances) + 1; a key is not the
//               best if its V is larger than that of another one by more than twice that.
//
// While keys are compared, the lowest bits of V make room for the name of the key, so that a minimum finds both: what
// comes back is V less at most NAMES. Names start anew after SPAN blocks of keys.
#pragma once

#include "table.h"

namespace weftc {

struct InShorts {
  static constexpr int SPAN = (1 << NAME_BITS) / KEYS;
  int features, pairs;
  float factor;               // of a centred feature
  Lines<int16_t> rows;  // (TILE, 2 pairs)
  Lines<int32_t> tile;  // (pairs, TILE)
  alignas(64) int32_t one[TILE], two[TILE];  // best and second best of a span, with their names
  alignas(64) int32_t best[TILE] = {}, second[TILE] = {}, index[TILE] = {};
  alignas(64) float square[TILE] = {};  // |X|^2

  InShorts(int features, float factor)
      : features(features), pairs(pairs_of(features)), factor(factor), rows(TILE * 2 * (size_t)pairs),
        tile(TILE * (size_t)pairs) {}

  // 0, 1, ..., the same for all.
  static const int32_t* names() {
    static Lines<int32_t> all = [] {
      Lines<int32_t> made(SPAN * KEYS);
      for (int j = 0; j < SPAN * KEYS; j++) made[j] = j;
      return made;
    }();
    return all.data();
  }

#if WEFTC_SHORTS
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
    }
    for (int first = 0; first < blocks; first += SPAN) {
      for (int p = 0; p < used; p += W) store(one + p, every(FAR)), store(two + p, every(FAR));
      const int last = std::min(blocks, first + SPAN);
      for (int b = first; b < last; b++)
        for (int p = 0; p < used; p += W * POINTS)
          block(table + (size_t)b * pairs * KEYS, bias + (size_t)b * KEYS, names() + (b - first) * KEYS, p);
      for (int p = 0; p < used; p += W) merge(first, p);
    }
  }

  // Takes the best of a span over to the best of all.
  void merge(int32_t span, int p) {
    const Ints found = load(one + p), near = found & ~NAMES, next = load(two + p) & ~NAMES;
    const Ints name = (found & NAMES) + span * KEYS;
    if (!span) {
      store(best + p, near), store(second + p, next), store(index + p, name);
      return;
    }
    const Ints known = load(best + p), less = near < known;
    store(second + p, least(most(near, known), least(next, load(second + p))));
    store(best + p, least(near, known));
    store(index + p, less ? name : load(index + p));
  }

  // On its own: inlined, its sums would not be held in registers.
  __attribute__((noinline)) void block(const int32_t* w, const int32_t* bias, const int32_t* name, int p) {
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
      Ints near = load(one + at), next = load(two + at);
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        const Ints v = named(sum[j][q], every(name[j]));
        next = least(next, most(v, near));
        near = least(v, near);
      }
      store(one + at, near);
      store(two + at, next);
    }
  }
#else
  void put(int, const float*, const float*) {}
  void scan(const int32_t*, const int32_t*, int, int) {}
#endif
};

}  // namespace weftc
