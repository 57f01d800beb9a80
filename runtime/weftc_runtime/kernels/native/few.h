// The keys among which the few best of every query are: a look in float32 that leaves out those that cannot be.
//
// Scores are to be minimised and have the bounds of finder.h. A key whose score is above that of the last of the best seen
// so far by more than twice the error is none of the best; all others, and NaN, are left to who asks.
#pragma once

#include "table.h"

namespace weftc {

class FewBest {
 public:
  // keys (count, features) and queries (rows, features), as they are; scores are distances, or inner products turned around.
  FewBest(const double* keys, int32_t count, const double* queries, int64_t rows, int32_t features, bool distance);

  bool good() const { return table_.reach < 0x1p30; }

  // For the queries from `first` on, at most TILE of them: the keys that may be one of the `wanted` best, in order.
  void look(int64_t first, int many, size_t wanted, std::vector<std::vector<int32_t>>& out) const;

 private:
  struct Looking;

  const double* queries_;
  std::vector<double> centre_, offset_;
  double power_, e0_, e1_;
  Table table_{};
};

}  // namespace weftc
