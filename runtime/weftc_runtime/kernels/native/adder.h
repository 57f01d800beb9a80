// Exact sums over segments: numbers carry the label of their sum, and every sum is rounded once, whatever the order.
//
// A number is cut into pieces, multiples of 2^unit, 2^(unit - bits), ..., which are added as integers: the more rows
// there are, the fewer bits a piece has, so that 64 bits hold those of all rows that come and go. Rows whose label
// changes are taken from one sum and added to another.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "team.h"

namespace weftc {

typedef __int128 Wide;
typedef double Doubles __attribute__((vector_size(32)));
typedef int64_t Longs __attribute__((vector_size(32)));

static inline Doubles four(const double* x) {
  Doubles v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
static inline Doubles four(const float* x) { return Doubles{x[0], x[1], x[2], x[3]}; }

static inline int64_t bits(double x) {
  int64_t found;
  std::memcpy(&found, &x, sizeof found);
  return found;
}

// sum += more, or -= it, four at a time.
static inline void add(int64_t* sum, Longs more) {
  Longs now;
  std::memcpy(&now, sum, sizeof now);
  now += more;
  std::memcpy(sum, &now, sizeof now);
}

// Sizes of IEEE numbers are ordered like their bits without the sign; NaN comes after infinity.
template <class Real>
Real peak(const Real* data, int64_t stride, int64_t first, int64_t last, int64_t columns) {
  typedef std::conditional_t<sizeof(Real) == 4, int32_t, int64_t> Bits;
  if (stride == columns) {  // one row for all
    data += first * stride;
    columns *= last - first, first = 0, last = 1;
  }
  Bits most = 0;
  const Bits size = ~((Bits)1 << (8 * sizeof(Bits) - 1));
  for (int64_t i = first; i < last; i++) {
    const Real* row = data + i * stride;
    for (int64_t c = 0; c < columns; c++) {
      Bits bits;
      std::memcpy(&bits, row + c, sizeof bits);
      most = std::max(most, (Bits)(bits & size));
    }
  }
  Real found;
  std::memcpy(&found, &most, sizeof found);
  return found;
}

constexpr int BITS = 36;  // of a piece at most
constexpr int64_t SHARE = 8192;  // rows that a thread takes at a time
constexpr int64_t FETCHED = 8;   // rows ahead
constexpr int NEAR = 2;   // pieces that every thread sums by itself; more are rare
constexpr int64_t MANY = 1 << 14;    // sums from which threads share the rounding
constexpr int64_t LITTLE = 1 << 17;  // numbers that one thread adds in the time it takes to start another

}  // namespace weftc

// See library.py, which has the same fields in the same order.
extern "C" struct WeftSegments {
  const void* data;  // (rows, columns) as stored
  int64_t stride;
  int64_t rows;
  int32_t is_double;
  int32_t columns;
  const int32_t* before;         // the label each row has had; null: none
  const int32_t* labels;         // the label it has now, negative: none
  const double* before_weights;  // what its numbers were multiplied by, and are now; null: 1
  const double* weights;
  const int32_t* base;           // what is added to the labels of each row that has one; null: 0
  int32_t segments;
  int32_t top;                   // all numbers, times their weights, are below 2^top
  int32_t levels;                // pieces that the sums have room for
  int32_t threads;
  int64_t total;                 // rows that 64 bits must hold the pieces of: `rows` or more
  int32_t divide;                // whether `out` is means: sums over the number of rows, 0 where there are none
  int64_t* sums;                 // (levels, segments, columns)
  int64_t* counts;               // (segments)
  int64_t* work;                 // (threads - 1, NEAR, segments, columns), 0 before and after
  double* rounded;               // (segments, columns), every sum rounded once
  double* out;                   // (segments, columns)
  int64_t moved;                 // rows that changed their label or weight; before: those of the call before
  int64_t empty;                 // out: segments without rows
};

namespace weftc {

// Bits of a piece, so that twice the pieces of all rows stay below 2^63.
inline int bits_of(const WeftSegments& s) {
  const int rows = s.total ? 64 - __builtin_clzll((uint64_t)s.total) : 0;  // bits of their number
  return std::min(BITS, 62 - rows);
}

template <class Real>
struct Adder {
  WeftSegments& s;
  std::mutex& lock;
  size_t cells;
  int width;  // of a piece
  int64_t* sum;  // (NEAR, cells): the first thread adds to the sums themselves
  std::vector<int64_t> own;  // counts of a thread that is not the first
  int64_t* count;
  std::vector<uint8_t> touched;
  std::vector<double> row;  // numbers times their weight
  int64_t moved = 0;
  bool good = true;
  double pull[NEAR];  // adding it rounds to multiples of a unit, and its bits then count them

  Adder(WeftSegments& segments, std::mutex& mutex, int thread)
      : s(segments), lock(mutex), cells((size_t)segments.segments * segments.columns), width(bits_of(segments)),
        sum(thread ? segments.work + (size_t)(thread - 1) * NEAR * cells : segments.sums),
        own(thread ? segments.segments : 0), count(thread ? own.data() : segments.counts),
        touched(segments.segments), row(segments.weights ? segments.columns : 0) {
    for (int level = 0; level < NEAR; level++) pull[level] = std::ldexp(1.5, 52 + unit(level));
  }

  int unit(int level) const { return s.top - width * (level + 1); }

  // Adds the pieces of a row to one sum and takes them from another; either may be none (negative).
  template <class Number>
  void move(const Number* x, int32_t from, int32_t to) {
    if (from < 0 && to < 0) return;
    if (to < 0) return first<-1>(x, from, from);
    return from < 0 ? first<1>(x, to, to) : first<0>(x, from, to);
  }

  // way: 1 adds to `to`, -1 takes from `from`, 0 does both.
  template <int way, class Number>
  void first(const Number* x, int32_t from, int32_t to) {
    int64_t *less = sum + (size_t)from * s.columns, *more = sum + (size_t)to * s.columns;
    const double pulled = pull[0];
    const int64_t zero = bits(pulled);
    Longs differ{};
    int c = 0;
    for (; c + 4 <= s.columns; c += 4) {
      const Doubles v = four(x + c), up = v + pulled;
      const Longs piece = (Longs)up - zero;
      differ |= up - pulled != v;
      if (way >= 0) add(more + c, piece);
      if (way <= 0) add(less + c, -piece);
    }
    bool whole = !(differ[0] | differ[1] | differ[2] | differ[3]);
    for (; c < s.columns; c++) {
      const double v = (double)x[c], up = v + pulled;
      const int64_t piece = bits(up) - zero;
      whole &= up - pulled == v;
      if (way >= 0) more[c] += piece;
      if (way <= 0) less[c] -= piece;
    }
    if (whole) return;
    if (way >= 0) second(x, to, 1.0);
    if (way <= 0) second(x, from, -1.0);
  }

  // What the first piece leaves of a row.
  template <class Number>
  void second(const Number* x, int32_t label, double sign) {
    int64_t* out = sum + cells + (size_t)label * s.columns;
    const int64_t zero = bits(pull[1]);
    Longs differ{};
    int c = 0;
    for (; c + 4 <= s.columns; c += 4) {
      const Doubles v = sign * four(x + c), rest = v - ((v + pull[0]) - pull[0]), up = rest + pull[1];
      add(out + c, (Longs)up - zero);
      differ |= up - pull[1] != rest;
    }
    bool more = differ[0] | differ[1] | differ[2] | differ[3];
    for (; c < s.columns; c++) {
      const double v = sign * (double)x[c], rest = v - ((v + pull[0]) - pull[0]), up = rest + pull[1];
      out[c] += bits(up) - zero;
      more |= up - pull[1] != rest;
    }
    if (more) tail(x, label, sign);
  }

  // What is left after NEAR pieces.
  template <class Number>
  void tail(const Number* x, int32_t label, double sign) {
    for (int c = 0; c < s.columns; c++) {
      double rest = sign * (double)x[c];
      for (int level = 0; rest != 0; level++) {
        if (level == s.levels) {
          good = false;
          return;
        }
        const double step = std::ldexp(1.5, 52 + unit(level)), piece = (rest + step) - step;
        rest -= piece;
        if (level >= NEAR && piece != 0) into(level, (size_t)label * s.columns + c, piece);
      }
    }
  }

  // Adds a row times its weight, every product rounded once, or takes it away.
  void weighted(const Real* x, double weight, int32_t from, int32_t to) {
    double* out = row.data();
    for (int c = 0; c < s.columns; c++) out[c] = weight * (double)x[c];
    move((const double*)out, from, to);
  }

  void into(int level, size_t cell, double piece) {
    std::lock_guard<std::mutex> held(lock);
    s.sums[(size_t)level * cells + cell] += (int64_t)std::ldexp(piece, -unit(level));
  }

  // Adds what this thread has to the sums of all.
  void flush() {
    if (sum == s.sums) return;
    for (int32_t at = 0; at < s.segments; at++) {
      s.counts[at] += count[at];
      if (!touched[at]) continue;
      for (int level = 0; level < NEAR; level++) {
        const size_t place = (size_t)level * cells + (size_t)at * s.columns;
        for (int c = 0; c < s.columns; c++) s.sums[place + c] += sum[place + c], sum[place + c] = 0;
      }
    }
  }

  // The rows of a range that change their label or weight.
  int32_t select(int64_t first, int32_t rows, int32_t* changed) const {
    constexpr int32_t STEP = 16;
    int32_t many = 0;
    if (!s.before || (s.weights && s.weights != s.before_weights)) {
      for (int32_t i = 0; i < rows; i++)
        if (!s.before || s.before[first + i] != s.labels[first + i] ||
            s.before_weights[first + i] != s.weights[first + i])
          changed[many++] = i;
      return many;
    }
    const int32_t *labels = s.labels + first, *before = s.before + first;
    for (int32_t from = 0; from < rows; from += STEP) {
      const int32_t to = std::min(rows, from + STEP);
      int32_t differ = 0;
      for (int32_t i = from; i < to; i++) differ |= before[i] ^ labels[i];
      if (!differ) continue;
      for (int32_t i = from; i < to; i++) {  // without branches: nobody could predict them
        changed[many] = i;
        many += before[i] != labels[i];
      }
    }
    return many;
  }

  void range(int64_t first, int64_t last) {
    int32_t changed[SHARE + 1];
    const int32_t *labels = s.labels + first, *before = s.before ? s.before + first : nullptr;
    const int32_t many = select(first, (int32_t)(last - first), changed);
    const Real* data = (const Real*)s.data + first * s.stride;
    for (int32_t at = 0; at < many; at++) {
      const int32_t i = changed[at];
      if (at + FETCHED < many) __builtin_prefetch(data + changed[at + FETCHED] * s.stride);
      int32_t from = before ? before[i] : -1, to = labels[i];
      const int32_t base = s.base ? s.base[first + i] : 0;
      if (from >= 0) count[from += base]--, touched[from] = 1;
      if (to >= 0) count[to += base]++, touched[to] = 1;
      const Real* x = data + i * s.stride;
      if (!s.weights) {
        move(x, from, to);
        continue;
      }
      if (to >= 0) weighted(x, s.weights[first + i], -1, to);
      if (from >= 0) weighted(x, s.before_weights[first + i], from, -1);
    }
    moved += many;
  }
};

// The sum of numbers, correctly rounded: partial sums that do not overlap, then one rounding (ties to even).
inline double exact_sum(const std::vector<double>& terms, std::vector<double>& parts) {
  parts.clear();
  for (double x : terms) {
    size_t kept = 0;
    for (double y : parts) {
      if (std::fabs(x) < std::fabs(y)) std::swap(x, y);
      const double high = x + y, low = y - (high - x);
      if (low != 0) parts[kept++] = low;
      x = high;
    }
    parts.resize(kept);
    parts.push_back(x);
  }
  size_t n = parts.size();
  if (!n) return 0.0;
  double high = parts[--n], low = 0;
  while (n > 0) {
    const double x = high, y = parts[--n];
    high = x + y;
    low = y - (high - x);
    if (low != 0) break;
  }
  if (n > 0 && ((low < 0 && parts[n - 1] < 0) || (low > 0 && parts[n - 1] > 0))) {
    const double y = low * 2, x = high + y;
    if (y == x - high) high = x;  // half-way cases go the way of what is below
  }
  return high;
}

// One sum, rounded once. Two pieces that doubles hold need one addition; larger ones are one integer of 128 bits, which
// C++ rounds to the nearest double, ties to even. `unit`: of the lower of two pieces.
inline double rounded(const WeftSegments& s, size_t cell, double unit, std::vector<double>& terms, std::vector<double>& parts) {
  const int width = bits_of(s);
  const size_t cells = (size_t)s.segments * s.columns;
  const int64_t* sums = s.sums + cell;
  constexpr int64_t EXACT = (int64_t)1 << 53;
  if (s.levels == 2 && std::max(std::llabs(sums[0]), std::llabs(sums[cells])) <= EXACT)
    return ((double)sums[0] * (double)((int64_t)1 << width) + (double)sums[cells]) * unit;
  if (s.levels == 2) return (double)((Wide)sums[0] * ((Wide)1 << width) + sums[cells]) * unit;
  terms.clear();
  for (int level = 0; level < s.levels; level++) {
    int64_t rest = sums[level * cells];
    for (int at = 0; rest != 0; at++) {
      const int64_t low = rest & (((int64_t)1 << 48) - 1);
      if (low) terms.push_back(std::ldexp((double)low, s.top - width * (level + 1) + 48 * at));
      rest >>= 48;
      if (rest == -1) {  // what is left of a negative number
        terms.push_back(-std::ldexp(1.0, s.top - width * (level + 1) + 48 * (at + 1)));
        break;
      }
    }
  }
  return exact_sum(terms, parts);
}

// As few rows as last time are moved before another thread is there.
inline bool is_little(const WeftSegments& s) { return s.before && s.moved * s.columns + s.rows / 4 < LITTLE; }

template <class Real>
bool accumulate_as(WeftSegments& s, Team& team, std::vector<uint8_t>& touched) {
  std::mutex lock;
  std::vector<Adder<Real>> adders;
  adders.reserve(s.threads);
  for (int t = 0; t < s.threads; t++) adders.emplace_back(s, lock, t);
  const int64_t chunk = is_little(s) ? std::max<int64_t>(1, s.rows) : SHARE;
  bool good = team.ranges(s.rows, chunk, [&](int64_t first, int64_t last, int who) {
    for (int64_t at = first; at < last; at += SHARE) adders[who].range(at, std::min(last, at + SHARE));
  });
  s.moved = 0;
  for (auto& each : adders) {
    if (each.moved) each.flush();
    for (int32_t at = 0; at < s.segments; at++) touched[at] |= each.touched[at];
    s.moved += each.moved;
    good &= each.good;
  }
  return good;
}

// Adds the rows to the pieces of their sums, and notes whose sums those are; false when the numbers need more room, or
// memory ran out.
inline bool accumulate(WeftSegments& s, Team& team, std::vector<uint8_t>& touched) {
  return s.is_double ? accumulate_as<double>(s, team, touched) : accumulate_as<float>(s, team, touched);
}

// Rounds the sums that were touched, and puts all sums or means out.
inline bool put_out(WeftSegments& s, Team& team, const std::vector<uint8_t>& touched) {
  const bool few = (int64_t)s.segments * s.columns < MANY;
  const double unit = std::ldexp(1.0, s.top - 2 * bits_of(s));
  const int64_t part = std::max<int64_t>(1, few ? s.segments : s.segments / (4 * s.threads));
  const bool good = team.ranges(s.segments, part, [&](int64_t first, int64_t last, int) {
    std::vector<double> terms, parts;
    for (int64_t at = first; at < last; at++) {
      double *row = s.rounded + at * s.columns, *out = s.out + at * s.columns;
      if (touched[at])
        for (int c = 0; c < s.columns; c++) row[c] = rounded(s, (size_t)at * s.columns + c, unit, terms, parts);
      const double by = s.divide && s.counts[at] ? (double)s.counts[at] : 1.0;
      for (int c = 0; c < s.columns; c++) out[c] = row[c] / by;
    }
  });
  s.empty = 0;
  for (int32_t at = 0; at < s.segments; at++) s.empty += !s.counts[at];
  return good;
}

// Adds the rows to their sums; false when the numbers need more room, or memory ran out.
inline bool add_up(WeftSegments& s, Team& team) {
  std::vector<uint8_t> touched(s.segments);
  return accumulate(s, team, touched) && put_out(s, team, touched);
}

}  // namespace weftc
