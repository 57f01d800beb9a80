// What soft heads have in common: their scores, exponentials, and what becomes of the sums over keys of one query.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "machine.h"

namespace weftc {

enum Kind { SOFTMAX, EXPONENTIAL, SUM, NORMALIZE, LSE, BEST };

constexpr int EIGHTS = LANES / 8;
constexpr double NONE = -std::numeric_limits<double>::infinity();
constexpr double TINY = 1e-250;  // a mass below it may have lost weights to underflow

inline Eight every(double x) { return Eight{} + x; }
inline Eight larger(Eight a, Eight b) {
#if defined(__AVX512F__)
  return (Eight)_mm512_max_pd((__m512d)a, (__m512d)b);  // the same, NaN too
#else
  return a > b ? a : b;
#endif
}
inline double largest(Eight a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_pd((__m512d)a);
#endif
  double most = a[0];
  for (int e = 1; e < 8; e++) most = a[e] > most ? a[e] : most;
  return most;
}

// Whether one of some numbers is below zero.
inline bool negative(const Eight* s, int eights) {
  EightWhole any{};
  for (int i = 0; i < eights; i++) any |= s[i] < Eight{};
  for (int e = 0; e < 8; e++)
    if (any[e]) return true;
  return false;
}

#if defined(__AVX512F__)
// exp to 2^-32: a power of 2^(1/16) from a table, times a polynomial. 0 below -700; no number above 709.
inline Eight exps_by_table(Eight x) {
  const Eight first = {1.0, 0x1.0b5586cf9890fp0, 0x1.172b83c7d517bp0, 0x1.2387a6e756238p0,
                       0x1.306fe0a31b715p0, 0x1.3dea64c123422p0, 0x1.4bfdad5362a27p0, 0x1.5ab07dd485429p0};
  const Eight second = {0x1.6a09e667f3bcdp0, 0x1.7a11473eb0187p0, 0x1.8ace5422aa0dbp0, 0x1.9c49182a3f090p0,
                        0x1.ae89f995ad3adp0, 0x1.c199bdd85529cp0, 0x1.d5818dcfba487p0, 0x1.ea4afa2a490dap0};
  const Eight y = larger(every(-800.0), x);  // NaN stays
  const Eight shifted = y * (16 * 1.4426950408889634074) + 6755399441055744.0, whole = shifted - 6755399441055744.0;
  const Eight r = y - whole * (0.693147180559945309417 / 16);
  Eight p = r * (1.0 / 24.0) + 1.0 / 6.0;
  p = (p * r + 0.5) * r + 1.0;
  const Eight root = (Eight)_mm512_permutex2var_pd((__m512d)first, (__m512i)shifted, (__m512d)second);
  const __mmask8 counts = _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(-700.0), _CMP_NLT_UQ);
  return (Eight)_mm512_maskz_scalef_pd(counts, (__m512d)(root + root * (p * r)), (__m512d)(whole * (1.0 / 16)));
}
#endif

// exp, to within a unit in the last place, or to 2^-32 where results are stored in float32. 0 below -700; no number above 709.
template <bool Single>
inline Eight exps(Eight x) {
#if defined(__AVX512F__)
  if (Single) return exps_by_table(x);
#endif
  const Eight low = every(-700.0), y = x < low ? low : x;
  const Eight shifted = y * 1.4426950408889634074 + 6755399441055744.0, whole = shifted - 6755399441055744.0;
  const Eight r = (y - whole * 0.693145751953125) - whole * 1.42860682030941723212e-6;
  const Eight scale = (Eight)(((EightWhole)shifted + 1023) << 52);
  Eight p;
  if (Single) {
    p = every(1.0 / 40320.0);
  } else {
    p = every(1.0 / 6227020800.0);
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
  }
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  const Eight found = (p + 1.0) * scale;
  const Eight high = x > every(709.0) ? every(-NONE) : found;
  return x < low ? Eight{} : high;
}

// log of positive normal numbers: 2 atanh((m - 1) / (m + 1)) and the power of two.
inline Eight logs(Eight x) {
  const EightWhole bits = (EightWhole)x;
  const EightWhole power = ((bits - 0x3fe6a09e667f3bcd) >> 52);
  const Eight m = (Eight)(bits - (power << 52));
  const Eight s = (m - 1.0) / (m + 1.0), z = s * s;
  Eight p = every(2.0 / 23);
#pragma GCC unroll 16
  for (int n = 21; n >= 3; n -= 2) p = p * z + 2.0 / n;
  const EightWhole raised = power + 0x4338000000000000;
  const Eight e = (Eight)raised - 6755399441055744.0;
  return e * 0.693145751953125 + (2.0 * s + (s * z * p + e * 1.42860682030941723212e-6));
}

// A sum with its error: high + low.
struct Exactly {
  Eight high{}, low{};

  void add(Eight more) {
    const Eight sum = high + more, seen = sum - high;
    low += (high - (sum - seen)) + (more - seen);
    high = sum;
  }
  void scale(double by) { high *= by, low *= by; }
};

struct Two {
  double high = 0, low = 0;

  Two() = default;
  explicit Two(Exactly lanes) {
    constexpr EightWhole STEPS[] = {{4, 5, 6, 7, 0, 1, 2, 3}, {2, 3, 0, 1, 6, 7, 4, 5}, {1, 0, 3, 2, 5, 4, 7, 6}};
    for (const EightWhole& step : STEPS) {
      const Exactly others{__builtin_shuffle(lanes.high, step), __builtin_shuffle(lanes.low, step)};
      lanes.add(others.high), lanes.low += others.low;
    }
    high = lanes.high[0], low = lanes.low[0];
  }

  void add(double more) {
    const double sum = high + more, seen = sum - high;
    low += (high - (sum - seen)) + (more - seen);
    high = sum;
  }
  void add(const Two& more) { add(more.high), low += more.low; }
  double sum() const { return high + low; }
};

// The largest of some numbers by size; infinite where one is no number. Sizes are in the order of their bits.
inline double largest_size(const double* numbers, int64_t many) {
  constexpr int64_t SIZE = 0x7fffffffffffffff, INFINITE = 0x7ff0000000000000;
  EightWhole most{};
  int64_t i = 0, top = 0;
  for (; i + 8 <= many; i += 8) {
    EightWhole bits;
    std::memcpy(&bits, numbers + i, sizeof bits);
    bits &= SIZE;
    most = bits > most ? bits : most;
  }
  for (; i < many; i++) {
    int64_t bits;
    std::memcpy(&bits, numbers + i, sizeof bits);
    top = std::max(top, bits & SIZE);
  }
  for (int e = 0; e < 8; e++) top = std::max<int64_t>(top, most[e]);
  top = std::min(top, INFINITE);
  double size;
  std::memcpy(&size, &top, sizeof size);
  return size;
}

// Whether no score of tokens whose features are at most that large can leave the range of float64: one that does is no
// key that is missing, though both are -inf.
inline bool in_range(const Score& score, double features) {
  double most = 0;
  for (const Part& part : score.parts)
    most += std::fabs(part.coefficient) * 4 * part.query.count() * features * features * (part.side ? 1 + features : 1);
  return most < 1e300;
}

inline bool in_range(const Score& score, const Lane* lanes, int many, double others) {
  for (int32_t f = 0; f < score.features; f++) others = std::max(others, largest_size(lanes[f].v, many));
  return in_range(score, others);
}

// The score of one token of a side with up to 64 of the other, eight at a time.
struct Scorer {
  const Score& score;
  const Side& side;
  bool own_is_query;

  inline void operator()(int64_t token, const Lane* lanes, Eight* out, int eights = EIGHTS) const {
    if (eights > 4) of<8>(token, lanes, out);
    else if (eights > 2) of<4>(token, lanes, out);
    else if (eights > 1) of<2>(token, lanes, out);
    else of<1>(token, lanes, out);
  }

  template <int N>
  __attribute__((always_inline)) inline void of(int64_t token, const Lane* lanes, Eight* out) const {
    const double* own = side.row(token);
    const int32_t* start = side.start.data() + token * score.parts.size();
    if (score.parts.size() == 1 && score.parts[0].distance && !score.parts[0].side) {  // the most usual one
      const Part& part = score.parts[0];
      const int32_t many = part.query.count();
      Eight raw[N] = {};
      for (int32_t f = 0; f < many; f++) add<N, true>(lanes[f], own[f], raw);
      for (int i = 0; i < N; i++) out[i] = raw[i] * part.coefficient;
      return;
    }
    if (score.parts.size() == 1 && start[1] - start[0] == 1 && !score.parts[0].distance && !score.parts[0].side) {
      const Eight* x = lanes[side.used[start[0]]].eights();
      const double by = own[side.used[start[0]]], factor = score.parts[0].coefficient;
      for (int i = 0; i < N; i++) out[i] = x[i] * by * factor;
      return;
    }
    for (int i = 0; i < N; i++) out[i] = Eight{};
    for (size_t p = 0; p < score.parts.size(); p++) {
      const Part& part = score.parts[p];
      Eight raw[N] = {};
      for (int32_t u = start[p]; u < start[p + 1]; u++) {
        const int32_t f = side.used[u];
        if (part.distance) add<N, true>(lanes[f], own[f], raw);
        else add<N, false>(lanes[f], own[f], raw);
      }
      double factor = part.coefficient;
      if (part.side && (part.side == 1) == own_is_query) factor *= own[part.scale_at];
      if (part.side && (part.side == 1) != own_is_query) {
        const Eight* scale = lanes[part.scale_at].eights();
        for (int i = 0; i < N; i++) out[i] += raw[i] * factor * scale[i];
      } else {
        for (int i = 0; i < N; i++) out[i] += raw[i] * factor;
      }
    }
  }

  template <int N, bool Distance>
  static inline void add(const Lane& lane, double own, Eight* raw) {
    const Eight* x = lane.eights();
    const Eight o = every(own);
#pragma GCC unroll 8
    for (int i = 0; i < N; i++) {
      if (Distance) {
        const Eight gap = x[i] - o;
        raw[i] += gap * gap;
      } else {
        raw[i] += x[i] * o;
      }
    }
  }
};

struct Head {
  int32_t query, keys, kind, writes, out;
  bool once, number, other, diagonal, own_last, own_competes;
  Score score;
  Rows value, own_score, own_value;
  std::vector<double> factor;  // of a number

  explicit Head(Code& code) {
    query = (int32_t)code.next(), keys = (int32_t)code.next(), kind = (int32_t)code.next(), writes = (int32_t)code.next();
    out = (int32_t)code.next(), once = code.next(), other = code.next(), diagonal = code.next();
    const int64_t own = code.next();
    own_last = own == 1, own_competes = own == 2;
    score = Score(code);
    number = kind == LSE || kind == BEST;
    if (number)
      for (int32_t w = 0; w < writes; w++) factor.push_back(code.number());
    else
      value = Rows(code);
    if (own_competes) own_score = Rows(code);
    if (own) own_value = Rows(code);
  }

  int32_t sums() const { return number ? 0 : diagonal ? 1 : writes; }
};

// What keys come to for one query: exponentials relative to `peak`.
struct Total {
  double peak = NONE;
  double mass = 0;
  bool signs = false;  // a weight was negative: whether the mass is zero is not for rounded numbers to say
  std::vector<double> sum;
};

// The result of one query; false where there is none.
inline bool finish(const Head& head, Total& t, const double* own_score, const double* own_value, double* out) {
  const int32_t sums = head.sums();
  double from_own = 0;
  if (head.own_competes) {
    if (head.kind == SOFTMAX || head.kind == LSE) {
      const double peak = std::max(t.peak, *own_score), left = std::exp(t.peak - peak);
      from_own = std::exp(*own_score - peak);
      for (double& each : t.sum) each *= left;
      t.mass = t.mass * left + from_own, t.peak = peak;
    } else if (head.kind == BEST) {
      t.peak = std::max(t.peak, *own_score);
    } else {
      from_own = head.kind == EXPONENTIAL ? std::exp(*own_score) : *own_score;
      t.mass += from_own;
    }
    for (int32_t w = 0; w < sums; w++) t.sum[w] += from_own * own_value[w];
  }
  const bool divides = head.kind == SOFTMAX || head.kind == NORMALIZE;
  if (head.kind == NORMALIZE && (t.signs || from_own < 0 || t.mass < TINY)) return false;
  if ((divides && t.mass == 0) || (head.number && t.peak == NONE)) {
    if (!head.own_last) return false;
    std::copy(own_value, own_value + head.writes, out);
    return true;
  }
  if (head.number) {
    const double number = head.kind == BEST ? t.peak : t.peak + std::log(t.mass);
    for (int32_t w = 0; w < head.writes; w++) out[w] = number * head.factor[w];
  } else {
    for (int32_t w = 0; w < sums; w++) out[w] = divides ? t.sum[w] / t.mass : t.sum[w];
  }
  for (int32_t w = 0; w < (head.number ? head.writes : sums); w++)
    if (!(out[w] - out[w] == 0)) return false;
  return true;
}
// Heads over all keys, with the same queries and keys, of an instruction (soft.cpp); LAYER where a number has no value.
Outcome add_up(Problem& problem, Team& team, const std::vector<Head>& heads, int32_t instruction);

}  // namespace weftc
