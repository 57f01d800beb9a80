// Exact sums over segments: numbers carry the label of their sum, and every sum is rounded once, whatever the order.
//
// A number is cut into pieces, multiples of 2^unit, 2^(unit - BITS), ...; sums of few pieces are exact in float64, and are
// emptied into 128-bit integers before they could round. Rows whose label changes are taken from one sum and added to
// another, which is exact too.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "threads.h"

namespace weft {

typedef __int128 Wide;
typedef double Doubles __attribute__((vector_size(32)));
typedef int64_t Longs __attribute__((vector_size(32)));

static inline Doubles four(const double* x) {
  Doubles v;
  std::memcpy(&v, x, sizeof v);
  return v;
}
static inline Doubles four(const float* x) { return Doubles{x[0], x[1], x[2], x[3]}; }

constexpr int BITS = 36;         // of a piece
constexpr int64_t FEW = 1 << 14;  // rows added in float64: pieces below 2^37 units, sums below 2^52
constexpr int64_t CHUNK = 8192, AHEAD = 8;
constexpr int NEAR = 2;          // pieces that are summed in float64 first; more are rare

}  // namespace weft

// See segment.py, which has the same fields in the same order.
extern "C" struct WeftSegments {
  const void* data;  // (rows, columns) as stored
  int64_t stride;
  int64_t rows;
  int32_t is_double;
  int32_t columns;
  const int32_t* before;   // the label each row has had; null: none
  const int32_t* labels;   // the label it has now, negative: none
  int32_t segments;
  int32_t top;             // all numbers are below 2^top
  int32_t levels;          // pieces that the sums have room for
  int32_t threads;
  int64_t* sums;           // (levels, segments, columns) of 128 bits
  int64_t* counts;         // (segments)
  int64_t moved;           // out: rows that changed their label
};

namespace weft {

template <class Real>
struct Adder {
  WeftSegments& s;
  std::mutex& lock;
  size_t cells;
  std::vector<double> sum;  // (NEAR, cells)
  std::vector<int64_t> count, changed;
  int64_t used = 0, moved = 0;
  bool good = true;
  double pull[NEAR];  // adding and subtracting it rounds to multiples of a unit

  Adder(WeftSegments& segments, std::mutex& mutex)
      : s(segments), lock(mutex), cells((size_t)segments.segments * segments.columns), sum(NEAR * cells),
        count(segments.segments), changed(CHUNK + 1) {
    for (int level = 0; level < NEAR; level++) pull[level] = std::ldexp(1.5, 52 + unit(level));
  }

  int unit(int level) const { return s.top - BITS * (level + 1); }

  // Whether all numbers of a row are multiples of the first unit.
  bool whole(const Real* x) const {
    Longs differ{};
    int c = 0;
    for (; c + 4 <= s.columns; c += 4) {
      const Doubles v = four(x + c);
      differ |= (v + pull[0]) - pull[0] != v;
    }
    bool same = !(differ[0] | differ[1] | differ[2] | differ[3]);
    for (; c < s.columns; c++) same &= ((double)x[c] + pull[0]) - pull[0] == (double)x[c];
    return same;
  }

  // Takes a row from one sum and adds it to another; either may be none (negative).
  void move(const Real* x, int32_t from, int32_t to) {
    if (from >= 0) count[from]--;
    if (to >= 0) count[to]++;
    if (whole(x)) {
      if (to >= 0) {
        double* out = sum.data() + (size_t)to * s.columns;
        for (int c = 0; c < s.columns; c++) out[c] += (double)x[c];
      }
      if (from >= 0) {
        double* out = sum.data() + (size_t)from * s.columns;
        for (int c = 0; c < s.columns; c++) out[c] -= (double)x[c];
      }
    } else {
      if (to >= 0) pieces(x, to, 1.0);
      if (from >= 0) pieces(x, from, -1.0);
    }
    if (++used == FEW) flush();
  }

  void pieces(const Real* x, int32_t label, double sign) {
    double *out = sum.data() + (size_t)label * s.columns, *next = out + cells;
    int more = 0;
    for (int c = 0; c < s.columns; c++) {
      const double number = sign * (double)x[c], first = (number + pull[0]) - pull[0], rest = number - first;
      const double second = (rest + pull[1]) - pull[1];
      out[c] += first;
      next[c] += second;
      more |= rest != second;
    }
    if (more) tail(x, label, sign);
  }

  // What is left of a row after NEAR pieces.
  void tail(const Real* x, int32_t label, double sign) {
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

  void into(int level, size_t cell, double piece) {
    std::lock_guard<std::mutex> held(lock);
    ((Wide*)s.sums)[(size_t)level * cells + cell] += (Wide)std::ldexp(piece, -unit(level));
  }

  void flush() {
    if (!used) return;
    std::lock_guard<std::mutex> held(lock);
    for (int level = 0; level < NEAR; level++) {
      const double scale = std::ldexp(1.0, -unit(level));
      Wide* out = (Wide*)s.sums + (size_t)level * cells;
      double* from = sum.data() + (size_t)level * cells;
      for (size_t cell = 0; cell < cells; cell++) out[cell] += (int64_t)(from[cell] * scale);
    }
    std::fill(sum.begin(), sum.end(), 0.0);
    for (int32_t at = 0; at < s.segments; at++) s.counts[at] += count[at];
    std::fill(count.begin(), count.end(), 0);
    used = 0;
  }

  void range(int64_t first, int64_t last) {
    int64_t many = 0;
    for (int64_t i = first; i < last; i++) {  // without branches: nobody could predict them
      changed[many] = i;
      many += !s.before || s.before[i] != s.labels[i];
    }
    const Real* data = (const Real*)s.data;
    for (int64_t at = 0; at < many; at++) {
      const int64_t i = changed[at];
      if (at + AHEAD < many) __builtin_prefetch(data + changed[at + AHEAD] * s.stride);
      move(data + i * s.stride, s.before ? s.before[i] : -1, s.labels[i]);
    }
    moved += many;
  }
};

template <class Real>
static bool segments(WeftSegments& s) {
  std::mutex lock;
  std::vector<Adder<Real>> adders;
  for (int t = 0; t < s.threads; t++) adders.emplace_back(s, lock);
  bool good = share(s.rows, CHUNK, s.threads, [&](int64_t first, int64_t last, int t) { adders[t].range(first, last); });
  s.moved = 0;
  for (auto& each : adders) {
    each.used = 1;  // counts without sums must be emptied too
    each.flush();
    s.moved += each.moved;
    good &= each.good;
  }
  return good;
}

// The sum of numbers, correctly rounded: partial sums that do not overlap, then one rounding (ties to even).
static double exact(const std::vector<double>& terms, std::vector<double>& parts) {
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

}  // namespace weft

// Adds the rows to their sums. 0: done; 1: the numbers reach over too many orders of magnitude, or memory ran out.
extern "C" int32_t weft_segments(WeftSegments* s) {
  try {
    return (s->is_double ? weft::segments<double>(*s) : weft::segments<float>(*s)) ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

// The sums (segments * columns), each rounded once.
extern "C" int32_t weft_rounded(const int64_t* sums, int64_t cells, int32_t levels, int32_t top, double* out) {
  try {
    std::vector<double> terms, parts;
    for (int64_t cell = 0; cell < cells; cell++) {
      terms.clear();
      for (int level = 0; level < levels; level++) {
        weft::Wide rest = ((const weft::Wide*)sums)[level * cells + cell];
        for (int at = 0; rest != 0; at++) {
          const int64_t low = (int64_t)(rest & (((weft::Wide)1 << 48) - 1));
          if (low) terms.push_back(std::ldexp((double)low, top - weft::BITS * (level + 1) + 48 * at));
          rest >>= 48;
          if (rest == -1) {  // what is left of a negative number
            terms.push_back(-std::ldexp(1.0, top - weft::BITS * (level + 1) + 48 * (at + 1)));
            break;
          }
        }
      }
      out[cell] = weft::exact(terms, parts);
    }
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

namespace weft {

// Sizes of IEEE numbers are ordered like their bits without the sign; NaN comes after infinity.
template <class Real, class Bits>
static Real peak(const Real* data, int64_t stride, int64_t first, int64_t last, int columns) {
  Bits most = 0;
  const Bits size = ~((Bits)1 << (8 * sizeof(Bits) - 1));
  for (int64_t i = first; i < last; i++) {
    const Real* row = data + i * stride;
    for (int c = 0; c < columns; c++) {
      Bits bits;
      std::memcpy(&bits, row + c, sizeof bits);
      most = std::max(most, (Bits)(bits & size));
    }
  }
  Real found;
  std::memcpy(&found, &most, sizeof found);
  return found;
}

}  // namespace weft

// The largest size of the numbers (rows, columns); infinite or NaN if one of them is.
extern "C" double weft_peak(const void* data, int32_t is_double, int64_t stride, int64_t rows, int32_t columns,
                            int32_t threads) {
  std::vector<double> found(threads, 0.0);
  weft::share(rows, 1 << 15, threads, [&](int64_t first, int64_t last, int t) {
    const double most = is_double ? weft::peak<double, int64_t>((const double*)data, stride, first, last, columns)
                                  : weft::peak<float, int32_t>((const float*)data, stride, first, last, columns);
    if (!(most <= found[t])) found[t] = most;
  });
  double most = 0;
  for (double each : found)
    if (!(each <= most)) most = each;
  return most;
}
