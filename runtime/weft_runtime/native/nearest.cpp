// Searches for best keys: one of many queries, or many small ones of one shape. See searcher.h.

#include "searcher.h"

namespace weft {

template <class Real>
static bool search(WeftSearch& s) {
  std::vector<Standing> standing;
  if (s.before && !stand(s, standing)) return false;
  std::vector<Searcher<Real>> searchers;
  for (int t = 0; t < s.threads; t++) searchers.emplace_back(s, standing.data());
  const int64_t even = (s.rows / (8 * (int64_t)s.threads) + TILE - 1) / TILE * TILE;  // no thread waits long for another
  const int64_t chunk = std::min(CHUNK, std::max<int64_t>(8 * TILE, even));
  const bool good = share(s.rows, chunk, s.threads, [&](int64_t first, int64_t last, int t) {
    searchers[t].range(first, last);
  });
  s.scanned = s.refined = s.doubled = s.doubtful = 0;
  for (auto& each : searchers) {
    each.flush_close();
    s.scanned += each.scanned, s.refined += each.refined, s.doubled += each.doubled;
    for (int64_t i : each.doubt) {
      if (s.doubtful < s.room) s.doubt[s.doubtful] = i;
      s.doubtful++;
    }
  }
  return good;
}

}  // namespace weft

// Many small searches of one shape: group g has the rows starts[g] .. starts[g + 1] and its own keys. See search_groups.py.
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
    Searcher<Real> searcher(s, nullptr);
    searcher.range(0, rows);
    searcher.flush_close();
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
