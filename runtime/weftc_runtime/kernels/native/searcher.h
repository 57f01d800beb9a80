// The best key of every query, with a certificate, and bounds that save most of the work when keys move a little.
//
// A score to be minimised is v[j] = bias[j] + sum_f x[f] w[f, j], x the centred and scaled features of a query. It is looked
// at in three precisions, each with a bound of its error: whole numbers of 16 bits (shorts.h), float32, where a row is
// certain when the second best is behind by more than  e0 + e1 |x|  (twice the error of v; finder.h), and float64
// with exact features, where the caller gives the keys for it; what is left is the caller's. No number is trusted beyond
// its bound: comparisons are written so that NaN means doubt.
//
// Bounds (distances only): upper >= |x - best key|, lower <= |x - any other key|, in the units of the data. Keys that have
// moved since are accounted for by `drift` (per key, total path since the start) and `spread` (sum of the largest moves):
// the stored numbers are upper - drift and lower + spread at the time they were made, so that rows need not be touched.
#pragma once

#include "fine.h"
#include "shorts.h"
#include "team.h"

namespace weftc {

constexpr double UP = 1 + 0x1p-40, DOWN = 1 - 0x1p-40;
constexpr int64_t CHUNK = 4096, AHEAD = 8;
constexpr float HIDDEN = NAMES;  // a score in 16 bits may be larger by this

static inline float above(double x) { return (float)(x + std::fabs(x) * 0x1p-22 + 0x1p-120); }
static inline float below(double x) { return (float)(x - std::fabs(x) * 0x1p-22 - 0x1p-120); }

// Everything one search needs, and what it found.
struct Search {
  const void* data;  // (rows, features) as stored
  int64_t stride;    // numbers from row to row
  int64_t rows;
  int32_t is_double;
  int32_t features;
  int32_t distance;
  int32_t threads;
  const double* centre;  // (features)
  double power;          // features are multiplied by this power of two
  double grow;           // |x|^2 as computed is right up to this factor
  const Table* table;
  bool ties;             // equal scores are exact, and the first key wins
  float e0, e1;          // a lead must be larger than this
  const double* exact;   // (keys, features) the keys as they are, for float64; null: leave doubt to the caller
  double tolerance;      // a lead in exact scores that counts as none
  // bounds; null where none are kept
  float* upper;
  float* lower;
  const int32_t* before;   // the label each row has; null: every row is scanned
  const double* previous;  // (keys, features) the keys that the bounds have accounted for
  double* drift;           // (keys) moved along with the keys
  double spread;
  int32_t* label;  // out
  // found
  int64_t scanned;             // rows whose scores were computed
  int64_t refined;             // rows that were looked at again in float32
  int64_t settled_f64;             // rows settled in float64
  std::vector<int64_t> doubt;  // rows of which nothing is proved
};

struct Waiting {  // rows of a tile that is not full yet
  int64_t row[TILE];
  int many = 0;

  bool in_order() const { return row[many - 1] - row[0] == many - 1; }
};

// What the keys say about rows that have them: half the way to the nearest other key, or less, and numbers that tell
// whether a label stands: upper - lower < both, or upper < alone.
struct Standing {
  double half;
  float both, alone;
};

template <class Real>
struct Searcher {
  Search& s;
  const Standing* standing;
  const Real* data;
  const int blocks;
  std::vector<Real> centre;
  std::vector<float> line, zero;
  Fine fine;
  InShorts shorts;
  Waiting all, close;  // rows to be looked at; rows that are too close for the first look
  int64_t scanned = 0, refined = 0, settled_f64 = 0;
  std::vector<int64_t> doubt, open;

  Searcher(Search& search, const Standing* standing)
      : s(search), standing(standing), data((const Real*)search.data), blocks(padded(search.table->count) / KEYS),
        centre(search.centre, search.centre + search.features), line(search.features), zero(search.features),
        fine(search.features), shorts(search.features, (float)(search.power * search.table->shorts.scale)),
        open(search.before ? CHUNK + 1 : 0) {}

  // The same room for another search with as many features and keys.
  void start_anew(const Standing* now) {
    standing = now, data = (const Real*)s.data;
    centre.assign(s.centre, s.centre + s.features);
    shorts.factor = (float)(s.power * s.table->shorts.scale);
    if (s.before) open.resize(CHUNK + 1);
    scanned = refined = settled_f64 = all.many = close.many = 0;
    doubt.clear();
  }

  const Real* row(int64_t i) const { return data + i * s.stride; }

  void add(int64_t i) {
    all.row[all.many++] = i;
    if (all.many == TILE) flush();
  }

  void flush() {
    if (!all.many) return;
    scanned += all.many;
    if (s.table->shorts.scale > 0 && !s.ties) look_in_shorts(all);
    else look_again(all);
    all.many = 0;
  }

  // Comes last: rows that are too close wait for others of their kind.
  void flush_close() {
    if (close.many) look_again(close);
    close.many = 0;
  }

  void name(const Waiting& w, const int32_t* index) {
    if (w.in_order()) {
      std::memcpy(s.label + w.row[0], index, w.many * sizeof(int32_t));
    } else {
      for (int p = 0; p < w.many; p++) s.label[w.row[p]] = index[p];
    }
  }

  void put_close(int64_t i) {
    refined++;
    close.row[close.many++] = i;
    if (close.many == TILE) flush_close();
  }

  // ---------------------------------------------------------------- 16 bits
  void look_in_shorts(const Waiting& w) {
    for (int p = 0; p < w.many; p++) put(p, row(w.row[p]));
    shorts.scan(s.table->shorts.table.data(), s.table->shorts.bias.data(), blocks, w.many);
    name(w, shorts.index);
    const Sizes q(s);
    const float both = (q.a + q.b) * 1.4142136f, own = q.a * q.reach + q.a * q.b + 2;
    const Floats none{};
    alignas(64) int32_t unsure[TILE];
    Ints some{};
    for (int p = 0; p < TILE; p += W) {
      const Ints one = load(shorts.best + p), two = load(shorts.second + p);  // up to HIDDEN less than they are
      const Floats square = load(shorts.square + p) * q.grow;
      const Floats lead = 2 * number((two >> 1) - (one >> 1)) - HIDDEN;
      Floats needed;
      if (s.distance) {  // the sum of two lengths is at most the root of twice the sum of their squares
        const Floats squares = 2 * (square + (number(one) + number(two))) + (1024 + 4 * HIDDEN);
        needed = both * root(most(none, squares)) + 4;
      } else {
        needed = 2 * (root(square) * q.b + own);
      }
      const Ints certain = (lead > needed * (1 + 0x1p-10f)) & (square < q.widest);
      store(unsure + p, ~certain);
      some |= ~certain;
    }
    if (s.upper) bounds_in_shorts(w, q);
    if (!any(some)) return;
    for (int p = 0; p < w.many; p++)
      if (unsure[p]) put_close(w.row[p]);
  }

  // What is known of whole numbers: a, how far a query may be from them (no feature is above 2^15, so that rounding in
  // float32 adds less than 2^-5 of it); b, how far a key may be; bounds of the sizes of keys and scores.
  struct Sizes {
    float a, b, reach, grow, shrink, widest;

    explicit Sizes(const Search& s)
        : a((float)(0.5 * std::sqrt((double)s.features) * (1 + 0x1p-5) + 0x1p-6)),
          b((float)(s.table->shorts.error * (1 + 0x1p-10) + 0x1p-6)), reach((float)(s.table->shorts.reach * (1 + 0x1p-10))),
          grow((float)(1 + (s.features + 8) * 0x1p-23)), shrink(1 / grow) {
      const float room = std::max(0.0f, 0x1.fp30f - (float)(s.table->shorts.most * (1 + 0x1p-10)));
      widest = room / reach * (room / reach);  // of the squares of queries whose scores fit 32 bits
    }
  };

  void bounds_in_shorts(const Waiting& w, const Sizes& q) {
    const float unit = (float)(1 / (s.power * s.table->shorts.scale)), more = 1 + 0x1p-20f, less = 1 - 0x1p-20f;
    const Floats none{};
    alignas(64) float near[TILE], far[TILE];
    for (int p = 0; p < TILE; p += W) {  // 512: rounding of scores to float32
      const Floats square = load(shorts.square + p);
      const Floats best = 2 * number(load(shorts.best + p)), second = 2 * number(load(shorts.second + p));
      const Floats ahead = root(most(none, square * q.grow + best + (512 + 2 * HIDDEN)));
      const Floats behind = root(most(none, square * q.shrink + second - 512)) * less - (q.a + q.b);
      store(near + p, (ahead + (q.a + q.b)) * more * unit);
      store(far + p, behind * (behind > 0 ? every(unit * less) : every(unit * more)));
    }
    for (int p = 0; p < w.many; p++) remember(w.row[p], shorts.index[p], near[p], far[p]);
  }

  // A row as whole numbers; with the centre taken off first where float32 could not hold both.
  void put(int p, const float* x) { shorts.put(p, x, centre.data()); }
  void put(int p, const double* x) {
    for (int f = 0; f < s.features; f++) line[f] = (float)(x[f] - centre[f]);
    shorts.put(p, line.data(), zero.data());
  }

  // ---------------------------------------------------------------- float32
  void look_again(const Waiting& w) {
    if (s.features < 4 && s.stride == s.features && w.many == TILE && w.in_order())
      fine.put_tile(row(w.row[0]), centre.data(), (Real)s.power);
    else
      for (int p = 0; p < w.many; p++) fine.put(p, row(w.row[p]), centre.data(), (Real)s.power);
    fine.scan(s.table->table.data(), s.table->bias.data(), blocks, w.many);
    name(w, fine.index);
    const float grow = (float)s.grow;
    float needed[TILE];
    int32_t unsure[TILE];
    for (int p = 0; p < TILE; p++) {
      needed[p] = s.e0 + s.e1 * std::sqrt(fine.square[p] * grow);
      const float lead = fine.second[p] - fine.best[p];
      unsure[p] = s.ties ? !(lead >= 0) : !(lead > needed[p]);
    }
    if (s.upper) {
      const double unit = 1 / s.power;
      for (int p = 0; p < w.many; p++) {
        const double size = fine.square[p], error = needed[p];
        const double near = std::sqrt(std::max(0.0, fine.best[p] + size * s.grow + error)) * unit * UP;
        const double far = std::sqrt(std::max(0.0, fine.second[p] + size / s.grow - error)) * unit * DOWN;
        remember(w.row[p], fine.index[p], near, far);
      }
    }
    int32_t any = 0;
    for (int p = 0; p < w.many; p++) any |= unsure[p];
    if (any)
      for (int p = 0; p < w.many; p++)
        if (unsure[p]) settle(w.row[p]);
  }

  void remember(int64_t i, int32_t key, double near, double far) {
    s.upper[i] = above(near - s.drift[key]);
    s.lower[i] = below(far + s.spread);
  }

  // ---------------------------------------------------------------- float64
  void settle(int64_t i) {
    if (s.exact && again(i)) settled_f64++;
    else doubt.push_back(i);
    if (s.upper) s.upper[i] = INF, s.lower[i] = -INF;
  }

  // The score of a key with the numbers as they are: the sum, and the sizes of what was added.
  double exact_score(const Real* x, int32_t j, double& size) const {
    const double* k = s.exact + (size_t)j * s.features;
    double part[8] = {}, sizes[8] = {};
    int f = 0;
    if (s.distance) {
      const double sum = own_square(x, k) + s.table->offset[j];
      size = sum + 2 * std::fabs(s.table->offset[j]);
      return sum;
    }
    for (; f + 8 <= s.features; f += 8)
      for (int e = 0; e < 8; e++) {
        const double product = (double)x[f + e] * k[f + e];
        part[e] -= product;
        sizes[e] += std::fabs(product);
      }
    double sum = s.table->offset[j];
    size = std::fabs(sum);
    for (; f < s.features; f++) {
      const double product = (double)x[f] * k[f];
      sum -= product;
      size += std::fabs(product);
    }
    for (int e = 0; e < 8; e++) sum += part[e], size += sizes[e];
    return sum;
  }

  // float64 with the numbers as they are. The error of a sum of r products is below (r + 4) 2^-53 times their sizes.
  bool again(int64_t i) {
    const Real* x = row(i);
    const double share = (s.features + 6) * 0x1p-52, none = std::numeric_limits<double>::infinity();
    double best = none, error_of_best = 0, rest = none;  // rest: below the exact score of every other key
    int32_t name = 0;
    for (int32_t j = 0; j < s.table->count; j++) {
      double size;
      const double sum = exact_score(x, j, size), error = share * size + 0x1p-1000;
      if (sum < best) {
        rest = std::min(rest, best - error_of_best);
        best = sum, error_of_best = error, name = j;
      } else {
        rest = std::min(rest, sum - error);
      }
    }
    s.label[i] = name;
    return rest > best + error_of_best + s.tolerance;
  }

  double own_square(const Real* x, const double* k) const {
    double part[8] = {};
    int f = 0;
    for (; f + 8 <= s.features; f += 8)
      for (int e = 0; e < 8; e++) {
        const double gap = (double)x[f + e] - k[f + e];
        part[e] += gap * gap;
      }
    double sum = 0;
    for (; f < s.features; f++) {
      const double gap = (double)x[f] - k[f];
      sum += gap * gap;
    }
    for (int e = 0; e < 8; e++) sum += part[e];
    return sum;
  }

  void range(int64_t first, int64_t last) {
    if (s.before) {
      stand(first, last);
    } else {
      for (int64_t i = first; i < last; i += TILE) {
        all.many = (int)std::min<int64_t>(TILE, last - i);
        for (int p = 0; p < TILE; p++) all.row[p] = i + p;
        flush();
      }
    }
    flush();
  }

  double limit(int64_t i, int32_t a) const {  // below the distance to every other key
    return std::max((double)s.lower[i] - s.spread, standing[a].half) * DOWN;
  }

  // Labels that still stand, by their bounds or by their own distance, are kept; the other rows are scanned.
  void stand(int64_t first, int64_t last) {
    int64_t many = 0, left = 0;
    for (int64_t i = first; i < last; i++) {  // without branches: nobody could predict them
      const int32_t a = s.before[i];
      const float upper = s.upper[i];
      s.label[i] = a;
      open[many] = i;
      many += !((upper - s.lower[i] < standing[a].both) | (upper < standing[a].alone));
    }
    for (int64_t at = 0; at < many; at++) {
      const int64_t i = open[at];
      if (at + AHEAD < many) __builtin_prefetch(row(open[at + AHEAD]));
      const int32_t a = s.before[i];
      const double own = std::sqrt(own_square(row(i), s.exact + (size_t)a * s.features) * UP + 0x1p-1000) * UP;
      const bool stands = own < limit(i, a);
      if (stands) s.upper[i] = above(own - s.drift[a]);
      open[left] = i;
      left += !stands;
    }
    for (int64_t at = 0; at < left; at++) add(open[at]);
  }
};

// Moves drift and spread along with the keys, and says what the keys as they are now mean for rows that have them.
inline bool stand(Search& s, std::vector<Standing>& standing, Team& team) {
  const int32_t keys = s.table->count;
  double largest = 0;
  for (int32_t j = 0; j < keys; j++) {
    double square = 0;
    for (int f = 0; f < s.features; f++) {
      const double gap = s.exact[(size_t)j * s.features + f] - s.previous[(size_t)j * s.features + f];
      square += gap * gap;
    }
    const double moved = std::sqrt(square * UP) * UP + 0x1p-500;  // squares below that are lost
    s.drift[j] = (s.drift[j] + moved) * UP;
    largest = std::max(largest, moved);
  }
  s.spread = (s.spread + largest) * UP;
  standing.resize(keys);
  return team.ranges(keys, 4 * TILE, [&](int64_t first, int64_t last, int) {
    Fine fine(s.features);
    for (int64_t from = first; from < last; from += TILE) {
      const int many = (int)std::min<int64_t>(TILE, last - from);
      for (int p = 0; p < many; p++) fine.put(p, s.exact + (from + p) * s.features, s.centre, s.power);
      fine.scan(s.table->table.data(), s.table->bias.data(), padded(keys) / KEYS, many);
      for (int p = 0; p < many; p++) {
        const int64_t j = from + p;
        const double size = fine.square[p], error = s.e0 + s.e1 * std::sqrt(size * s.grow);
        const double other = fine.index[p] == j ? fine.second[p] : fine.best[p];  // not itself
        const double half = std::sqrt(std::max(0.0, other + size / s.grow - error)) * DOWN / (2 * s.power);
        // rounded so that float32 cannot err on the wrong side
        standing[j] = {half, (float)(-(s.spread + s.drift[j]) * (1 + 0x1p-20)), below(half - s.drift[j])};
      }
    }
  });
}

// What a search is carried out with, kept from one to the next.
template <class Real>
struct Searchers {
  std::vector<Standing> standing;
  std::vector<Searcher<Real>> each;
  int32_t count = 0;  // of the keys

  void start_anew(Search& s) {
    if (count != s.table->count || (int)each.size() != s.threads) each.clear(), each.reserve(s.threads);
    count = s.table->count;
    for (int t = 0; t < s.threads; t++)
      if (t < (int)each.size()) each[t].start_anew(standing.data());
      else each.emplace_back(s, standing.data());
  }
};

// Carries out a search; false when memory ran out.
template <class Real>
bool carry_out(Search& s, Searchers<Real>& room, Team& team) {
  if (s.before && !stand(s, room.standing, team)) return false;
  room.start_anew(s);
  auto& searchers = room.each;
  const int64_t even = (s.rows / (8 * (int64_t)s.threads) + TILE - 1) / TILE * TILE;  // no thread waits long for another
  const int64_t chunk = std::min(CHUNK, std::max<int64_t>(8 * TILE, even));
  const bool good = team.ranges(s.rows, chunk, [&](int64_t first, int64_t last, int who) {
    searchers[who].range(first, last);
  });
  s.scanned = s.refined = s.settled_f64 = 0;
  s.doubt.clear();
  for (Searcher<Real>& each : searchers) {
    each.flush_close();
    s.scanned += each.scanned, s.refined += each.refined, s.settled_f64 += each.settled_f64;
    s.doubt.insert(s.doubt.end(), each.doubt.begin(), each.doubt.end());
  }
  std::sort(s.doubt.begin(), s.doubt.end());
  return good;
}

}  // namespace weftc
