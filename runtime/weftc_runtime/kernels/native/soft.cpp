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

// Some blocks of keys, one after the other: all but the last are full.
struct Keys {
  int blocks = 0, many = 0;  // many: keys
  const Lane *features[TOGETHER], *values[TOGETHER];

  int eights() const { return (many + 7) / 8; }
  int eights(int block) const { return std::min(EIGHTS, eights() - block * EIGHTS); }
};

// All of some numbers in one, four at a time: no step waits for the one before.
template <class How>
inline Eight in_chains(const Eight* s, int many, Eight none, How how) {
  Eight chain[4] = {none, none, none, none};
  int i = 0;
  for (; i + 4 <= many; i += 4)
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) chain[c] = how(chain[c], s[i + c]);
  for (; i < many; i++) chain[0] = how(chain[0], s[i]);
  return how(how(chain[0], chain[1]), how(chain[2], chain[3]));
}

// Sums over keys of one query: relative to a reference.
template <bool Single>
struct Adding {
  double peak = NONE;  // the reference; of a number that is the largest, that
  bool signs = false;
  Exactly mass;
  Exactly* sum = nullptr;
  int32_t sums = 0;

  void add(const Head& head, const Keys& keys, const Scorer& scorer, int64_t query, int64_t skip, int64_t column) {
    Eight s[TOGETHER * EIGHTS];
    const int eights = keys.eights();
    for (int b = 0; b < keys.blocks; b++) scorer(query, keys.features[b], s + b * EIGHTS, keys.eights(b));
    const bool relative = head.kind == SOFTMAX || head.kind == LSE || head.kind == BEST;
    const double nothing = relative || head.kind == EXPONENTIAL ? NONE : 0.0;
    for (int e = keys.many; e < 8 * eights; e++) s[e / 8][e % 8] = nothing;
    if (skip >= 0 && skip < keys.many) s[skip / 8][skip % 8] = nothing;
    if (relative) {
      const double top = largest(in_chains(s, eights, every(NONE), larger));
      if (top == NONE) return;
      if (head.kind == BEST) {
        peak = std::max(peak, top);
        return;
      }
      if (!(top <= peak + HIGH)) {
        if (peak != NONE) rescale(std::exp(peak - top));
        peak = top;
      }
      for (int i = 0; i < eights; i++) s[i] = exps<Single>(s[i] - peak);
    } else if (head.kind == EXPONENTIAL) {
      for (int i = 0; i < eights; i++) s[i] = exps<Single>(s[i]);
    }
    if (head.kind == NORMALIZE) signs = signs || negative(s, eights);
    if (head.kind != EXPONENTIAL && head.kind != SUM) {
      mass.add(in_chains(s, eights, Eight{}, [](Eight a, Eight b) { return a + b; }));
    }
    int32_t w = 0;
    const int64_t first = head.diagonal ? column : 0;
    for (; w + 8 <= sums; w += 8) some<8>(keys, s, first + w, sum + w);
    if (w + 4 <= sums) some<4>(keys, s, first + w, sum + w), w += 4;
    for (; w < sums; w++) some<1>(keys, s, first + w, sum + w);
  }

  // Adds N columns of values; eight sums are under way at a time, whatever N is: one addition does not wait for another.
  template <int N>
  static void some(const Keys& keys, const Eight* s, int64_t column, Exactly* sum) {
    constexpr int CHAINS = 8 / N;
    Eight total[N][CHAINS] = {};
    for (int b = 0; b < keys.blocks; b++, s += EIGHTS) {
      const Eight* v = keys.values[b][column].eights();
      const int eights = keys.eights(b);
      int i = 0;
      for (; i + CHAINS <= eights; i += CHAINS)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++)
#pragma GCC unroll 8
          for (int c = 0; c < CHAINS; c++) total[n][c] += s[i + c] * v[n * EIGHTS + i + c];
      for (; i < eights; i++)
        for (int n = 0; n < N; n++) total[n][0] += s[i] * v[n * EIGHTS + i];
    }
    for (int n = 0; n < N; n++) {
      for (int c = 1; c < CHAINS; c++) total[n][0] += total[n][c];
      sum[n].add(total[n][0]);
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
    peak = from.peak, signs = from.signs, sum = to, mass = Two(from.mass);
    for (int32_t w = 0; w < from.sums; w++) sum[w] = Two(from.sum[w]);
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
  out.sum.resize(head.sums());
  if (parts.size() == 1) {
    out.mass = parts[0]->mass.sum();
    for (int32_t w = 0; w < head.sums(); w++) out.sum[w] = parts[0]->sum[w].sum();
    return;
  }
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
  std::vector<double> mine, told;  // what processes that share the keys tell each other
  Total total;
};

// Heads over all keys.
struct Sums {
  const std::vector<Head>& heads;
  int32_t number;  // of the instruction

  template <bool Single>
  Outcome run(Problem& problem, Team& team) const {
    const Head& first = heads[0];
    const int64_t queries = rows_of(problem, first.query, first.once), keys = problem.tokens[first.keys];
    const bool diagonal = std::any_of(heads.begin(), heads.end(), [](const Head& head) { return head.diagonal; });
    if (keys > queries || diagonal || lazy(problem) || problem.shared(first.keys))
      return by_keys<Single>(problem, team, queries, keys);
    bool good = true;
    for (const Head& head : heads) good = good && by_queries<Single>(problem, team, head, queries, keys);
    return good ? GOING : LAYER;
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
        : lanes(worker, TOGETHER * head.score.features), values(worker, TOGETHER * head.value.count()),
          adding(worker, head, queries) {}
  };

  template <bool Single>
  Outcome by_keys(Problem& problem, Team& team, int64_t queries, int64_t keys) const {
    const int64_t each = std::max<int64_t>(4096, (keys / 32 + LANES) / LANES * LANES), parts = (keys + each - 1) / each;
    const bool joint = problem.shared(heads[0].keys);
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
    int32_t wide = 1;
    for (const Head& head : heads) wide = std::max(wide, head.score.features + head.value.count());
    const int64_t together = LANES * (int64_t)std::clamp(TOGETHER * 16 / wide, 1, TOGETHER);
    const uint64_t base = problem.serial;
    problem.serial += keys;
    std::atomic<bool> good{true};
    const bool whole = team.ranges(keys, each, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      std::vector<OfHead<Single>> own;
      own.reserve(heads.size());
      for (const Head& head : heads) own.emplace_back(worker, head, queries);
      for (int64_t at = first; at < last; at += together)
        for (size_t h = 0; h < heads.size(); h++) {
          const Head& head = heads[h];
          Keys some;
          for (int64_t from = at; from < std::min(last, at + together); from += LANES) {
            Block block = problem.block(from, last);
            block.serial = base + 1 + from;
            Lane* room = own[h].lanes.data() + some.blocks * head.score.features;
            some.features[some.blocks] = problem.features_at(worker, block, head.score, false, room);
            room = own[h].values.data() + some.blocks * head.value.count();
            some.values[some.blocks] = problem.rows_at(worker, block, head.value, room);
            if (!in_range(head.score, some.features[some.blocks], block.many, sides[h].largest)) good = false;
            some.blocks++, some.many += block.many;
          }
          const Scorer scorer{head.score, sides[h], true};
          for (int64_t q = 0; q < queries; q++)
            own[h].adding.of[q].add(head, some, scorer, q, head.other ? q - at : -1, q);
        }
      for (size_t h = 0; h < heads.size(); h++)
        for (int64_t q = 0; q < queries; q++) {
          const int64_t place = first / each * queries + q;
          found[h][place].take(own[h].adding.of[q], sums[h].data() + place * heads[h].sums());
        }
    });
    if (!whole || !good) return LAYER;
    const auto merged = [&](size_t h, int64_t q, Total& total) {
      for (int64_t p = 0; p < parts; p++) room.parts[p] = &found[h][p * queries + q];
      merge(heads[h], room.parts, total);
    };
    if (joint)
      if (const Outcome told = tell(problem, room, queries, merged); told != GOING) return told;
    for (size_t h = 0, first = 0; h < heads.size(); first += queries * (3 + heads[h].sums()), h++) {
      const Head& head = heads[h];
      std::vector<double>& out = problem.outs[head.out];
      out.assign(queries * head.writes, 0.0);
      if (head.own_competes) problem.numbers(problem.worker(0), head.own_score, queries, room.scores);
      if (head.own_competes || head.own_last) problem.numbers(problem.worker(0), head.own_value, queries, room.own);
      Total& total = room.total;
      for (int64_t q = 0; q < queries; q++) {
        if (joint) told_by_all(problem, head, room, first + q * (3 + head.sums()), total);
        else merged(h, q, total);
        double* to = out.data() + q * head.writes + (head.diagonal ? q : 0);
        if (!finish(head, total, room.scores.data() + q, room.own.data() + q * head.writes, to)) return LAYER;
      }
    }
    return GOING;
  }

  // What the keys of this process come to for every query goes to all: peak, signs, mass, sums.
  template <class Merged>
  Outcome tell(Problem& problem, SoftRoom& room, int64_t queries, Merged merged) const {
    std::vector<double>& mine = room.mine;
    mine.clear();
    for (size_t h = 0; h < heads.size(); h++)
      for (int64_t q = 0; q < queries; q++) {
        merged(h, q, room.total);
        mine.insert(mine.end(), {room.total.peak, (double)room.total.signs, room.total.mass});
        mine.insert(mine.end(), room.total.sum.begin(), room.total.sum.end());
      }
    room.told.resize(mine.size() * problem.machine.shares.processes);
    return problem.together(STACK, mine.data(), (int64_t)mine.size(), room.told.data());
  }

  // What the keys of all processes come to for one query: theirs merged in their order.
  static void told_by_all(const Problem& problem, const Head& head, SoftRoom& room, size_t at, Total& total) {
    const int32_t many = problem.machine.shares.processes, sums = head.sums();
    std::vector<Two> numbers(many * sums);
    std::vector<Partial> parts(many);
    std::vector<Partial*> list;
    for (int32_t p = 0; p < many; p++) {
      const double* from = room.told.data() + p * room.mine.size() + at;
      parts[p].peak = from[0], parts[p].signs = from[1] != 0, parts[p].sum = numbers.data() + p * sums;
      parts[p].mass.add(from[2]);
      for (int32_t w = 0; w < sums; w++) parts[p].sum[w].add(from[3 + w]);
      list.push_back(&parts[p]);
    }
    merge(head, list, total);
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
    for (int k = 0; head.kind == NORMALIZE && k < many; k++) signs = signs || negative(s[k], EIGHTS);
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
    return add_up(problem, team, heads, number);
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
        adding.of[0].add(head, {1, block.many, {lanes.data()}, {values.data()}}, scorer, q, -1, q);
      }
      std::vector<Two> sums(head.sums());
      Partial part;
      part.take(adding.of[0], sums.data());
      Total total;
      merge(head, {&part}, total);
      if (!finish(head, total, scores.data() + q, own.data() + q * head.writes, out.data() + q * head.writes)) good = false;
    });
    if (!whole) return FAILED;
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

// Makes a tile of a group, N eights of tokens.
template <bool Single, int N>
void fill_as(Tile& made, Problem& problem, Worker& worker, const Block& block, int32_t number, const Snapshot& snapshot) {
  const LazyGroup& group = problem.machine.groups[number];
  Worker::Making& making = worker.making[number];
  const int64_t keys = snapshot.keys.tokens;
  making.features.resize(group.score.features), making.scores.resize(keys), making.weights.resize(keys);
  made.slots.resize(group.slots.size());
  const Lane* features = problem.features_at(worker, block, group.score, true, making.features.data());
  if (!in_range(group.score, features, block.many, snapshot.keys.largest)) {
    for (Lane& lane : making.features) std::fill(lane.v, lane.v + LANES, std::nan(""));
    features = making.features.data();
  }
  bool shifted = false, weighed = false, divided = false;
  for (const LazyHead& head : group.heads) {
    shifted |= head.kind == SOFTMAX || head.kind == LSE || head.kind == BEST;
    weighed |= head.kind == SOFTMAX || head.kind == LSE;
    divided |= head.kind == NORMALIZE;
  }
  const Scorer scorer{group.score, snapshot.keys, false};
  Eight peak[N], mass[N] = {}, size[N] = {};
  for (int i = 0; i < N; i++) peak[i] = every(NONE);
  for (int64_t k = 0; k < keys; k++) {
    Eight* to = making.scores[k].eights();
    scorer.of<N>(k, features, to);
    for (int i = 0; shifted && i < N; i++) peak[i] = larger(to[i], peak[i]);
  }
  const auto total = [&](const std::vector<Lane>& of, int i) {
    Exactly sum;
    for (int64_t from = 0; from < keys; from += RUN) {
      Eight part{};
      for (int64_t k = from; k < std::min(keys, from + RUN); k++) part += of[k].eights()[i];
      sum.add(part);
    }
    return sum.high + sum.low;
  };
  for (int64_t k = 0; weighed && k < keys; k++)
    for (int i = 0; i < N; i++)
      making.weights[k].eights()[i] = exps<Single>(making.scores[k].eights()[i] - peak[i]);
  for (int i = 0; i < N; i++) {
    if (weighed) mass[i] = total(making.weights, i);
    if (divided) size[i] = total(making.scores, i);
  }
  std::vector<bool> begun(group.slots.size());
  for (size_t h = 0; h < group.heads.size(); h++) {
    const LazyHead& head = group.heads[h];
    const size_t which = std::find(group.slots.begin(), group.slots.end(), head.slot) - group.slots.begin();
    std::vector<Lane>& out = made.slots[which];
    const int32_t wide = problem.type(head.slot).width;
    const bool number = head.kind == LSE || head.kind == BEST, first = !begun[which];
    const bool covers = number || (head.names == 0 && keys == wide);  // every column
    out.resize(wide);
    if (first && !covers) std::fill(out.begin(), out.end(), Lane{});
    begun[which] = true;
    const auto put = [&](Lane& lane, const Eight* more) {
      Eight* to = lane.eights();
      for (int i = 0; i < N; i++) to[i] = first && covers ? more[i] : to[i] + more[i];
    };
    Eight some[N];
    if (number) {
      Eight found[N];
      for (int i = 0; i < N; i++) found[i] = head.kind == BEST ? peak[i] : peak[i] + logs(mass[i]);
      for (int32_t c = 0; c < wide; c++) {
        for (int i = 0; i < N; i++) some[i] = head.factor[c] != 0 ? found[i] * head.factor[c] : Eight{};
        put(out[c], some);
      }
      continue;
    }
    Eight by[N];
    for (int i = 0; i < N; i++)
      by[i] = head.kind == SOFTMAX ? 1.0 / mass[i] : head.kind == NORMALIZE ? 1.0 / size[i] : every(1.0);
    for (int64_t k = 0; k < keys; k++) {
      const Eight* from = (head.kind == SOFTMAX ? making.weights[k] : making.scores[k]).eights();
      for (int i = 0; i < N; i++) some[i] = head.kind == EXPONENTIAL ? exps<Single>(from[i]) : from[i] * by[i];
      if (head.names >= 0) {
        put(out[head.names + k], some);
        continue;
      }
      const double* value = snapshot.values[h].data() + k * wide;
      for (int32_t c = 0; c < wide; c++)
        for (int i = 0; i < N && value[c] != 0; i++) out[c].eights()[i] += some[i] * value[c];
    }
  }
  for (size_t s = 0; s < group.slots.size(); s++) {
    std::vector<Lane>& out = made.slots[s];
    const SlotType& type = problem.type(group.slots[s]);
    if (!begun[s]) out.assign(type.width, Lane{});
    for (Lane& lane : out) {
      if (type.single)
        for (int e = 0; e < 8 * N; e++) lane.v[e] = (double)(float)lane.v[e];
      std::fill(lane.v + 8 * N, lane.v + LANES, lane.v[block.many - 1]);
    }
  }
}

template <bool Single>
void fill_as(Tile& made, Problem& problem, Worker& worker, const Block& block, int32_t number, const Snapshot& snapshot) {
  const int eights = block.lanes() / 8;
  const auto way = eights > 4 ? fill_as<Single, 8> : eights > 2 ? fill_as<Single, 4> : eights > 1 ? fill_as<Single, 2> : fill_as<Single, 1>;
  way(made, problem, worker, block, number, snapshot);
}

}  // namespace

Outcome add_up(Problem& problem, Team& team, const std::vector<Head>& heads, int32_t instruction) {
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
  for (int32_t who = 0; who < problem.hands; who++) 
    for (Tile& tile : problem.worker(who).making[number].tiles) tile.serial = 0;
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
