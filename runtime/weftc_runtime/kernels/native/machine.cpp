// The interpreter, its slots, and the instructions that look at one token at a time. See machine.h.

#include "machine.h"

#include "adder.h"

namespace weftc {

constexpr int64_t STANDING = 1 << 18;  // bytes that columns of a slot that stays may take

static int32_t small(Code& code) { return (int32_t)code.next(); }

Rows::Rows(Code& code) {
  const int32_t rows = small(code);
  exact = code.next();
  for (int32_t r = 0; r < rows; r++) {
    const int32_t many = small(code);
    for (int32_t t = 0; t < many; t++) {
      Term term;
      term.slot = small(code), term.column = small(code), term.factor = code.number();
      terms.push_back(term);
    }
    start.push_back((int32_t)terms.size());
  }
  plain = rows > 0 && (int32_t)terms.size() == rows;
  for (int32_t r = 0; plain && r < rows; r++) {
    const Term& term = terms[r];
    plain = start[r] == r && term.factor == 1 && term.slot == terms[0].slot && term.column == terms[0].column + r;
  }
  if (plain) slot = terms[0].slot, column = terms[0].column;
}

bool Rows::reads(int32_t wanted) const {
  return std::any_of(terms.begin(), terms.end(), [&](const Term& term) { return term.slot == wanted; });
}

Score::Score(Code& code) {
  const int32_t many = small(code);
  exact = code.next();
  for (int32_t p = 0; p < many; p++) {
    Part part;
    part.distance = code.next(), part.side = small(code), part.coefficient = code.number();
    part.query = Rows(code), part.keys = Rows(code);
    if (part.side) part.scale = Rows(code);
    part.at = features, features += part.query.count();
    if (part.side) part.scale_at = features++;
    terms = std::max(terms, part.query.count());
    parts.push_back(std::move(part));
  }
}

// ---------------------------------------------------------------- problems
Problem::Problem(Machine& machine, int64_t number) : machine(machine), number(number) {
  for (const auto& starts : machine.starts) tokens.push_back(starts[number + 1] - starts[number]);
  slots.resize(machine.types.size());
  for (size_t s = 0; s < slots.size(); s++) {
    const SlotType& type = machine.types[s];
    const SlotArrays& from = machine.arrays[s];
    const int64_t first = machine.starts[type.stream][number];
    const auto own = [&](void* all) -> void* {
      if (!all) return nullptr;
      if (type.kind == UNIFORM) return (double*)all + number * type.width;
      if (type.kind == INDEX) return (int32_t*)all + first;
      return type.single ? (void*)((float*)all + first * type.width) : (void*)((double*)all + first * type.width);
    };
    Slot& slot = slots[s];
    slot.now = slot.given = own(from.given), slot.room[0] = own(from.room[0]), slot.room[1] = own(from.room[1]);
    slot.empty = !slot.now && type.kind != LAZY && type.kind != NOISE && type.kind != IDENTITY;
    slot.values = from.values ? from.values + first : nullptr;
  }
  outs.resize(machine.outs), members.resize(machine.rankings);
  snapshots.resize(machine.groups.size()), earlier.resize(machine.groups.size());
  memory.resize(machine.list.size());
}

Problem::~Problem() = default;

bool Problem::shared(int32_t stream) const { return !machine.shares.shared.empty() && machine.shares.shared[stream]; }

int64_t Problem::total(int32_t stream) const { return shared(stream) ? machine.shares.totals[stream] : tokens[stream]; }

bool Problem::is_odd() const {
  return std::any_of(workers, workers + hands, [](const Worker& worker) { return worker.odd; });
}

Outcome Problem::together(Joint what, void* numbers, int64_t many, void* out) {
  if (what != LEAVE && is_odd()) return LAYER;  // the others do not get to see such numbers
  const int32_t found = machine.shares.together(what, numbers, many, out);
  left = left || found == 1;
  return found == 0 ? GOING : found == 1 ? LAYER : FAILED;
}

void Problem::take_over(int32_t slot) {
  Slot& own = slots[slot];
  void* made = room(slot);
  own.before = own.empty ? nullptr : own.now;
  own.now = made, own.empty = false, own.moved = true;
}

static void column_of(const Map& map, Problem& problem, Worker& worker, const Block& block, int32_t slot, int32_t column,
                      double* out);

void Problem::column(Worker& worker, const Block& block, int32_t at, int32_t column, double* out) {
  const SlotType& kind = type(at);
  const Slot& slot = slots[at];
  if (slot.empty) return std::fill(out, out + LANES, 0.0);
  switch (kind.kind) {
    case UNIFORM:
      return std::fill(out, out + LANES, ((const double*)slot.now)[column]);
    case DENSE: {
      const int64_t step = kind.width;
      if (kind.single) {
        const float* from = (const float*)slot.now + column;
        if (!block.list && block.many == LANES) {
          from += block.first * step;
          for (int e = 0; e < LANES; e++) out[e] = (double)from[e * step];
          return;
        }
        for (int e = 0; e < block.lanes(); e++) out[e] = (double)from[block.token(e) * step];
      } else {
        const double* from = (const double*)slot.now + column;
        for (int e = 0; e < block.lanes(); e++) out[e] = from[block.token(e) * step];
      }
      return block.fill_up(out);
    }
    case INDEX: {
      const int32_t* from = (const int32_t*)slot.now;
      if (!block.list && block.many == LANES && !slot.values) {
        for (int e = 0; e < LANES; e++) out[e] = from[block.first + e] == column ? 1.0 : 0.0;
        return;
      }
      for (int e = 0; e < LANES; e++) {
        const int64_t token = block.token(e);
        out[e] = from[token] == column ? (slot.values ? slot.values[token] : 1.0) : 0.0;
      }
      return;
    }
    case IDENTITY:
      for (int e = 0; e < LANES; e++) out[e] = block.token(e) == column ? 1.0 : 0.0;
      return;
    case LAZY: {
      if (slot.map) return column_of(*slot.map, *this, worker, block, at, column, out);
      std::memcpy(out, slot_of(worker, block, at)[column].v, sizeof(Lane));
      return;
    }
    case NOISE:
      draw(kind.group, machine.seeds[number], kind.name, machine.base + layer, block, column, out);
      if (kind.single)
        for (int e = 0; e < LANES; e++) out[e] = (double)(float)out[e];
      return;
  }
}

const std::vector<Lane>& Problem::slot_of(Worker& worker, const Block& block, int32_t slot) {
  const int32_t group = type(slot).group;
  const auto& made = machine.groups[group].slots;
  const size_t which = std::find(made.begin(), made.end(), slot) - made.begin();
  LazyTiles& kept = workers[0].tiles[group];
  const bool whole = this->whole(block, machine.groups[group].query);
  const bool keeps = whole && block.first / LANES < (int64_t)kept.of.size();
  const int64_t place = block.list ? 0 : block.first / LANES;
  Tile& found = keeps ? kept.of[place] : worker.making[group].tiles[place % TOGETHER];
  const uint64_t wanted = keeps ? kept.serial : block.serial;
  if (found.serial != wanted || !wanted) {
    fill(found, *this, worker, block, group, snapshots[group]);
    found.serial = wanted;
    kept.asked += whole && !block.first;
  }
  return found.slots[which];
}

#if defined(__AVX512F__)
inline __m512d eight(const float* from) { return _mm512_cvtps_pd(_mm256_loadu_ps(from)); }
inline __m512d eight(const double* from) { return _mm512_loadu_pd(from); }

// Eight columns that stand side by side.
template <class Real>
void eight_columns(const Block& block, const Real* from, int64_t step, Lane* out) {
  for (int e = 0; e < block.lanes(); e += 8) {
    __m512d a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = eight(from + block.token(e + i) * step);
    for (int i = 0; i < 8; i += 2) b[i] = _mm512_unpacklo_pd(a[i], a[i + 1]), b[i + 1] = _mm512_unpackhi_pd(a[i], a[i + 1]);
    for (int i = 0; i < 2; i++) {  // of what stands at even places, and at odd ones
      a[0] = _mm512_shuffle_f64x2(b[i], b[i + 2], 0x88), a[1] = _mm512_shuffle_f64x2(b[i], b[i + 2], 0xDD);
      a[2] = _mm512_shuffle_f64x2(b[i + 4], b[i + 6], 0x88), a[3] = _mm512_shuffle_f64x2(b[i + 4], b[i + 6], 0xDD);
      _mm512_store_pd(out[i].v + e, _mm512_shuffle_f64x2(a[0], a[2], 0x88));
      _mm512_store_pd(out[i + 2].v + e, _mm512_shuffle_f64x2(a[1], a[3], 0x88));
      _mm512_store_pd(out[i + 4].v + e, _mm512_shuffle_f64x2(a[0], a[2], 0xDD));
      _mm512_store_pd(out[i + 6].v + e, _mm512_shuffle_f64x2(a[1], a[3], 0xDD));
    }
  }
}
#endif

// Columns that stand side by side, `step` numbers from token to token: every number is loaded once.
template <class Real>
static void columns(const Block& block, const Real* from, int64_t step, int32_t count, Lane* out) {
  int32_t c = 0;
#if defined(__AVX512F__)
  for (; c + 8 <= count; c += 8) eight_columns(block, from + c, step, out + c);
#elif defined(__SSE2__)
  for (; sizeof(Real) == 4 && c + 4 <= count; c += 4)
    for (int e = 0; e < block.lanes(); e += 4) {
      __m128 line[4];
      for (int i = 0; i < 4; i++) line[i] = _mm_loadu_ps((const float*)from + block.token(e + i) * step + c);
      _MM_TRANSPOSE4_PS(line[0], line[1], line[2], line[3]);
      for (int i = 0; i < 4; i++) {
        _mm_store_pd(out[c + i].v + e, _mm_cvtps_pd(line[i]));
        _mm_store_pd(out[c + i].v + e + 2, _mm_cvtps_pd(_mm_movehl_ps(line[i], line[i])));
      }
    }
#endif
  for (int e = 0; c < count && e < block.lanes(); e++) {
    const Real* row = from + block.token(e) * step;
    for (int32_t rest = c; rest < count; rest++) out[rest].v[e] = (double)row[rest];
  }
  for (c = 0; c < count; c++) block.fill_up(out[c].v);
}

void Problem::rows(Worker& worker, const Block& block, const Rows& all, Lane* out, Lane* sizes) {
  const int32_t count = all.count();
  if (all.plain && !slots[all.slot].empty && type(all.slot).kind == DENSE) {
    const SlotType& kind = type(all.slot);
    if (kind.single) columns(block, (const float*)slots[all.slot].now + all.column, kind.width, count, out);
    else columns(block, (const double*)slots[all.slot].now + all.column, kind.width, count, out);
    for (int32_t r = 0; sizes && r < count; r++)
      for (int e = 0; e < LANES; e++) sizes[r].v[e] = std::fabs(out[r].v[e]);
    return;
  }
  for (int32_t r = 0; r < count; r++) row(worker, block, all, r, out[r].v, sizes ? sizes[r].v : nullptr);
}

const Lane* Problem::standing(Worker& worker, const Block& block, const Rows& all) {
  const SlotType& kind = type(all.slot);
  const int64_t blocks = (tokens[kind.stream] + LANES - 1) / LANES;
  if (kind.kind != DENSE || !slots[all.slot].stays() || !whole(block, kind.stream)) return nullptr;
  if (blocks * all.count() * (int64_t)sizeof(Lane) > STANDING) return nullptr;
  auto found = std::find_if(worker.columns.begin(), worker.columns.end(), [&](const Columns& each) {
    return each.slot == all.slot && each.column == all.column && each.count == all.count();
  });
  if (found == worker.columns.end()) {
    worker.columns.push_back({all.slot, all.column, all.count(), {}, {}});
    found = worker.columns.end() - 1;
  }
  if ((int64_t)found->made.size() != blocks) {
    found->lanes.resize(blocks * found->count);
    found->made.assign(blocks, 0);
  }
  Lane* lanes = found->lanes.data() + block.first / LANES * found->count;
  uint8_t& made = found->made[block.first / LANES];
  if (!made) rows(worker, block, all, lanes), made = 1;
  return lanes;
}

const Lane* Problem::rows_at(Worker& worker, const Block& block, const Rows& all, Lane* room) {
  if (all.plain)
    if (const Lane* found = standing(worker, block, all)) return found;
  if (!all.plain || type(all.slot).kind != LAZY || slots[all.slot].map || slots[all.slot].empty)
    return rows(worker, block, all, room), room;
  return slot_of(worker, block, all.slot).data() + all.column;
}

const Lane* Problem::features_at(Worker& worker, const Block& block, const Score& score, bool query, Lane* room) {
  if (score.parts.size() == 1 && !score.parts[0].side)
    return rows_at(worker, block, query ? score.parts[0].query : score.parts[0].keys, room);
  return features(worker, block, score, query, room), room;
}

void Problem::row(Worker& worker, const Block& block, const Rows& all, int32_t which, double* to, double* sizes) {
  const int32_t first = all.start[which], many = all.start[which + 1] - first;
  if (sizes) std::fill(sizes, sizes + LANES, 0.0);
  if (!many) std::fill(to, to + LANES, 0.0);
  const auto read = [&](int32_t t, double* number) {
    const Term& term = all.terms[first + t];
    column(worker, block, term.slot, term.column, number);
    if (term.factor != 1)
      for (int e = 0; e < LANES; e++) number[e] *= term.factor;
    if (sizes)
      for (int e = 0; e < LANES; e++) sizes[e] += std::fabs(number[e]);
  };
  if (!all.exact || many < 3) {
    Lane more;
    for (int32_t t = 0; t < many; t++) {
      read(t, t ? more.v : to);
      for (int e = 0; e < LANES && t; e++) to[e] += more.v[e];
    }
    return;
  }
  Lanes every(worker, many);
  for (int32_t t = 0; t < many; t++) read(t, every[t].v);
  for (int e = 0; e < block.lanes(); e++) {
    worker.terms.clear();
    for (int32_t t = 0; t < many; t++) worker.terms.push_back(every[t].v[e]);
    to[e] = exact_sum(worker.terms, worker.parts);
  }
  block.fill_up(to);
}

void Problem::features(Worker& worker, const Block& block, const Score& score, bool query, Lane* out, Lane* sizes) {
  for (const Part& part : score.parts) {
    rows(worker, block, query ? part.query : part.keys, out + part.at, sizes ? sizes + part.at : nullptr);
    if (part.side == (query ? 1 : 2)) rows(worker, block, part.scale, out + part.scale_at);
    else if (part.side) out[part.scale_at] = Lane{};
  }
}

void Problem::side(Worker& worker, const Score& score, bool query, int64_t count, Side& out) {
  out.tokens = count, out.width = score.features;
  const bool one = score.parts.size() == 1 && !score.parts[0].side;
  if (one) {
    numbers(worker, query ? score.parts[0].query : score.parts[0].keys, count, out.number);
  } else {
    out.number.resize(count * score.features);
    Lanes lanes(worker, score.features);
    for (int64_t first = 0; first < count; first += LANES) {
      Block some = block(first, count);
      some.serial = ++serial;
      features(worker, some, score, query, lanes.data());
      for (int e = 0; e < some.many; e++)
        for (int32_t f = 0; f < score.features; f++) out.number[(first + e) * score.features + f] = lanes[f].v[e];
    }
  }
  out.used.clear(), out.start.assign(1, 0);
  if (one && score.parts[0].distance) return;  // all count
  for (int64_t token = 0; token < count; token++)
    for (const Part& part : score.parts) {
      for (int32_t f = 0; f < part.query.count(); f++)
        if (part.distance || out.row(token)[part.at + f] != 0) out.used.push_back(part.at + f);
      out.start.push_back((int32_t)out.used.size());
    }
}

void Problem::numbers(Worker& worker, const Rows& all, int64_t count, std::vector<double>& out) {
  const int32_t wide = all.count();
  out.resize(count * wide);
  if (all.plain && type(all.slot).kind == DENSE && !slots[all.slot].empty) {
    const int64_t step = type(all.slot).width;
    const auto copy = [&](const auto* from) {
      for (int64_t i = 0; i < count; i++)
        for (int32_t r = 0; r < wide; r++) out[i * wide + r] = (double)from[i * step + r];
    };
    const void* now = slots[all.slot].now;
    return type(all.slot).single ? copy((const float*)now + all.column) : copy((const double*)now + all.column);
  }
  Lanes lanes(worker, wide);
  for (int64_t first = 0; first < count; first += LANES) {
    Block some = block(first, count);
    some.serial = ++serial;
    rows(worker, some, all, lanes.data());
    for (int e = 0; e < some.many; e++)
      for (int32_t r = 0; r < wide; r++) out[(first + e) * wide + r] = lanes[r].v[e];
  }
}

void Problem::count(int32_t instruction, int64_t bound, int64_t exact, int64_t all) {
  const size_t place = ((size_t)layer * machine.list.size() + instruction) * 3;
  if (place + 3 > tiers.size()) tiers.resize(place + 3);
  tiers[place] += bound, tiers[place + 1] += exact, tiers[place + 2] += all;
}

// ---------------------------------------------------------------- classes of keys
Classes::Classes(Code& code) {
  slot = small(code), count = small(code), same = code.next();
  if (same) return;
  const int64_t queries = code.next();
  start.push_back(0);
  for (int64_t q = 0; q < queries; q++) {
    const int64_t many = code.next();
    for (int64_t c = 0; c < many; c++) list.push_back(small(code));
    start.push_back((int32_t)list.size());
  }
}

void Sorted::sort(const Problem& problem, const Classes& classes, int32_t keys) {
  const int64_t tokens = problem.tokens[keys];
  const Slot& slot = problem.slots[classes.slot];
  start.assign(classes.count + 1, 0);
  order.resize(tokens);
  if (slot.empty) return;
  const int32_t* label = (const int32_t*)slot.now;
  for (int64_t i = 0; i < tokens; i++)
    if (label[i] >= 0) start[label[i] + 1]++;
  for (int32_t c = 0; c < classes.count; c++) start[c + 1] += start[c];
  std::vector<int32_t> next(start.begin(), start.end() - 1);
  for (int64_t i = 0; i < tokens; i++)
    if (label[i] >= 0) order[next[label[i]]++] = (int32_t)i;
}

std::pair<const int32_t*, int64_t> Sorted::of(const Classes& classes, int64_t query, std::vector<int32_t>& room) const {
  const auto one = [&](int32_t c) { return std::pair<const int32_t*, int64_t>(order.data() + start[c], start[c + 1] - start[c]); };
  if (classes.same) return query < classes.count ? one((int32_t)query) : std::pair<const int32_t*, int64_t>(nullptr, 0);
  const int32_t first = classes.start[query], last = classes.start[query + 1];
  if (last - first == 1) return one(classes.list[first]);
  room.clear();
  for (int32_t at = first; at < last; at++) {
    const auto [list, many] = one(classes.list[at]);
    room.insert(room.end(), list, list + many);
  }
  std::sort(room.begin(), room.end());
  return {room.data(), (int64_t)room.size()};
}

// ---------------------------------------------------------------- writing slots
// A slot while it is written: rounded as it is stored; whether all numbers are finite.
struct Written {
  Problem& problem;
  int32_t slot;
  void* to;
  int32_t width;
  bool single, uniform;

  Written(Problem& problem, int32_t slot)
      : problem(problem), slot(slot), to(problem.room(slot)), width(problem.type(slot).width),
        single(problem.type(slot).single), uniform(problem.type(slot).kind == UNIFORM) {}

  // Columns from the first on.
  bool put(const Block& block, const Lane* from, int32_t count) const {
    if (!uniform)
      return single ? copy((float*)to + block.first * width, from, count, block.many)
                    : copy((double*)to + block.first * width, from, count, block.many);
    bool good = true;
    for (int32_t c = 0; c < count; c++) good &= put(block, c, from[c].v);
    return good;
  }

  template <class Real>
  bool copy(Real* out, const Lane* from, int32_t count, int many) const {
    bool good = true;
    for (int e = 0; e < many; e++, out += width)
      for (int32_t c = 0; c < count; c++) {
        const Real number = (Real)from[c].v[e];
        good &= number - number == 0;
        out[c] = number;
      }
    return good;
  }

  bool put(const Block& block, int32_t column, const double* from) const {
    if (uniform) return copy((double*)to + column, from, 1);
    const int64_t at = block.first * width + column;
    return single ? copy((float*)to + at, from, block.many) : copy((double*)to + at, from, block.many);
  }

  template <class Real>
  bool copy(Real* out, const double* from, int many) const {
    bool good = true;
    for (int e = 0; e < many; e++) {
      const Real number = (Real)from[e];
      good &= number - number == 0;
      out[(int64_t)e * width] = number;
    }
    return good;
  }
};

enum Function { PRODUCT, RECIPROCAL, LOG, EXP, SQRT, RELU, RELU2, TANH, COPY, UNIT, LAYERED, ABSOLUTE, SELECT, SIGMOID, SOFTPLUS };

// Token by token: slots = carry z + out f(A z, B z).
struct Map : Instruction {
  struct Target {
    int32_t slot, column;
    std::vector<std::pair<int32_t, double>> out;
  };
  int32_t stream, function;
  bool once;
  Rows a, b, carry;
  std::vector<Target> targets;
  std::vector<int32_t> slots;

  explicit Map(Code& code) {
    stream = small(code), once = code.next(), function = small(code);
    a = Rows(code), b = Rows(code), carry = Rows(code);
    targets.resize(carry.count());
    for (Target& target : targets) {
      target.slot = small(code), target.column = small(code);
      const int32_t many = small(code);
      for (int32_t t = 0; t < many; t++) {
        const int32_t hidden = small(code);
        target.out.emplace_back(hidden, code.number());
      }
      if (std::find(slots.begin(), slots.end(), target.slot) == slots.end()) slots.push_back(target.slot);
    }
  }

  Outcome run(Problem& problem, Team& team) const override {
    const int64_t tokens = rows_of(problem, stream, once);
    std::vector<Written> written;
    for (const Target& target : targets) written.emplace_back(problem, target.slot);
    std::atomic<bool> good{true};
    const bool whole = in_parts(team, tokens, 4096, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      Lanes left(worker, a.count()), right(worker, b.count()), kept(worker, targets.size());
      std::vector<double> terms, parts;
      for (int64_t at = first; at < last; at += LANES) {
        const Block block = problem.block(at, last);
        problem.rows(worker, block, a, left.data());
        problem.rows(worker, block, b, right.data());
        problem.rows(worker, block, carry, kept.data());
        if (!apply(problem, worker, block, left, right, terms, parts)) good = false;
        for (size_t t = 0; t < targets.size(); t++) {
          Lane total;
          add(block, targets[t], left, kept[t], total, terms, parts);
          if (!written[t].put(block, targets[t].column, total.v)) good = false;
        }
      }
    });
    if (!whole) return FAILED;
    if (!good) return LAYER;
    for (int32_t slot : slots) problem.take_over(slot);
    return GOING;
  }

  static void add(const Block& block, const Target& target, const Lanes& hidden, const Lane& kept, Lane& total,
                  std::vector<double>& terms, std::vector<double>& parts) {
    const int lanes = block.lanes();
    if (target.out.size() <= 2) {
      double sum[LANES] = {};
      for (const auto& [h, factor] : target.out)
        for (int e = 0; e < lanes; e++) sum[e] += factor * hidden[h].v[e];
      for (int e = 0; e < lanes; e++) total.v[e] = kept.v[e] + sum[e];
    } else {
      for (int e = 0; e < lanes; e++) {
        terms.clear();
        for (const auto& [h, factor] : target.out) terms.push_back(factor * hidden[h].v[e]);
        total.v[e] = kept.v[e] + exact_sum(terms, parts);
      }
    }
    block.fill_up(total.v);
  }

  // The function, in place of its first argument; false where a number has no value, or only exact arithmetic tells.
  bool apply(Problem& problem, Worker& worker, const Block& block, Lanes& x, const Lanes& y,
             std::vector<double>& terms, std::vector<double>& parts) const {
    if (function == UNIT || function == LAYERED) return norm(problem, worker, block, x, y, terms, parts);
    bool good = true;
    const double* none = nullptr;
    for (size_t h = 0; h < x.size(); h++)
      good &= apply(block, x[h].v, h < y.size() ? y[h].v : none, y.empty() ? none : y.back().v);
    return good;
  }

  // The function of 64 numbers; `last`: the last row of the second argument, which tells a choice.
  bool apply(const Block& block, double* v, const double* y, const double* last) const {
    const auto each = [&](auto of) {
      for (int e = 0; e < block.lanes(); e++) v[e] = of(v[e], e);
      block.fill_up(v);
    };
    switch (function) {
      case PRODUCT: each([&](double w, int e) { return w * y[e]; }); break;
      case RECIPROCAL: each([](double w, int) { return 1 / w; }); break;
      case LOG: each([](double w, int) { return std::log(w); }); break;
      case EXP: each([](double w, int) { return std::exp(w); }); break;
      case SQRT: each([](double w, int) { return std::sqrt(w); }); break;
      case RELU: each([](double w, int) { return w > 0 ? w : 0; }); break;
      case RELU2: each([](double w, int) { return w > 0 ? w * w : 0; }); break;
      case TANH: each([](double w, int) { return std::tanh(w); }); break;
      case ABSOLUTE: each([](double w, int) { return std::fabs(w); }); break;
      case SIGMOID: each([](double w, int) { return w >= 0 ? 1 / (1 + std::exp(-w)) : std::exp(w) / (1 + std::exp(w)); }); break;
      case SOFTPLUS: each([](double w, int) { return std::fmax(w, 0) + std::log1p(std::exp(-std::fabs(w))); }); break;
      case SELECT: each([&](double w, int e) { return last[e] > 0.5 ? w : y[e]; }); break;
      default: break;
    }
    bool good = true;
    for (int e = 0; e < block.many; e++) good &= v[e] - v[e] == 0;
    return good;
  }

  // One column of a slot it writes, for a block of tokens.
  void column(Problem& problem, Worker& worker, const Block& block, int32_t slot, int32_t wanted, double* out) const {
    size_t at = 0;
    while (targets[at].slot != slot || targets[at].column != wanted) at++;
    const Target& target = targets[at];
    Lanes hidden(worker, target.out.size());
    Lane other, last, kept, total;
    Target made{slot, wanted, {}};
    for (size_t h = 0; h < hidden.size(); h++) {
      const int32_t row = target.out[h].first;
      problem.row(worker, block, a, row, hidden[h].v);
      if (row < b.count()) problem.row(worker, block, b, row, other.v);
      if (function == SELECT) problem.row(worker, block, b, b.count() - 1, last.v);
      if (!apply(block, hidden[h].v, other.v, last.v)) worker.odd = true;
      made.out.emplace_back((int32_t)h, target.out[h].second);
    }
    problem.row(worker, block, carry, (int32_t)at, kept.v);
    std::vector<double> terms, parts;
    add(block, made, hidden, kept, total, terms, parts);
    std::memcpy(out, total.v, sizeof(Lane));
  }

  bool norm(Problem& problem, Worker& worker, const Block& block, Lanes& x, const Lanes& y,
            std::vector<double>& terms, std::vector<double>& parts) const {
    double sizes[LANES] = {};  // of what each vector is the sum of
    Lane number;
    const bool copied = a.plain && function != LAYERED;  // nothing is added up
    for (int32_t r = 0; r < a.count() && !copied; r++) {
      double size[LANES] = {};
      for (int32_t t = a.start[r]; t < a.start[r + 1]; t++) {
        problem.column(worker, block, a.terms[t].slot, a.terms[t].column, number.v);
        for (int e = 0; e < LANES; e++) size[e] += std::fabs(a.terms[t].factor * number.v[e]);
      }
      for (int e = 0; e < LANES; e++) sizes[e] = std::max(sizes[e], size[e]);
    }
    if (function == LAYERED)
      for (int e = 0; e < block.many; e++) {
        terms.clear();
        for (const Lane& lane : x) terms.push_back(lane.v[e]);
        const double mean = exact_sum(terms, parts) / (double)x.size();
        for (Lane& lane : x) lane.v[e] -= mean;
      }
    double longest[LANES] = {}, scale[LANES], high[LANES] = {}, low[LANES] = {};
    for (const Lane& lane : x)
      for (int e = 0; e < block.many; e++) {
        const double size = std::fabs(lane.v[e]);
        longest[e] = size <= longest[e] ? longest[e] : size;  // NaN stays
      }
    for (int e = 0; e < block.many; e++) {
      if (!(longest[e] - longest[e] == 0)) return false;
      if (sizes[e] > 0 && longest[e] <= 0x1p-20 * sizes[e]) return false;  // rounding may hide a zero, and make one
      if (longest[e] == 0 && y.empty()) return false;
      int power;
      std::frexp(longest[e], &power);
      scale[e] = longest[e] == 0 ? 0 : std::max(power, -1000);
    }
    for (int e = 0; e < block.many; e++) scale[e] = std::ldexp(1.0, -(int)scale[e]);
    for (Lane& lane : x)
      for (int e = 0; e < block.many; e++) {
        lane.v[e] *= scale[e];
        const double square = lane.v[e] * lane.v[e], sum = high[e] + square, seen = sum - high[e];
        low[e] += (high[e] - (sum - seen)) + (square - seen);
        high[e] = sum;
      }
    for (int e = 0; e < block.many; e++) high[e] = std::sqrt(high[e] + low[e]);
    for (size_t h = 0; h < x.size(); h++)
      for (int e = 0; e < block.many; e++) x[h].v[e] = longest[e] == 0 ? y[h].v[e] : x[h].v[e] / high[e];
    return true;
  }
};

static void column_of(const Map& map, Problem& problem, Worker& worker, const Block& block, int32_t slot, int32_t column,
                      double* out) {
  map.column(problem, worker, block, slot, column, out);
}

// What every token gets from itself.
struct Own : Instruction {
  int32_t stream, out;
  Rows value;
  explicit Own(Code& code) {
    stream = small(code), out = small(code);
    value = Rows(code);
  }
  Outcome run(Problem& problem, Team&) const override {
    problem.numbers(problem.worker(0), value, problem.tokens[stream], problem.outs[out]);
    return GOING;
  }
};

// A map whose slots are made block by block when they are read.
struct MapWhenRead : Instruction {
  Map map;
  explicit MapWhenRead(Code& code) : map(code) {}
  Outcome run(Problem& problem, Team&) const override {
    for (int32_t slot : map.slots) problem.slots[slot].map = &map, problem.slots[slot].empty = false;
    return GOING;
  }
};

// Slots after an attention sub-layer: what the carry leaves, plus what the heads add.
struct Write : Instruction {
  struct Add {
    int32_t head, wide;
    std::vector<int32_t> columns;  // of what the head adds, for every column of the slot; -1: none
  };
  struct Target {
    int32_t slot, mode;  // 0: numbers, 1: nothing from here on, 2: an index, or rows made when read
    bool once, carried;
    Rows carry;
    std::vector<Add> adds;
  };
  int32_t stream;
  std::vector<Target> targets;

  explicit Write(Code& code) {
    targets.resize(code.next());
    for (Target& target : targets) {
      target.slot = small(code), target.mode = small(code);
      if (target.mode) continue;
      target.once = code.next(), target.carried = code.next();
      if (target.carried) target.carry = Rows(code);
      target.adds.resize(code.next());
      for (Add& add : target.adds) {
        add.head = small(code), add.wide = small(code);
        const int32_t many = small(code);
        for (int32_t c = 0; c < many; c++) add.columns.push_back(small(code));
      }
    }
  }

  Outcome run(Problem& problem, Team& team) const override {
    std::atomic<bool> good{true};
    for (const Target& target : targets) {
      if (target.mode) continue;
      const SlotType& type = problem.type(target.slot);
      const Written written(problem, target.slot);
      const int64_t tokens = rows_of(problem, type.stream, target.once);
      const bool whole = in_parts(team, tokens, 4096, [&](int64_t first, int64_t last, int who) {
        Lanes kept(problem.worker(who), type.width);
        for (int64_t at = first; at < last; at += LANES) {
          const Block block = problem.block(at, last);
          if (target.carried) problem.rows(problem.worker(who), block, target.carry, kept.data());
          for (int32_t c = 0; c < type.width; c++) {
            double* total = kept[c].v;
            if (!target.carried) std::fill(total, total + block.many, 0.0);
            for (const Add& add : target.adds) {
              if (add.columns[c] < 0) continue;
              const std::vector<double>& out = problem.outs[add.head];
              const int64_t step = (int64_t)out.size() == add.wide ? 0 : add.wide;  // one row for all tokens
              const double* more = out.data() + at * step + add.columns[c];
              for (int e = 0; e < block.many; e++) total[e] += more[e * step];
            }
          }
          if (!written.put(block, kept.data(), type.width)) good = false;
        }
      });
      if (!whole) return FAILED;
    }
    if (!good) return LAYER;
    for (const Target& target : targets) {
      Slot& slot = problem.slots[target.slot];
      if (target.mode == 1) slot.before = slot.empty ? nullptr : slot.now, slot.empty = slot.moved = true;
      else if (problem.type(target.slot).kind == LAZY) slot.empty = false;
      else problem.take_over(target.slot);
    }
    return GOING;
  }
};

// ---------------------------------------------------------------- layers
static std::unique_ptr<Instruction> make(Code& code) {
  switch (code.next()) {
    case 1: return std::make_unique<Map>(code);
    case 2: return std::make_unique<Write>(code);
    case 3: return make_choose(code);
    case 4: return make_gather(code);
    case 5: return make_rank(code);
    case 6: return make_soft(code);
    case 7: return make_lazy(code);
    case 8: return make_member_soft(code);
    case 9: return std::make_unique<MapWhenRead>(code);
    case 11: return make_kept(code);
    case 12: return make_best(code);
    default: return std::make_unique<Own>(code);
  }
}

bool Problem::within(const Limit& limit) const {
  const Slot& slot = slots[limit.slot];
  const SlotType& kind = type((int32_t)limit.slot);
  if (!slot.moved || slot.empty) return !slot.moved || !slot.before;
  const int64_t rows = kind.kind == UNIFORM ? 1 : tokens[kind.stream];
  const bool single = kind.single && kind.kind == DENSE;
  const auto at = [&](const void* all, int64_t i) { return single ? (double)((const float*)all)[i] : ((const double*)all)[i]; };
  double change = 0, size = 0;
  for (int64_t i = 0; i < rows * kind.width; i++) {
    const double now = at(slot.now, i), moved = now - (slot.before ? at(slot.before, i) : 0.0);
    change += moved * moved, size += now * now;
  }
  const double times = kind.kind == UNIFORM ? (double)tokens[kind.stream] : 1.0;
  return times * change <= limit.most + limit.share * times * size;
}

bool Problem::unchanged(Team& team) {
  if (!machine.limits.empty())
    return std::all_of(machine.limits.begin(), machine.limits.end(), [&](const Limit& limit) { return within(limit); });
  for (size_t s = 0; s < slots.size(); s++) {
    const SlotType& kind = type((int32_t)s);
    const Slot& slot = slots[s];
    if (!kind.field || !slot.moved || kind.kind == LAZY) continue;
    if (!tokens[kind.stream] && shared(kind.stream)) continue;  // all its tokens are with others
    if (!slot.before || slot.empty) return false;
    const int64_t many = (kind.kind == UNIFORM ? 1 : tokens[kind.stream]) * (kind.kind == INDEX ? 1 : kind.width);
    if (kind.kind == INDEX) {
      if (std::memcmp(slot.now, slot.before, many * sizeof(int32_t))) return false;
    } else if (kind.single && kind.kind == DENSE) {
      if (!std::equal((float*)slot.now, (float*)slot.now + many, (float*)slot.before)) return false;
    } else if (!std::equal((double*)slot.now, (double*)slot.now + many, (double*)slot.before)) {
      return false;
    }
  }
  for (size_t g = 0; g < machine.groups.size(); g++)
    if (!same(team, (int32_t)g)) return false;
  return true;
}

// Whether lazy fields hold what they held before the layer.
bool Problem::same(Team& team, int32_t group) {
  const LazyGroup& lazy = machine.groups[group];
  const bool counts = std::any_of(lazy.slots.begin(), lazy.slots.end(), [&](int32_t s) { return type(s).field; });
  if (!counts) return true;
  if (earlier[group].keys.number.empty()) return false;
  if (earlier[group].keys.number == snapshots[group].keys.number && earlier[group].values == snapshots[group].values)
    return true;
  std::atomic<bool> equal{true};
  in_parts(team, tokens[lazy.query], 4096, [&](int64_t first, int64_t last, int who) {
    for (int64_t at = first; at < last && equal; at += LANES) {
      const Block some = block(at, last);
      Tile old, now;
      fill(old, *this, worker(who), some, group, earlier[group]);
      fill(now, *this, worker(who), some, group, snapshots[group]);
      for (size_t s = 0; s < lazy.slots.size(); s++)
        for (size_t c = 0; c < old.slots[s].size() && type(lazy.slots[s]).field; c++)
          if (!std::equal(old.slots[s][c].v, old.slots[s][c].v + some.many, now.slots[s][c].v)) equal = false;
    }
  });
  return equal;
}

// At the end of a layer: it stands still if it does so in all processes.
Outcome Problem::agree() {
  if (machine.shares.shared.empty()) return GOING;
  double changed = !stable;
  const Outcome found = together(LARGEST, &changed, 1);
  stable = !changed;
  return found;
}

// As it was before the layer under way.
void Problem::roll_back() {
  stable = false;
  for (size_t s = 0; s < slots.size(); s++) {
    Slot& slot = slots[s];
    if (!slot.moved) continue;
    slot.now = slot.before, slot.empty = !slot.before, slot.moved = false;
  }
  snapshots = earlier;
  for (LazyTiles& kept : workers[0].tiles) kept.serial = ++serial;
  for (auto& kept : memory) kept.reset();
  at = machine.begins;
}

// What only saves work in the next layer, and what layers leave behind.
void Problem::forget() {
  memory.clear(), memory.resize(machine.list.size());
  outs.clear(), outs.resize(machine.outs);
  members.clear(), members.resize(machine.rankings);
}

void Problem::go(Team& team, Worker* mine, int32_t many, int64_t last, int32_t stop, bool until_stable) {
  workers = mine, hands = many;
  for (int32_t who = 0; who < many; who++) {  // what they hold is of another problem
    for (Worker::Making& making : workers[who].making)
      for (Tile& tile : making.tiles) tile.serial = 0;
    for (Columns& columns : workers[who].columns) columns.made.clear();
  }
  for (LazyTiles& kept : workers[0].tiles) {
    for (Tile& tile : kept.of) tile.serial = 0;
    kept.serial = ++serial;
  }
  outcome = GOING, left = false;
  const int32_t end = (int32_t)machine.list.size();
  for (;;) {
    if (at == machine.begins) {
      if (layer >= last || stable) return;
      for (Slot& slot : slots) slot.moved = false;
    }
    if (at == stop) return;  // a sub-layer without instructions
    if (at < end) outcome = machine.list[at]->run(*this, team);
    if (is_odd()) outcome = outcome == GOING ? LAYER : outcome;
    for (int32_t who = 0; who < hands; who++) workers[who].odd = false;
    if (outcome == GOING && at + 1 >= end) {
      stable = until_stable && unchanged(team);
      if (until_stable || machine.shares.confirms) outcome = agree();
    }
    if (outcome == LAYER && !machine.shares.shared.empty() && !left && together(LEAVE, nullptr, 0) == FAILED) outcome = FAILED;
    if (outcome == LAYER && at >= machine.begins) roll_back();
    if (outcome != GOING) return;
    settled = false;
    if (++at == stop) return;
    if (at < end) continue;
    if (until_stable) earlier = snapshots;
    layer++, at = machine.begins;
  }
}

// Lets all problems hold their slots in the first room, and what was there before the last layer in the second.
static void line_up(Problem& problem) {
  for (size_t s = 0; s < problem.slots.size(); s++) {
    Slot& slot = problem.slots[s];
    const SlotType& type = problem.type((int32_t)s);
    if (!slot.room[0] || slot.room[0] == slot.room[1]) continue;
    const int64_t many = (type.kind == UNIFORM ? 1 : problem.tokens[type.stream]) * (type.kind == INDEX ? 1 : type.width);
    const int64_t bytes = many * (type.kind == INDEX || (type.single && type.kind == DENSE) ? 4 : 8);
    if (slot.now == slot.room[1]) std::swap_ranges((char*)slot.now, (char*)slot.now + bytes, (char*)slot.room[0]);
    else if (slot.now && slot.now != slot.room[0]) std::memcpy(slot.room[0], slot.now, bytes);
    if (slot.now == slot.room[1] && slot.before && slot.before != slot.room[0])
      std::memcpy(slot.room[1], slot.before, bytes);
    else if (slot.now == slot.room[0] && slot.before && slot.before != slot.room[1])
      std::memcpy(slot.room[1], slot.before, bytes);
    if (slot.now) slot.now = slot.room[0];
    if (slot.before) slot.before = slot.room[1];
    problem.forget();
  }
}

}  // namespace weftc

using weftc::Machine;
using weftc::Problem;

extern "C" {

constexpr int64_t CODE_VERSION = 1;  // the way plans are written
constexpr size_t MANY = 1 << 14;     // of more problems than that none keeps anything between calls but its slots

// A machine for a plan and the arrays of a batch; null where memory ran out or the plan is written another way.
// code: version, streams, slots, (kind, stream, width, single, field, group, name) each, groups of lazy slots, heads'
// results, rankings, instructions before the first layer, instructions, then these. arrays: (slots, 4) addresses.
// store: of exponentials that are kept, for the same problems; it must outlive the machine.
void* weftc_machine(const int64_t* code, const double* real, void* const* arrays, const double* peaks, int64_t problems,
                   const int64_t* const* starts, const uint64_t* seeds, int32_t single, int32_t threads, int64_t base,
                   void* store) {
  try {
    weftc::Code read{code, real};
    if (read.next() != CODE_VERSION) return nullptr;
    auto machine = std::make_unique<Machine>();
    machine->single = single, machine->threads = threads, machine->base = base;
    machine->store = (weftc::Store*)store;
    machine->streams = (int32_t)read.next();
    const int64_t slots = read.next();
    for (int64_t s = 0; s < slots; s++) {
      weftc::SlotType type;
      type.kind = (int32_t)read.next(), type.stream = (int32_t)read.next(), type.width = (int32_t)read.next();
      type.single = read.next(), type.field = read.next(), type.group = (int32_t)read.next(), type.name = read.next();
      machine->types.push_back(type);
      machine->arrays.push_back({arrays[4 * s], {arrays[4 * s + 1], arrays[4 * s + 2]}, (double*)arrays[4 * s + 3]});
      machine->peaks.push_back(peaks[s]);
    }
    const int64_t groups = read.next();
    machine->groups.resize(groups);
    for (auto& group : machine->groups) {
      group.query = (int32_t)read.next(), group.keys = (int32_t)read.next();
      group.score = weftc::Score(read);
      const int64_t made = read.next();
      for (int64_t s = 0; s < made; s++) group.slots.push_back((int32_t)read.next());
      group.heads.resize(read.next());
      for (auto& head : group.heads) {
        head.kind = (int32_t)read.next(), head.slot = (int32_t)read.next(), head.names = (int32_t)read.next();
        const int64_t factors = read.next();
        for (int64_t f = 0; f < factors; f++) head.factor.push_back(read.number());
        head.value = weftc::Rows(read);
      }
    }
    machine->workers.resize(threads);
    for (auto& worker : machine->workers) worker.making.resize(groups), worker.tiles.resize(groups);
    machine->outs = (int32_t)read.next(), machine->rankings = (int32_t)read.next();
    machine->begins = (int32_t)read.next();
    const int64_t many = read.next();
    for (int64_t i = 0; i < many; i++) {
      machine->list.push_back(weftc::make(read));
      machine->list.back()->number = (int32_t)i;
    }
    for (int32_t s = 0; s < machine->streams; s++) machine->starts.emplace_back(starts[s], starts[s] + problems + 1);
    machine->seeds.assign(seeds, seeds + problems);
    for (int64_t p = 0; p < problems; p++) machine->problems.push_back(std::make_unique<Problem>(*machine, p));
    return machine.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Lets the machine of one problem share sets with other processes: by stream whether it does, and the tokens of all.
void weftc_machine_share(void* handle, const uint8_t* shared, const int64_t* totals, int32_t processes, int32_t confirms,
                         weftc::Together together) {
  Machine& machine = *(Machine*)handle;
  machine.shares = {{shared, shared + machine.streams}, {totals, totals + machine.streams}, processes, confirms != 0, together};
}

void weftc_machine_free(void* machine) { delete (Machine*)machine; }

// Runs the problems from `begin` up to `end`, to layer `last`, or until instruction `stop` comes next (-1: none). Status of each,
// (problems, 5): outcome, layers so far, whether it stands still, the instruction it stopped at, rows in doubt. 1: memory ran out,
// or what processes do together failed.
int32_t weftc_machine_run(void* handle, int64_t begin, int64_t end, int64_t last, int32_t stop, int32_t until_stable,
                          int64_t work, int64_t* status) {
  Machine& machine = *(Machine*)handle;
  try {
    const int64_t many = end - begin;
    const bool forget = machine.problems.size() > MANY;
    const bool side_by_side = many >= 2 * machine.threads || work < 1 << 16;
    const int threads = machine.threads;
    if (side_by_side) {
      const int used = many == 1 ? 1 : threads;
      weftc::Team::run(used, [&](weftc::Team& team) {
        const int64_t each = std::max<int64_t>(1, std::min<int64_t>(64, many / (8 * used)));
        team.ranges(many, each, [&](int64_t first, int64_t past, int who) {
          weftc::Worker* worker = machine.workers.data() + who;
          weftc::Team::run(1, [&](weftc::Team& alone) {
            for (int64_t p = begin + first; p < begin + past; p++) {
              machine.problems[p]->go(alone, worker, 1, last, stop, until_stable);
              if (machine.store) weftc::let_go(*machine.store, p);
              if (forget && stop < 0 && machine.problems[p]->outcome == weftc::GOING) machine.problems[p]->forget();
            }
          });
        });
      });
    } else {
      weftc::Team::run(threads, [&](weftc::Team& team) {
        for (int64_t p = begin; p < end; p++) {
          machine.problems[p]->go(team, machine.workers.data(), threads, last, stop, until_stable);
          if (machine.store) weftc::let_go(*machine.store, p);
        }
      });
    }
    for (int64_t p = 0; p < many; p++) {
      const Problem& problem = *machine.problems[begin + p];
      int64_t* out = status + 5 * p;
      out[0] = problem.outcome, out[1] = problem.layer, out[2] = problem.stable, out[3] = problem.at;
      out[4] = (int64_t)problem.doubt.size();
      if (problem.outcome == weftc::FAILED) return 1;
    }
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

// The rows in doubt of a problem.
void weftc_machine_doubt(void* handle, int64_t problem, int64_t* rows) {
  const auto& doubt = ((Machine*)handle)->problems[problem]->doubt;
  std::copy(doubt.begin(), doubt.end(), rows);
}

// Takes over what the caller decided for the rows in doubt: `labels` of each; and counts the tiers.
void weftc_machine_settle(void* handle, int64_t number, const int32_t* labels, int64_t bound, int64_t exact) {
  Problem& problem = *((Machine*)handle)->problems[number];
  problem.settled = true;
  problem.count(problem.at, bound, exact, 0);
  problem.answers.assign(labels, labels + problem.doubt.size());
}

// Lets runs until stable end with a layer that changes these slots by little, instead of nothing at all.
void weftc_machine_limit(void* handle, int64_t slot, double most, double share) {
  ((Machine*)handle)->limits.push_back({slot, most, share});
}

// A problem that runs no further: it stands still already.
void weftc_machine_stop(void* handle, int64_t number) { ((Machine*)handle)->problems[number]->stable = true; }

// Lets slots lie where the caller looks for them: now in the first room, before the last layer in the second.
// empty: (problems, slots), whether a slot holds nothing.
void weftc_machine_line_up(void* handle, uint8_t* empty) {
  Machine& machine = *(Machine*)handle;
  for (auto& problem : machine.problems) {
    weftc::line_up(*problem);
    for (const auto& slot : problem->slots) *empty++ = slot.empty;
  }
}

// Where the slots of a problem lie now; null: nothing.
void weftc_machine_slots(void* handle, int64_t number, const void** now) {
  for (const auto& slot : ((Machine*)handle)->problems[number]->slots) *now++ = slot.empty ? nullptr : slot.now;
}

// The tiers of all problems together, added to (layers, instructions, 3), and forgotten.
void weftc_machine_tiers(void* handle, int64_t layers, int64_t* out) {
  Machine& machine = *(Machine*)handle;
  for (auto& problem : machine.problems) {
    const size_t many = std::min(problem->tiers.size(), (size_t)layers * machine.list.size() * 3);
    for (size_t t = 0; t < many; t++) out[t] += problem->tiers[t];
  }
}
}
