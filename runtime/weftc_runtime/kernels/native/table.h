// Keys made ready for a search: centred, scaled, rounded to float32, and to 16 bits for a first look.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "vectors.h"

namespace weftc {

constexpr double U = 0x1p-24, ROOM = 1 + 0x1p-10;  // rounding of float32; room for the rounding of bounds themselves

// Whole numbers of 16 bits that stand for keys, in pairs of features (blocks, pairs, KEYS).
struct Whole {
  std::vector<int32_t> table, bias;
  double scale = 0;  // keys and queries times this are rounded to whole numbers; 0: they do not fit
  double reach;      // the length of the longest key, in whole numbers
  double most;       // the largest bias
  double error;      // no key is farther than this from what stands for it
};

struct Table {
  // given
  const double* keys;    // (count, features)
  const double* offset;  // (count) what the score adds for features that all queries share
  const double* centre;  // (features)
  int32_t count;
  int32_t features;
  int32_t distance;   // 1: distances, 0: inner products
  double power;       // of the keys
  double both;        // power of the keys times power of the queries
  double length = 0;  // of most queries, centred and scaled
  double top = 0;     // no feature of a query is larger, centred and scaled
  bool in_shorts = false;  // whether it is made in 16 bits, too
  // made
  std::vector<float> table;  // blocks of KEYS keys (blocks, features, KEYS)
  std::vector<float> bias;   // (blocks * KEYS), +infinity for keys that are not there
  Whole shorts;
  double reach;  // above the length of every key, centred and scaled
  double most;   // above every offset, scaled
  double peak;   // the largest number in keys and offset
  bool whole;    // all of them are whole numbers
};

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr int32_t FAR = std::numeric_limits<int32_t>::max();

inline int padded(int count) { return (count + KEYS - 1) / KEYS * KEYS; }
inline int pairs_of(int features) { return (features + 7) / 8 * 4; }

// The power of two that brings numbers to at most 1.
inline double power_for(const double* numbers, size_t count) {
  double peak = 0;
  for (size_t i = 0; i < count; i++) peak = std::max(peak, std::fabs(numbers[i]));
  return peak > 0 ? std::ldexp(1.0, -(int)std::max(-900.0, std::min(900.0, std::ceil(std::log2(peak))))) : 1;
}

inline double centred(const Table& t, int j, int f) {
  const double number = t.keys[(size_t)j * t.features + f];
  return (t.distance ? number - t.centre[f] : number) * t.power;
}

// Numbers of 16 bits such that no score of a query of the usual length leaves 32 bits.
inline void fill_shorts(Table& t, Whole& out, double largest) {
  out.scale = 0;
  const double longest = std::max(t.reach, t.length) + 0x1p-60;
  double scale = 32766 / (std::max(t.top, largest) + 0x1p-60);
  scale = std::min(scale, 0x1p15 / std::sqrt((t.reach + 0x1p-60) * longest));
  if (t.most > 0) scale = std::min(scale, 0x1p14 / std::sqrt(t.most));
  scale = (float)(scale * (1 - 0x1p-20));
  if (!(scale >= 256 && scale < 0x1p40)) return;
  out.reach = out.most = out.error = 0;
  const int pairs = pairs_of(t.features);
  std::vector<int16_t> row(2 * (size_t)pairs);
  out.table.resize((size_t)padded(t.count) * pairs);
  out.bias.resize(padded(t.count));
  for (int j = 0; j < padded(t.count); j++) {
    int32_t* to = out.table.data() + (size_t)(j / KEYS) * pairs * KEYS + j % KEYS;
    double square = 0, error = 0;
    std::fill(row.begin(), row.end(), 0);
    for (int f = 0; j < t.count && f < t.features; f++) {
      const double number = centred(t, j, f) * scale, whole = std::nearbyint(number);
      row[f] = (int16_t)-whole;
      square += whole * whole;
      error += (number - whole) * (number - whole);
    }
    for (int p = 0; p < pairs; p++) std::memcpy(to + (size_t)p * KEYS, &row[2 * (size_t)p], sizeof *to);
    out.bias[j] = FAR;
    if (j >= t.count) continue;
    const double offset = t.offset[j] * t.both * scale * scale;
    const double bias = std::floor(t.distance ? (square + offset) / 2 : offset);
    out.bias[j] = (int32_t)bias;
    out.most = std::max(out.most, std::fabs(bias));
    out.reach = std::max(out.reach, square);
    out.error = std::max(out.error, error);
  }
  out.reach = std::sqrt(out.reach);
  out.error = std::sqrt(out.error);
  out.scale = scale;
}

inline void fill(Table& t) {
  t.reach = t.most = t.peak = t.shorts.scale = 0;
  t.whole = true;
  t.table.resize((size_t)padded(t.count) * t.features);
  t.bias.resize(padded(t.count));
  double largest = 0;
  for (int j = 0; j < padded(t.count); j++) {
    float* out = t.table.data() + (size_t)(j / KEYS) * t.features * KEYS + j % KEYS;
    if (j >= t.count) {
      t.bias[j] = INF;
      for (int f = 0; f < t.features; f++) out[(size_t)f * KEYS] = 0;
      continue;
    }
    const double* key = t.keys + (size_t)j * t.features;
    double square = 0;
    for (int f = 0; f < t.features; f++) {
      const double number = centred(t, j, f);
      out[(size_t)f * KEYS] = (float)number * (t.distance ? -2 : -1);
      square += number * number;
      largest = std::max(largest, std::fabs(number));
      t.peak = std::max(t.peak, std::fabs(key[f]));
      t.whole &= key[f] == std::nearbyint(key[f]);
    }
    t.bias[j] = (float)(t.offset[j] * t.both + (t.distance ? square : 0));
    t.reach = std::max(t.reach, square);
    t.most = std::max(t.most, std::fabs(t.offset[j]));
    t.whole &= t.offset[j] == std::nearbyint(t.offset[j]);
  }
  t.peak = std::max(t.peak, t.most);
  t.reach = std::sqrt(t.reach) * ROOM + 0x1p-60;
  t.most *= t.both * ROOM;
  if (t.in_shorts) fill_shorts(t, t.shorts, largest);
}

}  // namespace weftc
