// Rounds of best keys and sums: queries choose keys, keys become the means (or sums) of the queries that chose them.
//
// Many rounds run in one call. It comes back where rows are in doubt, which the caller settles before it goes on, and
// where sums need more room.

#include "adder.h"
#include "finder.h"
#include "groups.h"

// See library.py, which has the same fields in the same order.
extern "C" struct WeftRounds {
  void* finder;           // of one problem
  WeftGroups* groups;     // of several, instead
  WeftSegments* sums;     // of the rows of the queries, or of others that go with them
  int64_t problems;
  const int64_t* starts;  // (problems + 1) the first row of each, and the end of the last
  int32_t count;          // keys of all problems
  int32_t features;
  double* keys;           // (count, features) before the first round; out: after the last
  int32_t* labels[2];     // (rows): rounds write to them in turn
  const int32_t* known;   // labels before the first round; null: none
  int32_t first;          // among equal scores the first key wins
  int32_t single;         // keys are stored in float32
  int32_t until_stable;
  int32_t threads;
  int32_t settled;        // the labels of the round under way are there
  int64_t done;           // rounds so far; out: with those of this call
  int64_t last;           // no further than this
  int64_t* doubled;       // out: (last) rows settled in float64, by round
  int64_t* ran;           // (problems) rounds of each, added to; one that has come to stand still runs no more
  uint8_t* stable;        // (problems) in and out: whether its last round changed nothing
  int32_t all_stable;     // out
  WeftFind found;         // out: of the last search
};

namespace weft {

enum Outcome { DONE, MEMORY, DOUBT, WIDER, OVERFLOWN };

// Finds the best keys; false when memory ran out.
static bool find(WeftRounds& r, int32_t* label, Team& team) {
  if (r.groups) {
    r.groups->keys = r.keys, r.groups->label = label;
    if (!find_in_groups(*r.groups, team)) return false;
    r.found.doubled = r.groups->doubled, r.found.doubtful = r.groups->doubtful, r.found.doubt = r.groups->doubt;
    return true;
  }
  r.found.keys = r.keys, r.found.count = r.count, r.found.first = r.first;
  r.found.threads = r.threads, r.found.label = label;
  return ((Finder*)r.finder)->find(r.found, team);
}

// Keys that no row chose stay; others are rounded to the storage dtype. Whether all fit; `moved` tells whose have changed.
static bool take_over(WeftRounds& r, std::vector<uint8_t>& moved) {
  const WeftSegments& s = *r.sums;
  const int64_t each = r.count / r.problems;
  moved.assign(r.problems, 0);
  for (int64_t j = 0; j < r.count; j++) {
    if (s.divide && !s.counts[j]) continue;
    for (int32_t c = 0; c < r.features; c++) {
      const size_t at = (size_t)j * r.features + c;
      double now = s.out[at] + 0.0;  // -0.0 becomes 0.0
      if (r.single) now = (double)(float)now;
      if (!std::isfinite(now)) return false;
      moved[j / each] |= now != r.keys[at];
      r.keys[at] = now;
    }
  }
  return true;
}

// Counts the round for the problems that still run, and finds those that stand still.
static bool count(WeftRounds& r, const int32_t* before, const int32_t* label, const std::vector<uint8_t>& moved) {
  bool all = true;
  for (int64_t g = 0; g < r.problems; g++) {
    if (r.stable[g]) continue;
    r.ran[g]++;
    const int64_t first = r.starts[g], rows = r.starts[g + 1] - first;
    r.stable[g] = r.until_stable && !moved[g] && before && !std::memcmp(before + first, label + first, rows * sizeof *label);
    all &= r.stable[g];
  }
  return all;
}

static Outcome run(WeftRounds& r, Team& team) {
  std::vector<uint8_t> moved;
  for (; r.done < r.last; r.done++) {
    int32_t* label = r.labels[r.done & 1];
    const int32_t* before = r.done ? r.labels[~r.done & 1] : r.known;
    if (!r.settled) {
      if (!find(r, label, team)) return MEMORY;
      r.doubled[r.done] = r.found.doubled;
      if (r.found.doubtful) return DOUBT;
    }
    r.settled = 1;
    r.sums->labels = label;
    if (!add_up(*r.sums, team)) return WIDER;
    r.sums->before = label;
    r.settled = 0;
    if (!take_over(r, moved)) return OVERFLOWN;
    r.all_stable = count(r, before, label, moved);
    if (r.all_stable) return r.done++, DONE;
  }
  return DONE;
}

}  // namespace weft

// 0: done; others see Outcome.
extern "C" int32_t weft_rounds(WeftRounds* r) {
  try {
    weft::Outcome found = weft::MEMORY;
    weft::Team::run(r->threads, [&](weft::Team& team) { found = weft::run(*r, team); });
    return found;
  } catch (const std::exception&) {
    return weft::MEMORY;
  }
}
