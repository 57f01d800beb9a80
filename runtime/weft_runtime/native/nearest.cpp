// The best key of every query, with a certificate, and bounds that save most of the work when keys move a little.
//
// A score to be minimised is v[j] = bias[j] + sum_f x[f] w[f, j] in float32, x the centred and scaled features of a query.
// A row is certain when the second best is behind by more than  e0 + e1 |x|  (twice the error of v, from the caller).
// Rows in doubt are tried once more in float64 with exact features, where the caller gives the keys for it; what is left
// is the caller's. No number is trusted beyond its bound: comparisons are written so that NaN means doubt.
//
// Bounds (distances only): upper >= |x - best key|, lower <= |x - any other key|, in the units of the data. Keys that have
// moved since are accounted for by `drift` (per key, total path since the start) and `spread` (sum of the largest moves):
// the stored numbers are upper - drift and lower + spread at the time they were made, so that rows need not be touched.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "threads.h"
#include "vectors.h"

namespace weft {

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr double UP = 1 + 0x1p-40, DOWN = 1 - 0x1p-40;
constexpr int64_t CHUNK = 4096, AHEAD = 8;

static inline float above(double x) { return (float)(x + std::fabs(x) * 0x1p-22 + 0x1p-120); }
static inline float below(double x) { return (float)(x - std::fabs(x) * 0x1p-22 - 0x1p-120); }

}  // namespace weft

// Keys made ready for a search; see search.py, which has the same fields in the same order.
extern "C" struct WeftTable {
  const double* keys;    // (count, features)
  const double* offset;  // (count) what the score adds for features that all queries share
  const double* centre;  // (features)
  int32_t count;
  int32_t features;
  int32_t distance;     // 1: distances, 0: inner products
  double power;         // of the keys
  double both;          // power of the keys times power of the queries
  float* table;         // out: blocks of KEYS keys (blocks, features, KEYS)
  float* bias;          // out: (blocks * KEYS), +infinity for keys that are not there
  double reach;         // out: the length of the longest key, centred and scaled
  double most;          // out: the largest offset, scaled
  double peak;          // out: the largest number in keys and offset
  int32_t whole;        // out: all of them are whole numbers
};

// Everything one search needs; see search.py.
extern "C" struct WeftSearch {
  const void* data;  // (rows, features) as stored
  int64_t stride;    // numbers from row to row
  int64_t rows;
  int32_t is_double;
  int32_t features;
  const double* centre;  // (features)
  double power;          // features are multiplied by this power of two
  const float* table;
  const float* bias;
  int32_t keys;
  int32_t ties;          // 1: equal scores are exact, and the first key wins
  float e0, e1;          // a lead must be larger than this
  int32_t distance;
  int32_t threads;
  const double* exact;   // (keys, features) the keys as they are, for float64; null: leave doubt to the caller
  const double* offset;  // (keys) what the exact score adds to the products or squares
  double tolerance;      // a lead in exact scores that counts as none
  double grow;           // |x|^2 as computed is right up to this factor
  // bounds; null where none are kept
  float* upper;
  float* lower;
  const int32_t* before;  // the label each row has; null: every row is scanned
  const double* drift;    // (keys)
  const double* half;     // (keys) half the distance to the nearest other key, or less
  double spread;
  int32_t* label;    // out
  int64_t* doubt;    // out: the rows of which nothing is proved, as many as there is room for
  int64_t room;
  int64_t scanned;   // out: rows whose scores were computed
  int64_t doubled;   // out: rows settled in float64
  int64_t doubtful;  // out: rows of which nothing is proved
};

namespace weft {

template <class Real>
struct Searcher {
  WeftSearch& s;
  const Real* data;
  int wide;  // features, rounded up to a multiple of 4
  std::vector<float> rows, tile;
  float best[TILE], second[TILE], square[TILE];
  int32_t index[TILE];
  int64_t pending[TILE];
  int waiting = 0;
  int64_t scanned = 0, doubled = 0;
  int blocks;
  std::vector<int64_t> doubt, open;

  explicit Searcher(WeftSearch& search)
      : s(search), data((const Real*)search.data), wide((search.features + 3) / 4 * 4), rows(TILE * (size_t)wide),
        tile(TILE * (size_t)wide), blocks((search.keys + KEYS - 1) / KEYS), open(search.before ? CHUNK + 1 : 0) {}

  const Real* row(int64_t i) const { return data + i * s.stride; }

  void add(int64_t i) {
    pending[waiting++] = i;
    if (waiting == TILE) flush();
  }

  void flush() {
    if (!waiting) return;
    scanned += waiting;
    gather();
    scan();
    decide();
    waiting = 0;
  }

  float feature(const Real* x, int f) const {  // one rounding: of the difference
    if (sizeof(Real) == 4) return (float)(x[f] - (Real)s.centre[f]) * (float)s.power;
    return (float)(((double)x[f] - s.centre[f]) * s.power);
  }

  void gather() {
    if (s.features < 4) {
      for (int p = 0; p < waiting; p++)
        for (int f = 0; f < s.features; f++) tile[(size_t)f * TILE + p] = feature(row(pending[p]), f);
    } else {
      for (int p = 0; p < waiting; p++) {
        const Real* x = row(pending[p]);
        float* out = rows.data() + (size_t)p * wide;
        for (int f = 0; f < s.features; f++) out[f] = feature(x, f);
      }
      transpose(rows.data(), wide, tile.data());
    }
    for (int p = 0; p < TILE; p += W) {
      Floats sum{};
      for (int f = 0; f < s.features; f++) {
        Floats x = load(&tile[(size_t)f * TILE + p]);
        sum += x * x;
      }
      store(square + p, sum);
      store(best + p, every(INF));
      store(second + p, every(INF));
      store(index + p, every((int32_t)0));
    }
  }

  void scan() {
    const int used = (waiting + W * POINTS - 1) / (W * POINTS) * (W * POINTS);
    for (int b = 0; b < blocks; b++) {
      const float* w = s.table + (size_t)b * s.features * KEYS;
      for (int p = 0; p < used; p += W * POINTS) block(w, s.bias + (size_t)b * KEYS, b * KEYS, p);
    }
  }

  void block(const float* w, const float* bias, int32_t first, int p) {
    Floats sum[KEYS][POINTS];
#pragma GCC unroll 8
    for (int j = 0; j < KEYS; j++)
#pragma GCC unroll 8
      for (int q = 0; q < POINTS; q++) sum[j][q] = every(bias[j]);
    const float* x = tile.data() + p;
    for (int f = 0; f < s.features; f++, x += TILE, w += KEYS) {
      Floats v[POINTS];
#pragma GCC unroll 8
      for (int q = 0; q < POINTS; q++) v[q] = load(x + q * W);
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        Floats k = every(w[j]);
#pragma GCC unroll 8
        for (int q = 0; q < POINTS; q++) sum[j][q] += v[q] * k;
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < POINTS; q++) {
      const int at = p + q * W;
      Floats one = load(best + at), two = load(second + at);
      Ints name = load(index + at);
#pragma GCC unroll 8
      for (int j = 0; j < KEYS; j++) {
        Floats v = sum[j][q];
        Ints less = v < one;
        two = least(two, most(v, one));
        one = least(v, one);
        name = less ? every(first + j) : name;
      }
      store(best + at, one);
      store(second + at, two);
      store(index + at, name);
    }
  }

  void decide() {
    const float grow = (float)s.grow;
    float needed[TILE];
    int32_t unsure[TILE];
    for (int p = 0; p < TILE; p++) {
      needed[p] = s.e0 + s.e1 * std::sqrt(square[p] * grow);
      const float lead = second[p] - best[p];
      unsure[p] = s.ties ? !(lead >= 0) : !(lead > needed[p]);
    }
    int32_t any = 0;
    for (int p = 0; p < waiting; p++) any |= unsure[p];
    const int64_t first = pending[0];
    if (pending[waiting - 1] - first == waiting - 1) {
      std::memcpy(s.label + first, index, waiting * sizeof(int32_t));
    } else {
      for (int p = 0; p < waiting; p++) s.label[pending[p]] = index[p];
    }
    if (s.upper) remember(needed);
    if (any)
      for (int p = 0; p < waiting; p++)
        if (unsure[p]) settle(pending[p]);
  }

  void settle(int64_t i) {
    if (s.exact && again(i)) doubled++;
    else doubt.push_back(i);
    if (s.upper) s.upper[i] = INF, s.lower[i] = -INF;
  }

  void remember(const float* needed) {
    double near[TILE], far[TILE];
    const double unit = 1 / s.power;
    for (int p = 0; p < TILE; p++) {
      const double size = square[p], error = needed[p];
      near[p] = std::sqrt(std::max(0.0, best[p] + size * s.grow + error)) * unit * UP;
      far[p] = std::sqrt(std::max(0.0, second[p] + size / s.grow - error)) * unit * DOWN;
    }
    for (int p = 0; p < waiting; p++) {
      s.upper[pending[p]] = above(near[p] - s.drift[index[p]]);
      s.lower[pending[p]] = below(far[p] + s.spread);
    }
  }

  // float64 with the numbers as they are. The error of a sum of r products is below (r + 4) 2^-53 times their sizes.
  bool again(int64_t i) {
    const Real* x = row(i);
    const double share = (s.features + 6) * 0x1p-52;
    double one = std::numeric_limits<double>::infinity(), doubt_one = 0;
    double rest = one;  // below the exact score of every other key
    int32_t name = 0;
    for (int32_t j = 0; j < s.keys; j++) {
      const double* k = s.exact + (size_t)j * s.features;
      double sum = s.offset[j], size = std::fabs(sum);
      if (s.distance) {
        for (int f = 0; f < s.features; f++) {
          const double gap = (double)x[f] - k[f];
          sum += gap * gap;
        }
        size += sum;
      } else {
        for (int f = 0; f < s.features; f++) {
          const double product = (double)x[f] * k[f];
          sum -= product;
          size += std::fabs(product);
        }
      }
      const double error = share * size + 0x1p-1000;
      if (sum < one) {
        rest = std::min(rest, one - doubt_one);
        one = sum, doubt_one = error, name = j;
      } else {
        rest = std::min(rest, sum - error);
      }
    }
    s.label[i] = name;
    return rest > one + doubt_one + s.tolerance;
  }

  double own_square(const Real* x, const double* k) const {
    double part[8] = {0, 0, 0, 0, 0, 0, 0, 0};
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
      for (int64_t i = first; i < last; i++) add(i);
    }
    flush();
  }

  double limit(int64_t i, int32_t a) const {  // below the distance to every other key
    return std::max((double)s.lower[i] - s.spread, s.half[a]) * DOWN;
  }

  // Labels that still stand, by their bounds or by their own distance, are kept; the other rows are scanned.
  void stand(int64_t first, int64_t last) {
    int64_t many = 0, left = 0;
    for (int64_t i = first; i < last; i++) {  // without branches: nobody could predict them
      const int32_t a = s.before[i];
      s.label[i] = a;
      open[many] = i;
      many += !(((double)s.upper[i] + s.drift[a]) * UP < limit(i, a));
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

template <class Real>
static bool search(WeftSearch& s) {
  std::vector<Searcher<Real>> searchers;
  for (int t = 0; t < s.threads; t++) searchers.emplace_back(s);
  const bool good = share(s.rows, CHUNK, s.threads, [&](int64_t first, int64_t last, int t) {
    searchers[t].range(first, last);
  });
  s.scanned = s.doubled = s.doubtful = 0;
  for (auto& each : searchers) {
    s.scanned += each.scanned, s.doubled += each.doubled;
    for (int64_t i : each.doubt) {
      if (s.doubtful < s.room) s.doubt[s.doubtful] = i;
      s.doubtful++;
    }
  }
  return good;
}

static void fill(WeftTable& t) {
  t.reach = t.most = t.peak = 0;
  t.whole = 1;
  const int padded = (t.count + KEYS - 1) / KEYS * KEYS;
  for (int j = 0; j < padded; j++) {
    float* out = t.table + (size_t)(j / KEYS) * t.features * KEYS + j % KEYS;
    if (j >= t.count) {
      t.bias[j] = INF;
      for (int f = 0; f < t.features; f++) out[(size_t)f * KEYS] = 0;
      continue;
    }
    const double* key = t.keys + (size_t)j * t.features;
    double square = 0;
    for (int f = 0; f < t.features; f++) {
      const double number = (t.distance ? key[f] - t.centre[f] : key[f]) * t.power;
      out[(size_t)f * KEYS] = (float)number * (t.distance ? -2 : -1);
      square += number * number;
      t.peak = std::max(t.peak, std::fabs(key[f]));
      t.whole &= key[f] == std::nearbyint(key[f]);
    }
    t.bias[j] = (float)(t.offset[j] * t.both + (t.distance ? square : 0));
    t.reach = std::max(t.reach, square);
    t.most = std::max(t.most, std::fabs(t.offset[j]));
    t.whole &= t.offset[j] == std::nearbyint(t.offset[j]);
  }
  t.peak = std::max(t.peak, t.most);
  t.reach = std::sqrt(t.reach);
  t.most *= t.both;
}

}  // namespace weft

// Many small searches of one shape: group g has the rows starts[g] .. starts[g + 1] and its own keys. See groups.py.
extern "C" struct WeftGroups {
  const void* data;
  int64_t stride;
  int32_t is_double;
  int32_t features;
  int64_t groups;
  const int64_t* starts;  // (groups + 1)
  const double* keys;     // (groups, count, features)
  int32_t count;
  int32_t distance;
  double power;      // of the data
  double key_power;  // of the keys; the same for distances
  int32_t threads;
  int32_t* label;
  int64_t* doubt;
  int64_t room;
  int64_t doubled;
  int64_t doubtful;
};

namespace weft {

constexpr double U = 0x1p-24, ROOM = 1 + 0x1p-10;  // as in search.py

template <class Real>
struct Grouped {
  WeftGroups& all;
  std::vector<float> table, bias;
  std::vector<double> centre, offset;
  std::vector<int64_t> doubt;
  int64_t doubled = 0;

  explicit Grouped(WeftGroups& groups)
      : all(groups), bias((groups.count + KEYS - 1) / KEYS * KEYS), centre(groups.features), offset(groups.count) {
    table.resize(bias.size() * groups.features);
  }

  void run(int64_t g) {
    const int64_t first = all.starts[g], rows = all.starts[g + 1] - first;
    const Real* data = (const Real*)all.data + first * all.stride;
    for (int f = 0; f < all.features; f++) centre[f] = all.distance ? (double)(float)data[f] : 0;  // any row will do
    const double* keys = all.keys + g * all.count * all.features;
    WeftTable made{};
    made.keys = keys, made.offset = offset.data(), made.centre = centre.data();
    made.count = all.count, made.features = all.features, made.distance = all.distance;
    made.power = all.key_power, made.both = all.power * all.key_power;
    made.table = table.data(), made.bias = bias.data();
    fill(made);
    const double reach = made.reach * ROOM + 0x1p-60, share = (all.features + 8) * U * ROOM;
    WeftSearch s{};
    s.data = data, s.stride = all.stride, s.rows = rows, s.is_double = all.is_double, s.features = all.features;
    s.centre = centre.data(), s.power = all.power, s.table = table.data(), s.bias = bias.data();
    s.keys = all.count, s.distance = all.distance, s.threads = 1;
    s.e0 = (float)((all.distance ? 2 * share * reach * reach : 0) * ROOM + 0x1p-98);
    s.e1 = (float)((all.distance ? 4 : 2) * share * reach * ROOM);
    if (!(reach < 0x1p30)) s.e0 = INF;
    s.exact = keys, s.offset = offset.data(), s.grow = 1 + (all.features + 8) * U;
    s.label = all.label + first;
    Searcher<Real> searcher(s);
    searcher.range(0, rows);
    doubled += searcher.doubled;
    for (int64_t i : searcher.doubt) doubt.push_back(first + i);
  }
};

template <class Real>
static bool grouped(WeftGroups& all) {
  std::vector<Grouped<Real>> workers;
  for (int t = 0; t < all.threads; t++) workers.emplace_back(all);
  const bool good = share(all.groups, 8, all.threads, [&](int64_t first, int64_t last, int t) {
    for (int64_t g = first; g < last; g++) workers[t].run(g);
  });
  all.doubled = all.doubtful = 0;
  for (auto& each : workers) {
    all.doubled += each.doubled;
    for (int64_t i : each.doubt) {
      if (all.doubtful < all.room) all.doubt[all.doubtful] = i;
      all.doubtful++;
    }
  }
  return good;
}

}  // namespace weft

extern "C" int32_t weft_nearest_groups(WeftGroups* all) {
  try {
    return (all->is_double ? weft::grouped<double>(*all) : weft::grouped<float>(*all)) ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

extern "C" int32_t weft_block_keys() { return weft::KEYS; }

extern "C" void weft_table(WeftTable* table) { weft::fill(*table); }

extern "C" int32_t weft_nearest(WeftSearch* s) {
  try {
    return (s->is_double ? weft::search<double>(*s) : weft::search<float>(*s)) ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}
