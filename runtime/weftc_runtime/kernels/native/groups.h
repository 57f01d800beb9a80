// Many small searches of one shape: every group of queries has keys of its own.
#pragma once

#include <memory>

#include "searcher.h"

// Group g has the rows starts[g] .. starts[g + 1] and its own keys. See library.py.
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
  double key_power;  // out: of the keys; the same for distances
  int32_t threads;
  int32_t* label;
  int64_t* doubt;
  int64_t room;
  int64_t settled_f64;
  int64_t doubtful;
};

namespace weftc {

template <class Real>
struct Grouped {
  WeftGroups& all;
  Table table{};
  Search s{};
  std::vector<double> centre, offset;
  int64_t settled_f64 = 0;
  std::vector<int64_t> doubt;
  std::unique_ptr<Searcher<Real>> searcher;

  explicit Grouped(WeftGroups& groups) : all(groups), centre(groups.features), offset(groups.count) {
    table.count = all.count, table.features = all.features, table.distance = all.distance;
    table.power = all.key_power, table.both = all.power * all.key_power;
    table.offset = offset.data(), table.centre = centre.data();
    s.stride = all.stride, s.is_double = all.is_double, s.features = all.features, s.distance = all.distance;
    s.centre = centre.data(), s.power = all.power, s.table = &table, s.threads = 1;
    s.grow = 1 + (all.features + 8) * U;
    searcher = std::make_unique<Searcher<Real>>(s, nullptr);
  }

  void run(int64_t g) {
    const int64_t first = all.starts[g], rows = all.starts[g + 1] - first;
    const Real* data = (const Real*)all.data + first * all.stride;
    for (int f = 0; f < all.features; f++) centre[f] = all.distance ? (double)(float)data[f] : 0;  // any row will do
    table.keys = all.keys + g * all.count * all.features;
    fill(table);
    const double reach = table.reach, share = (all.features + 8) * U * ROOM;  // as in finder.h
    s.data = data, s.rows = rows, s.exact = table.keys, s.label = all.label + first;
    s.e0 = (float)((all.distance ? 2 * share * reach * reach : 0) * ROOM + 0x1p-98);
    s.e1 = (float)((all.distance ? 4 : 2) * share * reach * ROOM);
    if (!(reach < 0x1p30)) s.e0 = INF;
    searcher->start_anew(nullptr);
    searcher->range(0, rows);
    searcher->flush_close();
    settled_f64 += searcher->settled_f64;
    for (int64_t i : searcher->doubt) doubt.push_back(first + i);
  }
};

template <class Real>
bool find_in_groups_as(WeftGroups& all, Team& team) {
  std::vector<std::unique_ptr<Grouped<Real>>> workers;  // searchers refer to them
  for (int t = 0; t < all.threads; t++) workers.push_back(std::make_unique<Grouped<Real>>(all));
  const bool good = team.ranges(all.groups, 8, [&](int64_t first, int64_t last, int who) {
    for (int64_t g = first; g < last; g++) workers[who]->run(g);
  });
  all.doubtful = 0;
  all.settled_f64 = 0;
  for (auto& each : workers) {
    all.settled_f64 += each->settled_f64;
    for (int64_t i : each->doubt) {
      if (all.doubtful < all.room) all.doubt[all.doubtful] = i;
      all.doubtful++;
    }
  }
  return good;
}

// Finds the best keys of all groups; false when memory ran out.
inline bool find_in_groups(WeftGroups& all, Team& team) {
  all.key_power = all.distance ? all.power : power_for(all.keys, (size_t)all.groups * all.count * all.features);
  return all.is_double ? find_in_groups_as<double>(all, team) : find_in_groups_as<float>(all, team);
}

}  // namespace weftc
