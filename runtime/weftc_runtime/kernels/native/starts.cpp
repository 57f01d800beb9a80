// Rows that an input starts with: the distinct rows of a matrix in lexicographic order, and draws among them.
//
// Everything has the bits of the plain implementation in initial.py, for every number of threads: differences and their
// squares are those of float64, squares are added from the first column to the last, and masses from the first row to
// the last. This file is compiled without contraction of products and sums.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "team.h"

extern "C" {
struct WeftRows {
  const void* data;
  int64_t row_step, column_step;  // from a number to the one below, and to the one beside it
  int64_t rows;                   // fewer than 2^32
  int32_t columns, is_double, threads;
};
}

namespace weftc {

constexpr uint32_t REPEATED = std::numeric_limits<uint32_t>::max();  // a row that equals an earlier one
constexpr int64_t SMALL = 1 << 15;                                   // rows that one thread sorts
constexpr int64_t BLOCK = 4096;

// Words of 32 bits whose order is that of the rows: one for a float, two for a double.
template <class Real>
struct Words {
  static constexpr int EACH = sizeof(Real) / 4;
  const WeftRows& rows;

  int count() const { return rows.columns * EACH; }

  uint32_t operator()(uint32_t row, int word) const {
    const Real number = ((const Real*)rows.data)[row * rows.row_step + word / EACH * rows.column_step] + Real(0);  // -0
    if constexpr (EACH == 1) {
      uint32_t bits;
      std::memcpy(&bits, &number, 4);
      return bits >> 31 ? ~bits : bits | 1u << 31;
    } else {
      uint64_t bits;
      std::memcpy(&bits, &number, 8);
      bits = bits >> 63 ? ~bits : bits | 1ull << 63;
      return word % 2 ? (uint32_t)bits : (uint32_t)(bits >> 32);
    }
  }
};

// Entries are a word of a row above its number. Sorted ones are (1 if the row equals the one before, its number).
typedef uint64_t Entry;
struct Part {
  int64_t first, last;
  int word;
};
static inline uint32_t row_of(Entry entry) { return (uint32_t)entry; }

template <class Real>
class Sorting {
 public:
  Sorting(const WeftRows& rows, Entry* room) : words_{rows}, entries_(rows.rows), room_(room), threads_(rows.threads) {}

  std::vector<Entry>& sorted(Team& team) {
    team.ranges(entries_.size(), BLOCK, [&](int64_t first, int64_t last, int) {
      for (int64_t at = first; at < last; at++) entries_[at] = at;
    });
    std::vector<Part> large{{0, (int64_t)entries_.size(), 0}}, small;
    while (!large.empty()) {
      const Part part = large.back();
      large.pop_back();
      if (fill_shared(team, part)) sort_shared(team, part);
      runs(part, [&](Part run) { (run.last - run.first > SMALL ? large : small).push_back(run); });
    }
    std::atomic<size_t> next{0};
    std::atomic<bool> good{true};
    team.share(threads_, [&](int64_t) {
      try {
        for (size_t at; (at = next++) < small.size();) settle(small[at]);
      } catch (const std::exception&) {
        good = false;
      }
    });
    if (!good) throw std::bad_alloc();
    return entries_;
  }

 private:
  // Puts a word of the rows into their entries; whether it tells any two apart.
  bool fill(Part part) {
    Entry differ = 0;
    const uint32_t one = words_(row_of(entries_[part.first]), part.word);
    for (int64_t at = part.first; at < part.last; at++) {
      const uint32_t row = row_of(entries_[at]), word = words_(row, part.word);
      entries_[at] = (Entry)word << 32 | row;
      differ |= word ^ one;
    }
    return differ;
  }

  bool fill_shared(Team& team, Part part) {
    std::atomic<bool> differ{false};
    const uint32_t one = words_(row_of(entries_[part.first]), part.word);
    team.ranges(part.last - part.first, BLOCK, [&](int64_t first, int64_t last, int) {
      Part piece{part.first + first, part.first + last, part.word};
      if (fill(piece) || entries_[piece.first] >> 32 != one) differ = true;
    });
    return differ;
  }

  // Pieces sorted side by side, then merged two by two.
  void sort_shared(Team& team, Part part) {
    const int64_t rows = part.last - part.first;
    int64_t pieces = 1;
    while (pieces < threads_ && rows / pieces > SMALL) pieces *= 2;
    const auto cut = [&](int64_t piece) { return rows * piece / pieces; };
    Entry *from = entries_.data() + part.first, *to = room_;
    team.share(pieces, [&](int64_t piece) { std::sort(from + cut(piece), from + cut(piece + 1)); });
    for (int64_t wide = 1; wide < pieces; wide *= 2, std::swap(from, to))
      team.share(pieces / wide / 2, [&](int64_t pair) {
        const int64_t first = cut(2 * pair * wide), middle = cut((2 * pair + 1) * wide), last = cut((2 * pair + 2) * wide);
        std::merge(from + first, from + middle, from + middle, from + last, to + first);
      });
    if (from == room_) std::copy(room_, room_ + rows, entries_.begin() + part.first);
  }

  // What a sorted part leaves open, to `open`: entries with the same word. All others are done.
  template <class Open>
  void runs(Part part, Open open) {
    for (int64_t first = part.first, last; first < part.last; first = last) {
      const Entry word = entries_[first] >> 32;
      for (last = first + 1; last < part.last && entries_[last] >> 32 == word;) last++;
      if (last > first + 1 && part.word + 1 < words_.count()) {
        open(Part{first, last, part.word + 1});
        continue;
      }
      for (int64_t at = first; at < last; at++) entries_[at] = (Entry)(at > first) << 32 | row_of(entries_[at]);
    }
  }

  void settle(Part part) {
    while (!fill(part) && part.word + 1 < words_.count()) part.word++;
    std::sort(entries_.begin() + part.first, entries_.begin() + part.last);
    runs(part, [&](Part run) { settle(run); });
  }

  Words<Real> words_;
  std::vector<Entry> entries_;
  Entry* room_;
  int threads_;
};

template <class Real>
static int64_t distinct(const WeftRows& rows, uint32_t* out) {
  Sorting<Real> sorting(rows, (Entry*)out);
  int64_t count = 0;
  Team::run(rows.threads, [&](Team& team) {
    const std::vector<Entry>& sorted = sorting.sorted(team);
    uint32_t *group = out, *first = out + rows.rows;
    for (const Entry entry : sorted) {
      if (!(entry >> 32)) first[count++] = row_of(entry);
      group[row_of(entry)] = (uint32_t)(count - 1);
    }
  });
  return count;
}

// Squared distances within these are as exact as if they were taken at a scale of their own.
static const double LEAST = std::ldexp(1.0, -900), MOST = std::ldexp(1.0, 900);
constexpr int LANES = 8;

// The largest that is left, or -1.
template <class Real, bool BESIDE>
static double nearer(const WeftRows& rows, int64_t first, int64_t last, const double* pick, uint32_t own,
                     const uint32_t* group, double* nearest) {
  const int64_t down = rows.row_step, beside = BESIDE ? 1 : rows.column_step;
  const Real* data = (const Real*)rows.data;
  bool good = true;
  double largest = 0;
  for (int64_t at = first; at < last; at += LANES) {
    const int lanes = (int)std::min<int64_t>(LANES, last - at);
    double total[LANES] = {};
    const Real* row[LANES];
    for (int lane = 0; lane < LANES; lane++) {
      row[lane] = data + (at + std::min(lane, lanes - 1)) * down;
      if (at + lane + BLOCK / 64 < last) __builtin_prefetch(nearest + group[at + lane + BLOCK / 64], 1);
    }
    for (int column = 0; column < rows.columns; column++)
      for (int lane = 0; lane < LANES; lane++) {
        const double difference = (double)row[lane][column * beside] - pick[column];
        total[lane] += difference * difference;
      }
    for (int lane = 0; lane < lanes; lane++) {
      const uint32_t place = group[at + lane];
      if (place == REPEATED) continue;
      good &= (total[lane] >= LEAST && total[lane] <= MOST) || place == own;
      if (total[lane] < nearest[place]) nearest[place] = total[lane];
      largest = std::max(largest, nearest[place]);
    }
  }
  return good ? largest : -1;
}

template <class Real>
static double nearer(const WeftRows& rows, int64_t row, const uint32_t* group, double* nearest) {
  std::vector<double> pick(rows.columns);
  for (int column = 0; column < rows.columns; column++)
    pick[column] = ((const Real*)rows.data)[row * rows.row_step + column * rows.column_step];
  const int64_t each = std::max<int64_t>(BLOCK, rows.rows >> 18);
  std::vector<double> largest((rows.rows + each - 1) / each);
  Team::run(rows.rows * rows.columns < 1 << 16 ? 1 : rows.threads, [&](Team& team) {
    team.ranges(rows.rows, each, [&](int64_t first, int64_t last, int) {
      const auto work = rows.column_step == 1 ? nearer<Real, true> : nearer<Real, false>;
      largest[first / each] = work(rows, first, last, pick.data(), group[row], group, nearest);
    });
  });
  const auto [least, most] = std::minmax_element(largest.begin(), largest.end());
  return *least < 0 ? -1 : *most;
}

// Masses in their order: weight (null: 1), times nearest at a scale where that is given.
struct Masses {
  const double *weight, *nearest;
  double scale;
  double room[BLOCK];

  const double* of(int64_t first, int64_t last) {
    if (weight && !nearest) return weight + first;
    for (int64_t at = first; at < last; at++) room[at - first] = nearest ? nearest[at] * scale : 1.0;
    if (weight)
      for (int64_t at = first; at < last; at++) room[at - first] *= weight[at];
    return room;
  }
};

static int64_t pick(Masses& masses, int64_t count, double u) {
  std::vector<double> sums{0.0};
  for (int64_t first = 0; first < count; first += BLOCK) {
    const int64_t last = std::min(count, first + BLOCK);
    const double* mass = masses.of(first, last);
    double sum = sums.back();
    for (int64_t at = 0; at < last - first; at++) sum += mass[at];
    sums.push_back(sum);
  }
  const double target = u * sums.back();
  for (size_t block = 0; block + 1 < sums.size(); block++) {
    if (!(sums[block + 1] > target)) continue;
    const int64_t first = block * BLOCK, last = std::min(count, first + BLOCK);
    const double* mass = masses.of(first, last);
    double sum = sums[block];
    for (int64_t at = 0; at < last - first; at++)
      if ((sum += mass[at]) > target) return first + at;
  }
  for (int64_t at = count; at-- > 0;)  // the target was rounded up to the total
    if (*masses.of(at, at + 1) > 0) return at;
  return -1;
}

}  // namespace weftc

// Distinct rows in lexicographic order; how many, or -1 where memory ran out. out: 2 x rows numbers. The first are, for
// every row, which distinct row it is; then come the first rows of each.
extern "C" int64_t weftc_distinct(const WeftRows* rows, uint32_t* out) {
  try {
    return rows->is_double ? weftc::distinct<double>(*rows, out) : weftc::distinct<float>(*rows, out);
  } catch (const std::exception&) {
    return -1;
  }
}

// nearest[group[i]] = min(itself, squared distance of row i and `row`): the largest that is left, -1 where a distance is
// beyond the range of this kernel, -2 where memory ran out. A group of 2^32 - 1: a row that counts elsewhere.
extern "C" double weftc_nearer(const WeftRows* rows, int64_t row, const uint32_t* group, double* nearest) {
  try {
    return rows->is_double ? weftc::nearer<double>(*rows, row, group, nearest)
                           : weftc::nearer<float>(*rows, row, group, nearest);
  } catch (const std::exception&) {
    return -2;
  }
}

// The smallest place whose cumulative mass exceeds u times all, or the last that has any; -1 where memory ran out.
// mass: weight (null: 1), times scale * nearest where that is given.
extern "C" int64_t weftc_pick(const double* weight, const double* nearest, double scale, int64_t count, double u) {
  try {
    weftc::Masses masses{weight, nearest, scale, {}};
    return weftc::pick(masses, count, u);
  } catch (const std::exception&) {
    return -1;
  }
}
