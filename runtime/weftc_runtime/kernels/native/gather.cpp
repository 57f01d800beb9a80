// Sums and means over the tokens that an index, or a ranking, names: exact, rounded once.

#include "adder.h"
#include "machine.h"

namespace weftc {
namespace {

constexpr double ONE = 1;  // what weights are added up with, for every token
constexpr int32_t LEVELS[] = {2, 12};  // pieces of a number that sums have room for: first these, then those

// The sums of one array, moved along as labels change.
struct Sums {
  WeftSegments call{};
  std::vector<int64_t> sums, counts, work;
  std::vector<int64_t> merged;  // pieces and counts of all processes
  std::vector<double> rounded, out;
  int32_t levels = LEVELS[0];

  void start_anew(int32_t segments, int32_t columns, int32_t threads) {
    const size_t cells = (size_t)segments * columns;
    sums.assign(levels * cells, 0), counts.assign(segments, 0), work.assign((size_t)(threads - 1) * NEAR * cells, 0);
    rounded.assign(cells, 0.0), out.assign(cells, 0.0);
    call.segments = segments, call.columns = columns, call.levels = levels, call.threads = threads;
    call.sums = sums.data(), call.counts = counts.data(), call.work = work.data();
    call.rounded = rounded.data(), call.out = out.data();
    call.before = nullptr, call.before_weights = nullptr, call.moved = 0;
  }

  // GOING, or LAYER where the numbers differ by too many bits. `joint`: the rows of all processes are added up.
  Outcome add(Problem& problem, Team& team, bool joint) {
    for (;;) {
      const Outcome found = joint ? together(problem, team) : add_up(call, team) ? GOING : LAYER;
      if (found == FAILED || problem.left) return found;
      if (found == GOING) {
        call.before = call.labels, call.before_weights = call.weights;
        return GOING;
      }
      if (levels == LEVELS[1]) return LAYER;
      levels = LEVELS[1];
      start_anew(call.segments, call.columns, problem.hands);
    }
  }

  // Every process adds up its rows; the pieces of all are added, and whether they do not fit in some.
  Outcome together(Problem& problem, Team& team) {
    std::vector<uint8_t> touched(call.segments, 1);
    const bool good = accumulate(call, team, touched);
    merged = sums;
    merged.insert(merged.end(), counts.begin(), counts.end());
    merged.push_back(!good);
    const Outcome found = problem.together(ADD, merged.data(), (int64_t)merged.size());
    if (found != GOING) return found;
    if (merged.back()) return LAYER;
    WeftSegments every = call;
    every.sums = merged.data(), every.counts = merged.data() + sums.size();
    return put_out(every, team, touched) ? GOING : FAILED;
  }

  const int64_t* counted(bool joint) const { return joint ? merged.data() + sums.size() : counts.data(); }
};

struct Summing : Memory {
  Sums values, mass;
  std::vector<int32_t> labels[2];
  std::vector<double> weights[2], computed;
  double peak = -1, reach = -1;
  int turn = 0;
  bool begun = false;
  bool stays = false;  // no layer writes the values, in no process
};

int32_t top_of(double peak) {
  int power = 0;
  if (peak > 0) std::frexp(peak, &power), power = std::max(power, -500);
  return power;
}

struct Gather : Instruction {
  int32_t query, keys, writes, out, ranking, slot, classes;
  bool once, divide, masked, same, own;
  std::vector<int32_t> label;   // by class, where they are not the same
  std::vector<double> number_of;  // weight of a key by its class; empty: 1
  Rows weight, value, own_value;

  explicit Gather(Code& code) {
    query = (int32_t)code.next(), keys = (int32_t)code.next(), writes = (int32_t)code.next(), out = (int32_t)code.next();
    once = code.next(), divide = code.next(), masked = code.next(), own = code.next();
    ranking = (int32_t)code.next(), slot = (int32_t)code.next(), classes = (int32_t)code.next(), same = code.next();
    if (!same)
      for (int32_t c = 0; c <= classes; c++) label.push_back((int32_t)code.next());
    if (code.next())
      for (int32_t c = 0; c <= classes; c++) number_of.push_back(code.number());
    weight = Rows(code), value = Rows(code), own_value = Rows(code);
  }

  Outcome run(Problem& problem, Team& team) const override {
    const int64_t queries = rows_of(problem, query, once), tokens = problem.tokens[keys];
    if (!problem.memory[number]) problem.memory[number] = std::make_unique<Summing>();
    Summing& kept = (Summing&)*problem.memory[number];
    Worker& worker = problem.worker(0);
    const bool plain = value.plain && problem.type(value.slot).kind == DENSE && !problem.slots[value.slot].empty;
    Sums& sums = kept.values;
    kept.turn ^= 1;
    const int32_t* labels = labelled(problem, kept, tokens);
    const double* weights = weighted(problem, worker, kept, tokens);
    const bool weighs = !number_of.empty() || weight.count();
    const bool joint = problem.shared(keys);
    const bool stays = !tokens || (plain && !problem.machine.arrays[value.slot].room[0]);
    double peak;
    if (plain) {
      const SlotType& type = problem.type(value.slot);
      const Slot& from = problem.slots[value.slot];
      const void* data = type.single ? (void*)((float*)from.now + value.column) : (void*)((double*)from.now + value.column);
      const bool given = from.stays();  // else written anew, maybe in place
      if (sums.call.data != data || !given) {
        kept.begun = kept.begun && joint && kept.stays;
        sums.call.data = data, sums.call.stride = type.width, sums.call.is_double = !type.single;
        kept.peak = given ? problem.machine.peaks[value.slot] : NAN;
        if (kept.peak != kept.peak)
          kept.peak = type.single ? weftc::peak((const float*)data, type.width, 0, tokens, writes)
                                  : weftc::peak((const double*)data, type.width, 0, tokens, writes);
      }
      peak = kept.peak;
    } else {
      problem.numbers(worker, value, tokens, kept.computed);
      sums.call.data = kept.computed.data(), sums.call.stride = writes, sums.call.is_double = 1;
      peak = weftc::peak(kept.computed.data(), writes, 0, tokens, writes);
      kept.begun = kept.begun && joint && kept.stays;
    }
    double reach = weighs ? weftc::peak(weights, 1, 0, tokens, 1) : 1;
    if (joint && !(kept.begun && kept.stays && !weighs)) {  // all cut numbers in the same way
      double largest[] = {peak, reach, (double)!stays};
      for (double& each : largest) each = each != each ? INFINITY : each;
      if (const Outcome found = problem.together(LARGEST, largest, 3); found != GOING) return found;
      peak = largest[0], reach = largest[1], kept.stays = !largest[2];
      kept.begun = kept.begun && kept.stays;
    } else if (joint) {
      peak = 0;  // as it was
    }
    if (weighs) {
      if (!(reach <= kept.reach)) kept.begun = false, kept.reach = reach;
      reach = kept.reach;
    }
    if (!(peak * reach < 0x1p900 && reach < 0x1p900)) return LAYER;
    if (!kept.begun) {
      sums.start_anew((int32_t)queries, writes, problem.hands);
      sums.call.top = top_of(peak * reach), sums.call.rows = tokens, sums.call.total = problem.total(keys);
      if (weighs) {
        kept.mass.start_anew((int32_t)queries, 1, problem.hands);
        kept.mass.call.top = top_of(reach), kept.mass.call.rows = tokens, kept.mass.call.total = problem.total(keys);
        kept.mass.call.is_double = 1, kept.mass.call.data = &ONE, kept.mass.call.stride = 0;
      }
      kept.begun = true;
    }
    sums.call.labels = labels, sums.call.weights = weights, sums.call.divide = divide && !weighs;
    if (writes || joint)
      if (const Outcome found = sums.add(problem, team, joint); found != GOING) return found;
    std::vector<double>& to = problem.outs[out];
    to = sums.out;
    if (weighs && divide) {
      Sums& mass = kept.mass;
      mass.call.labels = labels, mass.call.weights = weights;
      if (const Outcome found = mass.add(problem, team, joint); found != GOING) return found;
      for (int64_t q = 0; q < queries; q++)
        for (int32_t w = 0; w < writes && mass.out[q] != 0; w++) to[q * writes + w] /= mass.out[q];
    }
    const int64_t* counts = sums.counted(joint);
    if (divide && !fall_back(problem, worker, queries, weighs ? &kept.mass.out : nullptr, counts, to)) return LAYER;
    if (masked) problem.count(number, once ? problem.tokens[query] : queries, 0, 0);
    return GOING;
  }

  // The query of every key, or none.
  const int32_t* labelled(Problem& problem, Summing& kept, int64_t tokens) const {
    if (ranking >= 0) {
      kept.labels[kept.turn].assign(problem.members[ranking].begin(), problem.members[ranking].end());
      return kept.labels[kept.turn].data();
    }
    const int32_t* from = slot >= 0 && !problem.slots[slot].empty ? (const int32_t*)problem.slots[slot].now : nullptr;
    if (same && from) return from;
    std::vector<int32_t>& made = kept.labels[kept.turn];
    made.resize(tokens);
    for (int64_t i = 0; i < tokens; i++) {
      const int32_t c = slot < 0 ? 0 : from && from[i] >= 0 ? from[i] : classes;
      made[i] = same ? (c == classes ? -1 : c) : label[c];
    }
    return made.data();
  }

  const double* weighted(Problem& problem, Worker& worker, Summing& kept, int64_t tokens) const {
    if (number_of.empty() && !weight.count()) return nullptr;
    std::vector<double>& made = kept.weights[kept.turn];
    if (weight.count()) {
      problem.numbers(worker, weight, tokens, made);
      return made.data();
    }
    made.resize(tokens);
    const int32_t* from = slot >= 0 && !problem.slots[slot].empty ? (const int32_t*)problem.slots[slot].now : nullptr;
    for (int64_t i = 0; i < tokens; i++) made[i] = number_of[slot < 0 ? 0 : from && from[i] >= 0 ? from[i] : classes];
    return made.data();
  }

  bool fall_back(Problem& problem, Worker& worker, int64_t queries, const std::vector<double>* mass,
                 const int64_t* counts, std::vector<double>& to) const {
    std::vector<double> own_values;
    for (int64_t q = 0; q < queries; q++) {
      if (mass ? (*mass)[q] != 0 : counts[q] != 0) continue;
      if (!own) return false;
      if (own_values.empty()) problem.numbers(worker, own_value, queries, own_values);
      std::copy(own_values.begin() + q * writes, own_values.begin() + (q + 1) * writes, to.begin() + q * writes);
    }
    return true;
  }
};

}  // namespace

std::unique_ptr<Instruction> make_gather(Code& code) { return std::make_unique<Gather>(code); }

}  // namespace weftc
