// Layers that consist of soft heads over kept exponentials, many in one call.
//
// A cell is a number of every token that the layer writes. Everything else that a head reads is a constant, or a number
// of a token that no layer changes, so that all its terms are affine in the cells of one token. Token arrays are padded
// to multiples of 64. Which thread does what changes no sum: the same bits for any number of them.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "exponentials.h"
#include "product.h"
#include "team.h"

extern "C" {

struct WeftAffine {  // constant + base + sum of factor * cell
  const double* base;  // null: none
  double constant;
  int32_t terms;
  const int32_t* cells;
  const double* factors;
};

struct WeftHead {
  int64_t queries, keys;
  int32_t kind;                  // 0: log-sum-exp, 1: softmax, 2: exp
  int32_t writes, own_key;       // columns that it adds to; whether its token is one more key
  WeftAffine own, other;         // terms of the score: of the query, of the key
  WeftAffine self;               // the score of its own key
  const WeftAffine* self_value;  // (writes,)
  const double* value;           // (writes,): of every key; of a log-sum-exp its factors
  const double* key_base;        // (keys,): what the matrix holds of the terms of the keys already
  const double* query_base;      // (queries,): and of those of the queries
  double slack;                  // how much of the range the matrix itself takes up
};

struct WeftWrite {  // cell = carry + sum of what heads add
  int64_t tokens;
  int32_t cell, adds;
  WeftAffine carry;
  const int32_t* heads;
  const int32_t* columns;
};

struct WeftPass {  // one pass over a matrix
  const void* matrix;
  int64_t rows, columns, stride;
  int32_t along, across;  // the heads whose keys are its columns and its rows; -1: none
};

struct WeftStep {
  int32_t heads, writes, passes;
  const WeftHead* head;
  const WeftWrite* write;
  const WeftPass* pass;
};

struct WeftLayers {
  int32_t is_double, single, steps, cells, threads, until_stable;
  const WeftStep* step;
  double* const* cell;
  double* const* before;  // cells at the start of the layer
  const int64_t* tokens;  // of each cell
  double reach;           // how far apart the terms of the keys may move
  int64_t layers;         // in: how many to run; out: how many are done
  int32_t at;             // in and out: the step to begin with
  int32_t stable;         // out
};

}  // extern "C"

namespace weftc {

enum Outcome { DONE = 0, MEMORY = 1, MOVED = 2, OVERFLOWN = 3 };
constexpr int MOST_WRITES = 8;  // columns of a head, writes of a step

static int64_t padded(int64_t count) { return (count + BLOCK - 1) / BLOCK * BLOCK; }

template <class Real>
class Layers {
 public:
  explicit Layers(WeftLayers& plan) : plan_(plan), room_(plan.steps) {
    for (int s = 0; s < plan.steps; s++) {
      const WeftStep& step = plan.step[s];
      room_[s].resize(step.heads);
      for (int h = 0; h < step.heads; h++) {
        Room& room = room_[s][h];
        room.moved.resize(padded(step.head[h].keys));
        room.low.resize(padded(step.head[h].keys) / BLOCK);
        room.high.resize(room.low.size());
        room.factor.resize(padded(step.head[h].keys));
        room.sum.resize(padded(step.head[h].queries));
      }
      for (int p = 0; p < step.passes; p++) {
        const WeftPass& pass = step.pass[p];
        if (pass.across < 0) continue;
        Room& room = room_[s][pass.across];
        room.parts = (pass.rows + part_rows(pass.rows) - 1) / part_rows(pass.rows);
        room.part.resize(room.parts * pass.columns);
        room.stride = pass.columns;
      }
    }
  }

  Outcome run() {
    const int64_t wanted = plan_.layers;
    int64_t entries = 0;
    for (int s = 0; s < plan_.steps; s++)
      for (int p = 0; p < plan_.step[s].passes; p++)
        entries += plan_.step[s].pass[p].rows * plan_.step[s].pass[p].columns;
    plan_.layers = 0;
    plan_.stable = 0;
    Outcome outcome = DONE;
    Team::run(entries < 1 << 16 ? 1 : plan_.threads, [&](Team& team) {
      while (outcome == DONE && plan_.layers < wanted && !plan_.stable) {
        if (plan_.until_stable && plan_.at == 0)
          for (int c = 0; c < plan_.cells; c++)
            std::memcpy(plan_.before[c], plan_.cell[c], sizeof(double) * plan_.tokens[c]);
        outcome = step(team);
        if (outcome != DONE || ++plan_.at < plan_.steps) continue;
        plan_.at = 0;
        plan_.layers++;
        plan_.stable = plan_.until_stable && unchanged();
      }
    });
    return outcome;
  }

 private:
  struct Room {
    std::vector<double> moved, sum, part, low, high;  // the last two: ends of what moved, per block
    std::vector<Real> factor;
    int64_t parts = 0, stride = 0;
    double middle = 0;
  };
  __attribute__((noinline)) void value(const WeftAffine& affine, int64_t at, double* out) const {
    if (affine.base)
      for (int e = 0; e < BLOCK; e++) out[e] = affine.base[at + e] + affine.constant;
    else
      for (int e = 0; e < BLOCK; e++) out[e] = affine.constant;
    for (int t = 0; t < affine.terms; t++) {
      const double* cell = plan_.cell[affine.cells[t]] + at;
      const double factor = affine.factors[t];
      for (int e = 0; e < BLOCK; e++) out[e] += factor * cell[e];
    }
  }

  // work(at, many) for blocks of tokens, several to a piece.
  template <class Work>
  static void blocks(Team& team, int64_t tokens, Work work) {
    team.share((tokens + PIECE - 1) / PIECE, [&](int64_t piece) {
      const int64_t last = std::min(tokens, (piece + 1) * PIECE);
      for (int64_t at = piece * PIECE; at < last; at += BLOCK) work(at, (int)std::min<int64_t>(BLOCK, last - at));
    });
  }

  bool unchanged() const {
    for (int c = 0; c < plan_.cells; c++)
      for (int64_t t = 0; t < plan_.tokens[c]; t++)
        if (plan_.cell[c][t] != plan_.before[c][t]) return false;
    return true;
  }

  Outcome step(Team& team) {
    const WeftStep& step = plan_.step[plan_.at];
    std::vector<Room>& rooms = room_[plan_.at];
    for (int h = 0; h < step.heads; h++)
      if (!weigh(step.head[h], rooms[h], team)) return MOVED;
    multiply(step, rooms, team);
    int64_t longest = 0;
    for (int w = 0; w < step.writes; w++) longest = std::max(longest, step.write[w].tokens);
    std::atomic<bool> odd{false};
    blocks(team, longest, [&](int64_t at, int) {
      if (!finish(step, rooms, at)) odd = true;
    });
    return odd ? OVERFLOWN : DONE;
  }

  // The factors of the keys; false when their terms have moved too far since the matrix was made.
  bool weigh(const WeftHead& head, Room& room, Team& team) {
    blocks(team, head.keys, [&](int64_t at, int many) {
      double* moved = room.moved.data() + at;
      value(head.other, at, moved);
      for (int e = 0; e < BLOCK; e++) moved[e] -= head.key_base[at + e];
      double low = moved[0], high = moved[0];
      bool odd = false;
      for (int e = 0; e < many; e++) {
        low = std::min(low, moved[e]);
        high = std::max(high, moved[e]);
        odd = odd || !(moved[e] - moved[e] == 0);
      }
      room.low[at / BLOCK] = odd ? std::numeric_limits<double>::quiet_NaN() : low;
      room.high[at / BLOCK] = high;
    });
    double low = room.low[0], high = room.high[0];
    bool odd = false;
    for (size_t b = 0; b < room.low.size(); b++) {
      odd = odd || room.low[b] != room.low[b];
      low = std::min(low, room.low[b]);
      high = std::max(high, room.high[b]);
    }
    if (odd || !(high - low + head.slack <= plan_.reach)) return false;
    const double middle = room.middle = (low + high) / 2;
    blocks(team, head.keys, [&](int64_t at, int many) {
      double x[BLOCK];
      for (int e = 0; e < BLOCK; e++) x[e] = room.moved[at + e] - middle;
      exps(x, room.factor.data() + at);
      for (int e = many; e < BLOCK; e++) room.factor[at + e] = 0;
    });
    return true;
  }

  void multiply(const WeftStep& step, std::vector<Room>& rooms, Team& team) {
    for (int p = 0; p < step.passes; p++) {
      const WeftPass& one = step.pass[p];
      const int64_t rows = part_rows(one.rows);
      const Real* matrix = (const Real*)one.matrix;
      Room* along = one.along < 0 ? nullptr : &rooms[one.along];
      Room* across = one.across < 0 ? nullptr : &rooms[one.across];
      team.share((one.rows + rows - 1) / rows, [&](int64_t part) {
        const int64_t first = part * rows, last = std::min(one.rows, first + rows);
        double* column = nullptr;
        if (across) {
          column = across->part.data() + part * across->stride;
          std::fill(column, column + one.columns, 0.0);
        }
        if (along && across)
          pass<Real, true, true>(matrix, one.stride, one.columns, first, last, along->factor.data(),
                                 across->factor.data(), along->sum.data(), column);
        else if (along)
          pass<Real, true, false>(matrix, one.stride, one.columns, first, last, along->factor.data(), nullptr,
                                  along->sum.data(), nullptr);
        else
          pass<Real, false, true>(matrix, one.stride, one.columns, first, last, nullptr, across->factor.data(),
                                  nullptr, column);
      });
    }
  }

  // What one head adds to 64 of its queries, (writes, 64).
  void summed(const WeftHead& head, const Room& room, int64_t at, double (*out)[BLOCK]) const {
    double mass[BLOCK], peak[BLOCK];
    if (room.parts) {
      for (int e = 0; e < BLOCK; e++) mass[e] = 0;
      for (int64_t p = 0; p < room.parts; p++)
        for (int e = 0; e < BLOCK; e++) mass[e] += room.part[p * room.stride + at + e];
    } else {
      std::memcpy(mass, room.sum.data() + at, sizeof mass);
    }
    value(head.own, at, peak);
    for (int e = 0; e < BLOCK; e++) peak[e] += room.middle - head.query_base[at + e];
    double own_peak[BLOCK], self[BLOCK];
    if (head.kind == 2) {
      for (int e = 0; e < BLOCK; e++) mass[e] *= std::exp(peak[e]);
      if (head.own_key) {
        value(head.self, at, own_peak);
        for (int e = 0; e < BLOCK; e++) own_peak[e] = std::exp(own_peak[e]);
      }
      for (int w = 0; w < head.writes; w++) {
        for (int e = 0; e < BLOCK; e++) out[w][e] = mass[e] * head.value[w];
        if (!head.own_key) continue;
        value(head.self_value[w], at, self);
        for (int e = 0; e < BLOCK; e++) out[w][e] += own_peak[e] * self[e];
      }
      return;
    }
    double right[BLOCK];  // the weight of its own key beside the mass of the others
    if (head.own_key) {
      double apart[BLOCK], less[BLOCK];
      value(head.self, at, own_peak);
      for (int e = 0; e < BLOCK; e++) apart[e] = -std::fabs(peak[e] - own_peak[e]);
      exps(apart, less);
      for (int e = 0; e < BLOCK; e++) {
        const bool first = peak[e] >= own_peak[e];
        mass[e] *= first ? 1.0 : less[e];
        right[e] = first ? less[e] : 1.0;
        peak[e] = first ? peak[e] : own_peak[e];
      }
    }
    if (head.kind == 0) {
      for (int e = 0; e < BLOCK; e++) {
        const double all = head.own_key ? mass[e] + right[e] : mass[e];
        own_peak[e] = peak[e] + std::log(all);
      }
      for (int w = 0; w < head.writes; w++)
        for (int e = 0; e < BLOCK; e++) out[w][e] = own_peak[e] * head.value[w];
      return;
    }
    for (int w = 0; w < head.writes; w++) {
      if (head.own_key) {
        value(head.self_value[w], at, self);
        for (int e = 0; e < BLOCK; e++)
          out[w][e] = (mass[e] * head.value[w] + right[e] * self[e]) / (mass[e] + right[e]);
      } else {
        for (int e = 0; e < BLOCK; e++) out[w][e] = mass[e] * head.value[w] / mass[e];
      }
    }
  }

  // Writes 64 tokens; false when a number does not fit.
  bool finish(const WeftStep& step, const std::vector<Room>& rooms, int64_t at) {
    bool good = true;
    double out[MOST_WRITES][MOST_WRITES][BLOCK], made[MOST_WRITES][BLOCK];
    for (int h = 0; h < step.heads; h++)
      if (at < step.head[h].queries) summed(step.head[h], rooms[h], at, out[h]);
    for (int w = 0; w < step.writes; w++) {
      const WeftWrite& write = step.write[w];
      if (at >= write.tokens) continue;
      value(write.carry, at, made[w]);
      for (int a = 0; a < write.adds; a++)
        for (int e = 0; e < BLOCK; e++) made[w][e] += out[write.heads[a]][write.columns[a]][e];
      if (plan_.single)
        for (int e = 0; e < BLOCK; e++) made[w][e] = (double)(float)made[w][e];
      const int many = (int)std::min<int64_t>(BLOCK, write.tokens - at);
      for (int e = 0; e < many; e++) good = good && made[w][e] - made[w][e] == 0;
      for (int e = many; e < BLOCK; e++) made[w][e] = 0;
    }
    for (int w = 0; w < step.writes; w++) {
      const WeftWrite& write = step.write[w];
      if (at < write.tokens) std::memcpy(plan_.cell[write.cell] + at, made[w], sizeof made[w]);
    }
    return good;
  }

  static constexpr int64_t PIECE = 16 * BLOCK;  // tokens that one thread takes at a time
  WeftLayers& plan_;
  std::vector<std::vector<Room>> room_;
};

template <class Real>
static Outcome run(WeftLayers& plan) {
  return Layers<Real>(plan).run();
}

}  // namespace weftc

extern "C" int32_t weftc_layers(WeftLayers* plan) {
  try {
    return plan->is_double ? weftc::run<double>(*plan) : weftc::run<float>(*plan);
  } catch (const std::exception&) {
    return weftc::MEMORY;
  }
}

extern "C" int32_t weftc_most_writes() { return weftc::MOST_WRITES; }
