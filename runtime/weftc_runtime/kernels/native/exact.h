// Scores in float64 with a bound of their error, and exactly: as sums of doubles that nobody has rounded.
#pragma once

#include "adder.h"
#include "machine.h"

namespace weftc {
namespace {

constexpr double UNIT = 0x1p-53;

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
inline void bounded(const Score& score, const double* own, bool own_is_query, const Lane* lanes, double* out, double* size,
                    const Lane* apart = nullptr) {
  std::fill(out, out + LANES, 0.0);
  if (size) std::fill(size, size + LANES, 0.0);
  double raw[LANES], sizes[LANES];
  for (const Part& part : score.parts) {
    std::fill(raw, raw + LANES, 0.0);
    const bool both = size && !part.distance;
    if (both) std::fill(sizes, sizes + LANES, 0.0);
    for (int32_t f = part.at; f < part.at + part.query.count(); f++) {
      const double o = own[f];
      if (!part.distance && o == 0) continue;
      const double* x = lanes[f].v;
      if (part.distance)
        for (int e = 0; e < LANES; e++) {
          const double gap = x[e] - o;
          raw[e] += gap * gap;
        }
      else
        for (int e = 0; e < LANES; e++) raw[e] += x[e] * o;
      if (both)
        for (int e = 0; e < LANES; e++) sizes[e] += std::fabs((apart ? apart[f].v[e] : x[e]) * o);
    }
    const double* from = both ? sizes : raw;
    for (int e = 0; e < LANES; e++) {
      const double scale = !part.side ? 1.0 : (part.side == 1) == own_is_query ? own[part.scale_at] : lanes[part.scale_at].v[e];
      if (size) size[e] += std::fabs(from[e] * part.coefficient * scale);
      double value = part.distance ? raw[e] * part.coefficient : raw[e];
      if (part.side) value *= scale;
      out[e] += value;
    }
  }
}

inline double share(const Score& score) { return (double)(score.terms + (int32_t)score.parts.size() + 18) * UNIT; }

}  // namespace
}  // namespace weftc
