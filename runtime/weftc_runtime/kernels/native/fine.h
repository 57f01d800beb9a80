// A tile of queries against all keys in float32: the best score, its key, and the second best of each.
#pragma once

#include "table.h"

namespace weftc {

struct Fine {
  int features, wide;  // wide: features, rounded up to a multiple of 4
  Lines<float> rows;   // (TILE, wide)
  Lines<float> tile;   // (wide, TILE)
  alignas(64) float best[TILE] = {}, second[TILE] = {}, square[TILE] = {};
  alignas(64) int32_t index[TILE] = {};

  explicit Fine(int features)
      : features(features), wide((features + 3) / 4 * 4), rows(TILE * (size_t)wide), tile(TILE * (size_t)wide) {}

  // One rounding for each feature: of the difference.
  template <class Real>
  void put(int p, const Real* x, const Real* centre, Real power) {
    if (features < 4) {
      for (int f = 0; f < features; f++) tile[(size_t)f * TILE + p] = (float)((x[f] - centre[f]) * power);
    } else {
      float* out = rows.data() + (size_t)p * wide;
      for (int f = 0; f < features; f++) out[f] = (float)((x[f] - centre[f]) * power);
    }
  }

  // A whole tile of rows that lie side by side and have less than 4 features.
  template <class Real>
  void put_tile(const Real* x, const Real* centre, Real power) {
    if (features == 1) put_columns<1>(x, centre, power);
    if (features == 2) put_columns<2>(x, centre, power);
    if (features == 3) put_columns<3>(x, centre, power);
  }

  template <int many, class Real>
  void put_columns(const Real* x, const Real* centre, Real power) {
    for (int f = 0; f < many; f++) {
      float* out = tile.data() + f * TILE;
      for (int p = 0; p < TILE; p++) out[p] = (float)((x[p * many + f] - centre[f]) * power);
    }
  }

  // The queries are there: they are turned around, and their squares added up. How many are looked at.
  int begin(int waiting) {
    if (features >= 4) transpose(rows.data(), wide, tile.data());
    const int used = (waiting + W * POINTS - 1) / (W * POINTS) * (W * POINTS);
    for (int p = 0; p < used; p += W) {
      Floats sum{};
      for (int f = 0; f < features; f++) {
        const Floats x = load(&tile[(size_t)f * TILE + p]);
        sum += x * x;
      }
      store(square + p, sum);
    }
    return used;
  }

  void scan(const float* table, const float* bias, int blocks, int waiting) {
    const int used = begin(waiting);
    for (int p = 0; p < used; p += W) {
      store(best + p, every(INF));
      store(second + p, every(INF));
      store(index + p, every((int32_t)0));
    }
    for (int b = 0; b < blocks; b++)
      for (int p = 0; p < used; p += W * POINTS)
        block(table + (size_t)b * features * KEYS, bias + (size_t)b * KEYS, b * KEYS, p);
  }

  // The scores of a block of keys.
  __attribute__((always_inline)) inline void scores(const float* w, const float* bias, int p, Floats (&sum)[KEYS][POINTS]) {
#pragma GCC unroll 8
    for (int j = 0; j < KEYS; j++)
#pragma GCC unroll 8
      for (int q = 0; q < POINTS; q++) sum[j][q] = every(bias[j]);
    const float* x = tile.data() + p;
    for (int f = 0; f < features; f++, x += TILE, w += KEYS) {
      Floats v[POINTS];
#pragma GCC unroll 8
      for (int q = 0; q < POINTS; q++) v[q] = load(x + q * W);
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        const Floats k = every(w[j]);
#pragma GCC unroll 8
        for (int q = 0; q < POINTS; q++) sum[j][q] += v[q] * k;
      }
    }
  }

  // take(key, lane, score) where a score of a block is not above the limit of its query.
  template <class Take>
  __attribute__((noinline)) void below(const float* w, const float* bias, int p, const float* limit, Take take) {
    Floats sum[KEYS][POINTS];
    scores(w, bias, p, sum);
#pragma GCC unroll 8
    for (int q = 0; q < POINTS; q++) {
      const Floats most = load(limit + p + q * W);
      Ints near{};
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) near |= ~(sum[j][q] > most);
      if (!any(near)) continue;
      alignas(64) float each[KEYS][W];
      for (int j = 0; j < KEYS; j++) store(each[j], sum[j][q]);
      for (int e = 0; e < W; e++)
        for (int j = 0; near[e] && j < KEYS; j++)
          if (!(each[j][e] > limit[p + q * W + e])) take(j, p + q * W + e, each[j][e]);
    }
  }

  // On its own: inlined, its sums would not be held in registers.
  __attribute__((noinline)) void block(const float* w, const float* bias, int32_t first, int p) {
    Floats sum[KEYS][POINTS];
    scores(w, bias, p, sum);
#pragma GCC unroll 8
    for (int q = 0; q < POINTS; q++) {
      const int at = p + q * W;
      Floats one = load(best + at), two = load(second + at);
      Ints name = load(index + at);
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        const Floats v = sum[j][q];
        const Ints less = v < one;
#ifndef WEFTC_TRUSTING  // `weftc bench` alone defines it: without a second best nothing is in doubt
        two = least(two, most(v, one));
#endif
        one = least(v, one);
        name = less ? every(first + j) : name;
      }
      store(best + at, one);
      store(second + at, two);
      store(index + at, name);
    }
  }
};

}  // namespace weftc
