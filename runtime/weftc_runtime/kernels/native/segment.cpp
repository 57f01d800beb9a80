// Sums over segments, and the largest of many numbers. See adder.h.

#include "adder.h"

// Adds the rows to their sums. 0: done; 1: the numbers reach over too many orders of magnitude, or memory ran out.
extern "C" int32_t weftc_segments(WeftSegments* s) {
  try {
    bool good = false;
    weftc::Team::run(weftc::is_little(*s) ? 1 : s->threads, [&](weftc::Team& team) { good = weftc::add_up(*s, team); });
    return good ? 0 : 1;
  } catch (const std::exception&) {
    return 1;
  }
}

namespace weftc {

static inline double larger(double a, double b) { return a != a || a > b ? a : b; }  // NaN if one of them is

}  // namespace weftc

// The largest size of the numbers (rows, columns); infinite or NaN if one of them is.
extern "C" double weftc_peak(const void* data, int32_t is_double, int64_t stride, int64_t rows, int32_t columns,
                            int32_t threads) {
  std::vector<double> found(threads, 0.0);
  const int many = rows * columns < 1 << 16 ? 1 : threads;
  weftc::Team::run(many, [&](weftc::Team& team) {
    team.ranges(rows, 1 << 13, [&](int64_t first, int64_t last, int t) {
      const double most = is_double ? weftc::peak((const double*)data, stride, first, last, columns)
                                    : weftc::peak((const float*)data, stride, first, last, columns);
      found[t] = weftc::larger(most, found[t]);
    });
  });
  double most = 0;
  for (double each : found) most = weftc::larger(each, most);
  return most;
}
