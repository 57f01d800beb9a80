// See few.h.

#include "few.h"

#include "searcher.h"

namespace weftc {

FewBest::FewBest(const double* keys, int32_t count, const double* queries, int64_t rows, int32_t features, bool distance)
    : queries_(queries), centre_(features), offset_(count) {
  for (int32_t j = 0; distance && j < count; j++)
    for (int32_t f = 0; f < features; f++) centre_[f] += keys[(size_t)j * features + f] / count;
  power_ = power_for(queries, (size_t)rows * features);
  if (distance) power_ = std::min(power_, power_for(keys, (size_t)count * features)) / 2;  // the centre taken off, too
  table_.keys = keys, table_.offset = offset_.data(), table_.centre = centre_.data();
  table_.count = count, table_.features = features, table_.distance = distance;
  table_.power = distance ? power_ : power_for(keys, (size_t)count * features), table_.both = table_.power * power_;
  fill(table_);
  const double share = (features + 8) * U * ROOM, reach = table_.reach;
  e0_ = 2 * share * (distance ? reach * reach : 0) + 0x1p-98, e1_ = (distance ? 4 : 2) * share * reach;
}

struct FewBest::Looking {
  const FewBest& all;
  size_t wanted;
  Fine fine;
  double margin[TILE];
  alignas(64) float limit[TILE];  // no key of the best has a larger score
  std::vector<std::vector<std::pair<int32_t, float>>> found{TILE};
  std::vector<std::vector<float>> best{TILE};  // the smallest scores, in order

  Looking(const FewBest& all, size_t wanted) : all(all), wanted(wanted), fine(all.table_.features) {}

  void add(int p, int32_t key, float score) {
    if (key >= all.table_.count) return;
    found[p].push_back({key, score});
    std::vector<float>& mine = best[p];
    if (mine.size() == wanted && !(score < mine.back())) return;
    if (!(score - score == 0)) return;
    if (mine.size() == wanted) mine.pop_back();
    mine.insert(std::upper_bound(mine.begin(), mine.end(), score), score);
    if (mine.size() == wanted) limit[p] = above(mine.back() + margin[p]);
  }
};

void FewBest::look(int64_t first, int many, size_t wanted, std::vector<std::vector<int32_t>>& out) const {
  Looking now(*this, wanted);
  for (int p = 0; p < many; p++) now.fine.put(p, queries_ + (first + p) * table_.features, centre_.data(), power_);
  now.fine.begin(many);
  const double grow = 1 + (table_.features + 8) * U;
  for (int p = 0; p < TILE; p++) {
    now.margin[p] = (e0_ + e1_ * std::sqrt(now.fine.square[p] * grow)) * ROOM;
    now.limit[p] = p < many ? INF : -INF;
  }
  const int blocks = padded(table_.count) / KEYS;
  for (int b = 0; b < blocks; b++)
    for (int p = 0; p < many; p += W * POINTS)
      now.fine.below(table_.table.data() + (size_t)b * table_.features * KEYS, table_.bias.data() + (size_t)b * KEYS, p,
                     now.limit, [&](int j, int lane, float score) { now.add(lane, b * KEYS + j, score); });
  out.resize(many);
  for (int p = 0; p < many; p++) {
    out[p].clear();
    for (const auto& [key, score] : now.found[p])
      if (!(score > now.limit[p])) out[p].push_back(key);
  }
}

}  // namespace weftc
