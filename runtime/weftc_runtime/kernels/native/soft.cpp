// Soft heads: weights of all keys, and sums of values with them, in float64.
//
// 64 tokens of one side are looked at together, one to a lane; those of the other side come one by one. Scores of
// distances are sums of squared differences. Exponentials are taken relative to a reference that is raised only where a
// score is far above it. Sums are added over runs of at most 32 terms, and beyond with their errors, so that these do not
// grow with the number of keys; they are cut by that number alone: the same bits for any threads.

#include "soft.h"

namespace weftc {

namespace {

constexpr double HIGH = 16;  // how far a score may be above the reference
constexpr int RUN = 32;
constexpr int64_t LITTLE_ROOM = 1 << 20;  // bytes that tiles of all tokens may take

// Sums over keys, 64 of them to a block, of one query: relative to a reference.
template <bool Single>
struct Adding {
  double peak = NONE;  // the reference; of a number that is the largest, that
  bool signs = false;
  Exactly mass;
  Exactly* sum = nullptr;
  int32_t sums = 0;

  void block(const Head& head, Eight* s, const Lane* values, int many, int64_t skip, int64_t column) {
    alignas(64) double lanes[LANES];
    const bool relative = head.kind == SOFTMAX || head.kind == LSE || head.kind == BEST;
    if (many < LANES || skip >= 0) {
      std::memcpy(lanes, s, sizeof lanes);
      const double nothing = relative || head.kind == EXPONENTIAL ? NONE : 0.0;
      for (int e = many; e < LANES; e++) lanes[e] = nothing;
      if (skip >= 0 && skip < many) lanes[skip] = nothing;
      std::memcpy((void*)s, lanes, sizeof lanes);
    }
    if (relative) {
      Eight most = s[0];
      for (int i = 1; i < EIGHTS; i++) most = larger(most, s[i]);
      const double top = largest(most);
      if (top == NONE) return;
      if (head.kind == BEST) {
        peak = std::max(peak, top);
        return;
      }
      if (!(top <= peak + HIGH)) {
        if (peak != NONE) rescale(std::exp(peak - top));
        peak = top;
      }
      for (int i = 0; i < EIGHTS; i++) s[i] = exps<Single>(s[i] - peak);
    } else if (head.kind == EXPONENTIAL) {
      for (int i = 0; i < EIGHTS; i++) s[i] = exps<Single>(s[i]);
    }
    if (head.kind == NORMALIZE) signs = signs || negative(s);
    if (head.kind != EXPONENTIAL && head.kind != SUM) {
      Eight total = s[0];
      for (int i = 1; i < EIGHTS; i++) total += s[i];
      mass.add(total);
    }
    for (int32_t w = 0; w < sums; w++) {
      const Eight* v = values[head.diagonal ? column : (int64_t)w].eights();
      Eight total = s[0] * v[0];
      for (int i = 1; i < EIGHTS; i++) total += s[i] * v[i];
      sum[w].add(total);
    }
  }

  void rescale(double by) {
    mass.scale(by);
    for (int32_t w = 0; w < sums; w++) sum[w].scale(by);
  }
};

struct Partial {  // of some keys, for one query
  double peak;
  bool signs;
  Two mass;
  Two* sum;

  // `to`: room for its sums.
  template <bool Single>
  void take(const Adding<Single>& from, Two* to) {
    peak = from.peak, signs = from.signs, sum = to, mass = Two{};
    mass.add(from.mass, 1.0);
    for (int32_t w = 0; w < from.sums; w++) sum[w] = Two{}, sum[w].add(from.sum[w], 1.0);
  }
};

// Sums that start at nothing, for each of many queries.
template <bool Single>
struct Addings {
  static constexpr int EACH = sizeof(Lane) / sizeof(Exactly);
  Lanes own, room;
  Adding<Single>* of;

  Addings(Worker& worker, const Head& head, int64_t queries)
      : own(worker, (queries * sizeof(Adding<Single>) + sizeof(Lane) - 1) / sizeof(Lane)),
        room(worker, (queries * head.sums() + EACH - 1) / EACH), of((Adding<Single>*)own.data()) {
    std::fill(room.begin(), room.end(), Lane{});
    for (int64_t q = 0; q < queries; q++) {
      new (of + q) Adding<Single>{};
      of[q].sum = (Exactly*)room.data() + q * head.sums(), of[q].sums = head.sums();
    }
  }
};

void merge(const Head& head, const std::vector<Partial*>& parts, Total& out) {
  out.peak = NONE, out.signs = false;
  for (const Partial* part : parts) out.peak = std::max(out.peak, part->peak), out.signs = out.signs || part->signs;
  out.sum.assign(head.sums(), 0.0);
  const bool relative = head.kind == SOFTMAX || head.kind == LSE;
  const auto total = [&](auto of) {
    Two sum;
    for (const Partial* part : parts) {
      if (relative && part->peak == NONE) continue;
      const double by = relative && part->peak != out.peak ? std::exp(part->peak - out.peak) : 1.0;
      const Two& more = of(*part);
      sum.add(more.high * by), sum.low += more.low * by;
    }
    return sum.sum();
  };
  out.mass = total([](const Partial& part) -> const Two& { return part.mass; });
  for (int32_t w = 0; w < head.sums(); w++) out.sum[w] = total([&](const Partial& part) -> const Two& { return part.sum[w]; });
}

// What heads work with; used again.
struct SoftRoom : Memory {
  std::vector<Side> sides;  // by head
  std::vector<std::vector<Partial>> found;
  std::vector<std::vector<Two>> sums;
  std::vector<double> values, scores, own;
  std::vector<Partial*> parts;
  Total total;
};

// Heads over all keys.
struct Sums {
  const std::vector<Head>& heads;
  int32_t number;  // of the instruction

  template <bool Single>
  bool run(Problem& problem, Team& team) const {
    const Head& first = heads[0];
    const int64_t queries = rows_of(problem, first.query, first.once), keys = problem.tokens[first.keys];
    const bool diagonal = std::any_of(heads.begin(), heads.end(), [](const Head& head) { return head.diagonal; });
    if (keys > queries || diagonal || lazy(problem)) return by_keys<Single>(problem, team, queries, keys);
    bool good = true;
    for (const Head& head : heads) good = good && by_queries<Single>(problem, team, head, queries, keys);
    return good;
  }

  // Whether keys hold what is made block by block.
  bool lazy(const Problem& problem) const {
    const auto made = [&](const Rows& rows) {
      return std::any_of(rows.terms.begin(), rows.terms.end(),
                         [&](const Term& term) { return problem.type(term.slot).kind == LAZY; });
    };
    for (const Head& head : heads) {
      if (made(head.value)) return true;
      for (const Part& part : head.score.parts)
        if (made(part.keys)) return true;
    }
    return false;
  }

  // ---------------------------------------------------------------- one key to a lane
  template <bool Single>
  struct OfHead {
    Lanes lanes, values;
    Addings<Single> adding;

    OfHead(Worker& worker, const Head& head, int64_t queries)
        : lanes(worker, head.score.features), values(worker, head.value.count()), adding(worker, head, queries) {}
  };

  template <bool Single>
  bool by_keys(Problem& problem, Team& team, int64_t queries, int64_t keys) const {
    const int64_t each = std::max<int64_t>(4096, (keys / 32 + LANES) / LANES * LANES), parts = (keys + each - 1) / each;
    SoftRoom& room = problem.worker(0).room<SoftRoom>(number);
    auto &sides = room.sides;
    auto &found = room.found;
    auto &sums = room.sums;
    sides.resize(heads.size()), found.resize(heads.size()), sums.resize(heads.size()), room.parts.resize(parts);
    for (size_t h = 0; h < heads.size(); h++) {
      problem.side(problem.worker(0), heads[h].score, true, queries, sides[h]);
      sides[h].largest = largest_size(sides[h].number.data(), (int64_t)sides[h].number.size());
      found[h].resize(parts * queries), sums[h].resize(parts * queries * heads[h].sums());
    }
    const uint64_t base = problem.serial;
    problem.serial += keys;
    std::atomic<bool> good{true};
    const bool whole = team.ranges(keys, each, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      std::vector<OfHead<Single>> own;
      own.reserve(heads.size());
      for (const Head& head : heads) own.emplace_back(worker, head, queries);
      for (int64_t at = first; at < last; at += LANES) {
        Block block = problem.block(at, last);
        block.serial = base + 1 + at;
        for (size_t h = 0; h < heads.size(); h++) {
          const Head& head = heads[h];
          const Lane* lanes = problem.features_at(worker, block, head.score, false, own[h].lanes.data());
          const Lane* values = problem.rows_at(worker, block, head.value, own[h].values.data());
          if (!in_range(head.score, lanes, block.many, sides[h].largest)) good = false;
          const Scorer scorer{head.score, sides[h], true};
          for (int64_t q = 0; q < queries; q++) {
            Eight s[EIGHTS];
            scorer(q, lanes, s);
            own[h].adding.of[q].block(head, s, values, block.many, head.other ? q - at : -1, q);
          }
        }
      }
      for (size_t h = 0; h < heads.size(); h++)
        for (int64_t q = 0; q < queries; q++) {
          const int64_t place = first / each * queries + q;
          found[h][place].take(own[h].adding.of[q], sums[h].data() + place * heads[h].sums());
        }
    });
    if (!whole || !good) return false;
    for (size_t h = 0; h < heads.size(); h++) {
      const Head& head = heads[h];
      std::vector<double>& out = problem.outs[head.out];
      out.assign(queries * head.writes, 0.0);
      if (head.own_competes) problem.numbers(problem.worker(0), head.own_score, queries, room.scores);
      if (head.own_competes || head.own_last) problem.numbers(problem.worker(0), head.own_value, queries, room.own);
      std::vector<Partial*>& some = room.parts;
      Total& total = room.total;
      for (int64_t q = 0; q < queries; q++) {
        for (int64_t p = 0; p < parts; p++) some[p] = &found[h][p * queries + q];
        merge(head, some, total);
        double* to = out.data() + q * head.writes + (head.diagonal ? q : 0);
        if (!finish(head, total, room.scores.data() + q, room.own.data() + q * head.writes, to)) return false;
      }
    }
    return true;
  }

  // ---------------------------------------------------------------- one query to a lane
  template <bool Single>
  bool by_queries(Problem& problem, Team& team, const Head& head, int64_t queries, int64_t keys) const {
    SoftRoom& room = problem.worker(0).room<SoftRoom>(number);
    room.sides.resize(heads.size());
    Side& side = room.sides[0];
    std::vector<double>&values = room.values, &scores = room.scores, &own = room.own;
    problem.side(problem.worker(0), head.score, false, keys, side);
    side.largest = largest_size(side.number.data(), (int64_t)side.number.size());
    if (!head.number) problem.numbers(problem.worker(0), head.value, keys, values);
    if (head.own_competes) problem.numbers(problem.worker(0), head.own_score, queries, scores);
    if (head.own_competes || head.own_last) problem.numbers(problem.worker(0), head.own_value, queries, own);
    std::vector<double>& out = problem.outs[head.out];
    out.assign(queries * head.writes, 0.0);
    std::atomic<bool> good{true};
    const int64_t each = keys * LANES > 1 << 16 ? LANES : 16 * LANES;
    const bool whole = team.ranges(queries, each, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      Lanes lanes(worker, head.score.features);
      std::vector<Exactly> sum(EIGHTS * (head.sums() + 1));
      std::vector<Eight> part(EIGHTS * (head.sums() + 1));
      bool signs;
      Total total;
      for (int64_t at = first; at < last; at += LANES) {
        const Block block = problem.block(at, last);
        problem.features(worker, block, head.score, true, lanes.data());
        if (!in_range(head.score, lanes.data(), block.many, side.largest)) good = false;
        Eight peak[EIGHTS];
        for (int i = 0; i < EIGHTS; i++) peak[i] = every(NONE);
        std::fill(sum.begin(), sum.end(), Exactly{});
        signs = false;
        for (int64_t from = 0; from < keys; from += RUN)
          some<Single>(head, side, values, lanes.data(), at, from, std::min(keys, from + RUN), peak, sum, part, signs);
        for (int e = 0; e < block.many; e++) {
          const auto of = [&](int w) { return sum[w * EIGHTS + e / 8].high[e % 8] + sum[w * EIGHTS + e / 8].low[e % 8]; };
          total.peak = peak[e / 8][e % 8], total.mass = of(0), total.signs = signs;
          total.sum.resize(head.sums());
          for (int32_t w = 0; w < head.sums(); w++) total.sum[w] = of(w + 1);
          const int64_t q = at + e;
          if (!finish(head, total, scores.data() + q, own.data() + q * head.writes, out.data() + q * head.writes)) good = false;
        }
      }
    });
    return whole && good;
  }

  // Adds a run of keys to the sums of 64 queries.
  template <bool Single>
  static void some(const Head& head, const Side& side, const std::vector<double>& values, const Lane* lanes, int64_t at,
                   int64_t from, int64_t to, Eight* peak, std::vector<Exactly>& sum, std::vector<Eight>& part,
                   bool& signs) {
    Eight s[RUN][EIGHTS];
    const Scorer scorer{head.score, side, false};
    const bool relative = head.kind == SOFTMAX || head.kind == LSE || head.kind == BEST;
    const double nothing = relative || head.kind == EXPONENTIAL ? NONE : 0.0;
    const int many = (int)(to - from);
    for (int k = 0; k < many; k++) {
      scorer(from + k, lanes, s[k]);
      const int64_t own = from + k - at;
      if (head.other && own >= 0 && own < LANES) s[k][own / 8][own % 8] = nothing;
    }
    if (relative) {
      for (int i = 0; i < EIGHTS; i++) {
        Eight top = s[0][i];
        for (int k = 1; k < many; k++) top = larger(top, s[k][i]);
        if (head.kind == BEST) {
          peak[i] = larger(peak[i], top);
          continue;
        }
        const EightWhole raise = ~(top <= peak[i] + HIGH) & (top > every(NONE));
        bool any = false;
        for (int e = 0; e < 8; e++) any = any || raise[e];
        if (!any) continue;
        const Eight next = raise ? top : peak[i];
        const Eight by = peak[i] == every(NONE) ? Eight{} : exps<false>(peak[i] - next);
        for (int32_t w = 0; w <= head.sums(); w++) sum[w * EIGHTS + i].high *= by, sum[w * EIGHTS + i].low *= by;
        peak[i] = next;
      }
      if (head.kind == BEST) return;
    }
    std::fill(part.begin(), part.end(), Eight{});
    for (int k = 0; head.kind == NORMALIZE && k < many; k++) signs = signs || negative(s[k]);
    for (int k = 0; k < many; k++) {
      const double* value = values.data() + (from + k) * head.writes;
      for (int i = 0; i < EIGHTS; i++) {
        Eight weight = s[k][i];
        if (relative) weight = exps<Single>(peak[i] == every(NONE) ? every(NONE) : weight - peak[i]);
        else if (head.kind == EXPONENTIAL) weight = exps<Single>(weight);
        part[i] += weight;
        for (int32_t w = 0; w < head.sums(); w++) part[(w + 1) * EIGHTS + i] += weight * value[w];
      }
    }
    for (size_t w = 0; w < part.size(); w++) sum[w].add(part[w]);
  }
};

struct Soft : Instruction {
  std::vector<Head> heads;  // with the same queries and keys

  explicit Soft(Code& code) {
    const int64_t many = code.next();
    for (int64_t h = 0; h < many; h++) heads.emplace_back(code);
  }

  Outcome run(Problem& problem, Team& team) const override {
    return add_up(problem, team, heads, number) ? GOING : LAYER;
  }
};

// The same over the keys that a stored index names.
struct MemberSoft : Instruction {
  Classes classes;
  Head head;

  explicit MemberSoft(Code& code) : classes(code), head(code) {}

  Outcome run(Problem& problem, Team& team) const override {
    return problem.machine.single ? as<true>(problem, team) : as<false>(problem, team);
  }

  template <bool Single>
  Outcome as(Problem& problem, Team& team) const {
    const int64_t queries = rows_of(problem, head.query, head.once);
    Sorted sorted;
    sorted.sort(problem, classes, head.keys);
    Side side;
    problem.side(problem.worker(0), head.score, true, queries, side);
    side.largest = largest_size(side.number.data(), (int64_t)side.number.size());
    std::vector<double> scores, own;
    if (head.own_competes) problem.numbers(problem.worker(0), head.own_score, queries, scores);
    if (head.own_competes || head.own_last) problem.numbers(problem.worker(0), head.own_value, queries, own);
    std::vector<double>& out = problem.outs[head.out];
    out.assign(queries * head.writes, 0.0);
    std::atomic<bool> good{true};
    const bool whole = team.ranges(queries, 1, [&](int64_t q, int64_t, int who) {
      Worker& worker = problem.worker(who);
      std::vector<int32_t> room;
      const auto [list, many] = sorted.of(classes, q, room);
      Lanes lanes(worker, head.score.features), values(worker, head.value.count());
      Addings<Single> adding(worker, head, 1);
      const Scorer scorer{head.score, side, true};
      for (int64_t at = 0; at < many; at += LANES) {
        const Block block{list + at, 0, (int)std::min<int64_t>(LANES, many - at), 0};
        problem.features(worker, block, head.score, false, lanes.data());
        problem.rows(worker, block, head.value, values.data());
        if (!in_range(head.score, lanes.data(), block.many, side.largest)) good = false;
        Eight s[EIGHTS];
        scorer(q, lanes.data(), s);
        adding.of[0].block(head, s, values.data(), block.many, -1, q);
      }
      std::vector<Two> sums(head.sums());
      Partial part;
      part.take(adding.of[0], sums.data());
      Total total;
      merge(head, {&part}, total);
      if (!finish(head, total, scores.data() + q, own.data() + q * head.writes, out.data() + q * head.writes)) good = false;
    });
    if (!whole) return MEMORY;
    problem.count(number, queries, 0, queries);
    return good ? GOING : LAYER;
  }
};

// Rows that are made when they are read: what they are made of is taken now.
struct Lazy : Instruction {
  int32_t group;
  explicit Lazy(Code& code) : group((int32_t)code.next()) {}
  Outcome run(Problem& problem, Team&) const override {
    take_snapshot(problem, group);
    for (int32_t slot : problem.machine.groups[group].slots) problem.slots[slot].map = nullptr;
    return GOING;
  }
};

template <bool Single>
void fill_as(Tile& made, Problem& problem, Worker& worker, const Block& block, int32_t number, const Snapshot& snapshot) {
  const LazyGroup& group = problem.machine.groups[number];
  Worker::Making& making = worker.making[number];
  const int64_t keys = snapshot.keys.tokens;
  making.features.resize(group.score.features), making.scores.resize(keys), making.weights.resize(keys);
  made.slots.resize(group.slots.size());
  problem.features(worker, block, group.score, true, making.features.data());
  if (!in_range(group.score, making.features.data(), block.many, snapshot.keys.largest))
    for (Lane& lane : making.features) std::fill(lane.v, lane.v + LANES, std::nan(""));
  bool shifted = false, weighed = false;
  for (const LazyHead& head : group.heads) {
    shifted |= head.kind == SOFTMAX || head.kind == LSE || head.kind == BEST;
    weighed |= head.kind == SOFTMAX || head.kind == LSE;
  }
  const Scorer scorer{group.score, snapshot.keys, false};
  Eight peak[EIGHTS], mass[EIGHTS] = {}, size[EIGHTS] = {};
  for (int i = 0; i < EIGHTS; i++) peak[i] = every(NONE);
  for (int64_t k = 0; k < keys; k++) {
    Eight s[EIGHTS];
    scorer(k, making.features.data(), s);
    Eight* to = making.scores[k].eights();
    for (int i = 0; i < EIGHTS; i++) to[i] = s[i];
    for (int i = 0; shifted && i < EIGHTS; i++) peak[i] = larger(s[i], peak[i]);
  }
  if (weighed) {
    Exactly total[EIGHTS];
    for (int64_t from = 0; from < keys; from += RUN)
      for (int i = 0; i < EIGHTS; i++) {
        Eight part{};
        for (int64_t k = from; k < std::min(keys, from + RUN); k++) {
          const Eight weight = exps<Single>(making.scores[k].eights()[i] - peak[i]);
          making.weights[k].eights()[i] = weight;
          part += weight;
        }
        total[i].add(part);
      }
    for (int i = 0; i < EIGHTS; i++) mass[i] = total[i].high + total[i].low;
  }
  for (const LazyHead& head : group.heads) {
    if (head.kind != NORMALIZE) continue;
    for (int i = 0; i < EIGHTS; i++) {
      Exactly total;
      for (int64_t k = 0; k < keys; k++) total.add(making.scores[k].eights()[i]);
      size[i] = total.high + total.low;
    }
  }
  for (size_t s = 0; s < group.slots.size(); s++) made.slots[s].assign(problem.type(group.slots[s]).width, Lane{});
  for (size_t h = 0; h < group.heads.size(); h++) {
    const LazyHead& head = group.heads[h];
    const size_t which = std::find(group.slots.begin(), group.slots.end(), head.slot) - group.slots.begin();
    std::vector<Lane>& out = made.slots[which];
    const int32_t wide = (int32_t)out.size();
    if (head.kind == LSE || head.kind == BEST) {
      Eight number[EIGHTS];
      for (int i = 0; i < EIGHTS; i++) number[i] = head.kind == BEST ? peak[i] : peak[i] + logs(mass[i]);
      for (int32_t c = 0; c < wide; c++)
        for (int i = 0; i < EIGHTS && head.factor[c] != 0; i++) out[c].eights()[i] += number[i] * head.factor[c];
      continue;
    }
    Eight by[EIGHTS];
    for (int i = 0; i < EIGHTS; i++)
      by[i] = head.kind == SOFTMAX ? 1.0 / mass[i] : head.kind == NORMALIZE ? 1.0 / size[i] : every(1.0);
    for (int64_t k = 0; k < keys; k++) {
      const Eight* from = (head.kind == SOFTMAX ? making.weights[k] : making.scores[k]).eights();
      Eight weight[EIGHTS];
      for (int i = 0; i < EIGHTS; i++) weight[i] = head.kind == EXPONENTIAL ? exps<Single>(from[i]) : from[i] * by[i];
      if (head.names >= 0) {
        Eight* to = out[head.names + k].eights();
        for (int i = 0; i < EIGHTS; i++) to[i] += weight[i];
        continue;
      }
      const double* value = snapshot.values[h].data() + k * wide;
      for (int32_t c = 0; c < wide; c++)
        for (int i = 0; i < EIGHTS && value[c] != 0; i++) out[c].eights()[i] += weight[i] * value[c];
    }
  }
  for (size_t s = 0; s < group.slots.size(); s++)
    if (problem.type(group.slots[s]).single)
      for (Lane& lane : made.slots[s])
        for (int e = 0; e < LANES; e++) lane.v[e] = (double)(float)lane.v[e];
}

}  // namespace

bool add_up(Problem& problem, Team& team, const std::vector<Head>& heads, int32_t instruction) {
  const Sums sums{heads, instruction};
  return problem.machine.single ? sums.run<true>(problem, team) : sums.run<false>(problem, team);
}

void fill(Tile& tile, Problem& problem, Worker& worker, const Block& block, int32_t group, const Snapshot& snapshot) {
  if (problem.machine.single) fill_as<true>(tile, problem, worker, block, group, snapshot);
  else fill_as<false>(tile, problem, worker, block, group, snapshot);
}

void take_snapshot(Problem& problem, int32_t number) {
  const LazyGroup& group = problem.machine.groups[number];
  Snapshot& out = problem.snapshots[number];
  problem.side(problem.worker(0), group.score, false, problem.tokens[group.keys], out.keys);
  out.keys.largest = largest_size(out.keys.number.data(), (int64_t)out.keys.number.size());
  out.values.resize(group.heads.size());
  for (size_t h = 0; h < group.heads.size(); h++)
    if (group.heads[h].value.count())
      problem.numbers(problem.worker(0), group.heads[h].value, problem.tokens[group.keys], out.values[h]);
  for (int32_t who = 0; who < problem.hands; who++) problem.worker(who).making[number].tile.serial = 0;
  LazyTiles& kept = problem.worker(0).tiles[number];
  int64_t wide = 0;
  for (int32_t slot : group.slots) wide += problem.type(slot).width;
  const int64_t blocks = (problem.tokens[group.query] + LANES - 1) / LANES;
  if (kept.asked > 1 && blocks * wide * (int64_t)sizeof(Lane) <= LITTLE_ROOM && blocks > (int64_t)kept.of.size()) kept.of.resize(blocks);
  kept.serial = ++problem.serial, kept.asked = 0;
}

std::unique_ptr<Instruction> make_soft(Code& code) { return std::make_unique<Soft>(code); }
std::unique_ptr<Instruction> make_member_soft(Code& code) { return std::make_unique<MemberSoft>(code); }
std::unique_ptr<Instruction> make_lazy(Code& code) { return std::make_unique<Lazy>(code); }

}  // namespace weftc
