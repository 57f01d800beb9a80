// Scores in float64 with a bound of their error, and exactly: as sums of doubles that nobody has rounded.
#pragma once

#include "adder.h"
#include "machine.h"

namespace weftc {
namespace {

constexpr double UNIT = 0x1p-53;

inline Eight positive(Eight x) { return (Eight)((EightWhole)x & std::numeric_limits<int64_t>::max()); }

// Pushes a * b as two doubles; false where that is not exact.
inline bool push_product(double a, double b, std::vector<double>& out) {
  const double product = a * b, size = std::fabs(product);
  if (a == 0 || b == 0) return true;
  if (!(size > 0x1p-900 && size < 0x1p900)) return false;
  const double rest = std::fma(a, b, -product);
  out.push_back(product);
  if (rest != 0) out.push_back(rest);
  return true;
}

// Multiplies the terms from `first` on.
inline bool multiply(std::vector<double>& terms, size_t first, double by) {
  if (by == 1) return true;
  const std::vector<double> old(terms.begin() + first, terms.end());
  terms.resize(first);
  for (double term : old)
    if (!push_product(term, by, terms)) return false;
  return true;
}

// Pushes the terms of a score, times a sign.
inline bool push_score(const Score& score, const double* query, const double* key, double sign, std::vector<double>& out) {
  for (const Part& part : score.parts) {
    const size_t first = out.size();
    for (int32_t f = part.at; f < part.at + part.query.count(); f++) {
      const double q = query[f], k = key[f];
      if (!part.distance) {
        if (!push_product(sign * q, k, out)) return false;
        continue;
      }
      if (!push_product(sign * q, q, out) || !push_product(sign * k, k, out)) return false;
      if (!push_product(-2 * sign * q, k, out)) return false;
    }
    if (!multiply(out, first, part.coefficient)) return false;
    if (part.side && !multiply(out, first, (part.side == 1 ? query : key)[part.scale_at])) return false;
  }
  return true;
}

// The sign of score(a) - score(b) for one query; 2 where it cannot be told.
inline int compare(const Score& score, const double* query, const double* a, const double* b, Worker& worker) {
  worker.terms.clear();
  if (!push_score(score, query, a, 1.0, worker.terms) || !push_score(score, query, b, -1.0, worker.terms)) return 2;
  const double apart = exact_sum(worker.terms, worker.parts);
  return (apart > 0) - (apart < 0);
}

// The score of one token of a side with 64 of the other, and the sizes of what was added. With r terms, each of them and
// each sum rounded, the error is below (r + parts + 16) 2^-53 of that.
// `apart`: sizes of what the features of the lanes are sums of, where they are no stored numbers.
template <int N>
inline void bounded_as(const Score& score, const double* own, bool own_is_query, const Lane* lanes, double* out, double* size,
                       const Lane* apart) {
  Eight total[N] = {}, reach[N] = {};
  for (const Part& part : score.parts) {
    Eight raw[N] = {}, sizes[N] = {};
    const bool both = size && !part.distance;
    for (int32_t f = part.at; f < part.at + part.query.count(); f++) {
      const double o = own[f];
      if (!part.distance && o == 0) continue;
      const Eight *x = lanes[f].eights(), *y = apart ? apart[f].eights() : x;
      for (int i = 0; i < N; i++) {
        const Eight gap = x[i] - o;
        raw[i] += part.distance ? gap * gap : x[i] * o;
      }
      for (int i = 0; both && i < N; i++) sizes[i] += positive(y[i] * o);
    }
    if (!part.side) {
      const double by = part.coefficient;
      for (int i = 0; size && i < N; i++) reach[i] += positive((both ? sizes[i] : raw[i]) * by);
      for (int i = 0; i < N; i++) total[i] += part.distance ? raw[i] * by : raw[i];
      continue;
    }
    const bool own_scale = (part.side == 1) == own_is_query;
    for (int i = 0; i < N; i++) {
      const Eight scale = own_scale ? Eight{} + own[part.scale_at] : lanes[part.scale_at].eights()[i];
      if (size) reach[i] += positive((both ? sizes[i] : raw[i]) * part.coefficient * scale);
      Eight value = part.distance ? raw[i] * part.coefficient : raw[i];
      total[i] += value * scale;
    }
  }
  std::memcpy(out, total, sizeof total);
  if (size) std::memcpy(size, reach, sizeof reach);
}

// `eights`: how many of the lanes are looked at.
inline void bounded(const Score& score, const double* own, bool own_is_query, const Lane* lanes, double* out, double* size,
                    const Lane* apart = nullptr, int eights = LANES / 8) {
  if (eights > 4) bounded_as<8>(score, own, own_is_query, lanes, out, size, apart);
  else if (eights > 2) bounded_as<4>(score, own, own_is_query, lanes, out, size, apart);
  else if (eights > 1) bounded_as<2>(score, own, own_is_query, lanes, out, size, apart);
  else bounded_as<1>(score, own, own_is_query, lanes, out, size, apart);
}

inline double share(const Score& score) { return (double)(score.terms + (int32_t)score.parts.size() + 18) * UNIT; }

}  // namespace
}  // namespace weftc
