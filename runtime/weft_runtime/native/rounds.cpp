// Rounds of best keys and sums: queries choose keys, keys become the means (or sums) of the queries that chose them.
//
// Many rounds run in one call. It comes back where rows are in doubt, which the caller settles before it goes on, and
// where sums need more room.

#include "adder.h"
#include "finder.h"

// See library.py, which has the same fields in the same order.
extern "C" struct WeftRounds {
  void* finder;
  WeftSegments* sums;     // of the rows of the queries, or of others that go with them
  int32_t count;          // keys
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
  int32_t stable;         // out: the last round changed nothing
  WeftFind found;         // out: of the last search
};

namespace weft {

enum Outcome { DONE, MEMORY, DOUBT, WIDER, OVERFLOWN };

// Keys that no row chose stay; others are rounded to the storage dtype. Whether all fit, and whether one has changed.
static bool take_over(WeftRounds& r, bool& changed) {
  const WeftSegments& s = *r.sums;
  changed = false;
  for (int32_t j = 0; j < r.count; j++) {
    if (s.divide && !s.counts[j]) continue;
    for (int32_t c = 0; c < r.features; c++) {
      const size_t at = (size_t)j * r.features + c;
      double now = s.out[at] + 0.0;  // -0.0 becomes 0.0
      if (r.single) now = (double)(float)now;
      if (!std::isfinite(now)) return false;
      changed |= now != r.keys[at];
      r.keys[at] = now;
    }
  }
  return true;
}

static Outcome run(WeftRounds& r, Team& team) {
  Finder& finder = *(Finder*)r.finder;
  const int64_t rows = finder.rows();
  for (; r.done < r.last; r.done++) {
    int32_t* label = r.labels[r.done & 1];
    const int32_t* before = r.done ? r.labels[~r.done & 1] : r.known;
    if (!r.settled) {
      r.found.keys = r.keys, r.found.count = r.count, r.found.first = r.first;
      r.found.threads = r.threads, r.found.label = label;
      if (!finder.find(r.found, team)) return MEMORY;
      r.doubled[r.done] = r.found.doubled;
      if (r.found.doubtful) return DOUBT;
    }
    r.settled = 1;
    r.sums->labels = label;
    if (!add_up(*r.sums, team)) return WIDER;
    r.sums->before = label;
    r.settled = 0;
    bool changed;
    if (!take_over(r, changed)) return OVERFLOWN;
    r.stable = r.until_stable && !changed && before && !std::memcmp(before, label, rows * sizeof *label);
    if (r.stable) return r.done++, DONE;
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
