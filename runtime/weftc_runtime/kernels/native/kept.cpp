// Soft heads whose scores are a part S that no layer changes, plus terms of one side alone: their exponentials are kept.
//
// score[i, j] = S[i, j] + a[i] + b[j]. Kept is K[i, j] = exp(S[i, j] + b0[j] - p[i]) for the b0 there was when it was made,
// and p[i] the largest of the row. Then sum_j exp(score[i, j]) = exp(a[i] + p[i]) sum_j K[i, j] exp(b[j] - b0[j]), and from
// the other side sum_i exp(score[i, j]) = exp(b[j] - b0[j]) sum_i K[i, j] exp(a[i] + p[i]): heads that see the same S from
// both sides need one matrix, and one pass over it. The largest entry of a row is 1, that of a column at least
// exp(-slack), so nothing that counts is lost as long as the terms of the keys have moved by much the same everywhere.
// When they have not, a matrix is made anew, and where that does not help, or takes too much room, the head runs as others.

#include <new>
#include <optional>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "product.h"
#include "soft.h"

namespace weftc {

// Exponentials of scores, for one problem and one S.
struct Kept {
  bool turned;  // whether its rows are the keys of the heads that are not turned
  int64_t rows, columns, wide, stride;
  void* matrix = nullptr;
  std::vector<double> row_peak, column_base;  // p and b0
  double slack = 0;                           // -log of the smallest of the largest entries of the columns
  bool rounded;                               // to float32

  Kept(bool turned, int64_t rows, int64_t columns, bool rounded)
      : turned(turned), rows(rows), columns(columns), wide((columns + LANES - 1) / LANES * LANES), stride(wide + 16),
        row_peak(padded_rows()), column_base(wide), rounded(rounded) {  // + 16: rows do not compete for a line of the cache
    matrix = ::operator new(bytes(), std::align_val_t(64));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    constexpr uintptr_t page = 1 << 21;  // large pages are touched for the first time several times faster
    const uintptr_t first = ((uintptr_t)matrix + page - 1) / page * page, last = ((uintptr_t)matrix + bytes()) / page * page;
    if (last > first) (void)madvise((void*)first, last - first, MADV_HUGEPAGE);  // a hint: failing changes nothing
#endif
  }
  ~Kept() { ::operator delete(matrix, std::align_val_t(64)); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  int64_t padded_rows() const { return (rows + ROWS - 1) / ROWS * ROWS; }
  size_t bytes() const { return bytes(rows, columns, rounded); }
  static size_t bytes(int64_t rows, int64_t columns, bool rounded) {
    return (size_t)((rows + ROWS - 1) / ROWS * ROWS) * ((columns + LANES - 1) / LANES * LANES + 16) * (rounded ? 4 : 8);
  }
  // How much of the range of exponents it takes up itself, and what it holds of the terms of the keys, for a head.
  double room(bool other) const { return other == turned ? 0 : slack; }
  const double* key_base(bool other) const { return other == turned ? column_base.data() : row_peak.data(); }
};

// The matrices of some problems; it outlives the machines that use it, so that calls for few layers share them.
struct Store {
  double reach;   // how far apart the terms of keys may move
  int64_t limit;  // bytes of one matrix, and of those of all problems that are kept after a call
  std::vector<std::vector<std::vector<std::shared_ptr<Kept>>>> of;  // by problem and costs: latest first, one a side
  std::atomic<int64_t> made{0}, passes{0};
};

void let_go(Store& store, int64_t problem) {
  int64_t bytes = 0;
  for (const auto& costs : store.of[problem])
    for (const auto& kept : costs) bytes += (int64_t)kept->bytes();
  if (bytes * (int64_t)store.of.size() <= store.limit || store.of.size() == 1) return;
  for (auto& costs : store.of[problem]) costs.clear();
}

namespace {

constexpr double LOWEST = -86;  // exponentials below it are 0 where they are kept in float32

// Rows a, b of two sides: their products, added up, where one side is the same for all tokens.
struct Terms {
  Rows rows, factors;

  void read(Code& code) { rows = Rows(code), factors = Rows(code); }

  // For every token of its side; the factors are those of the first token of the other.
  bool of(Problem& problem, Team& team, int64_t tokens, std::vector<double>& out) const {
    out.resize((tokens + LANES - 1) / LANES * LANES);
    Lanes factor(problem.worker(0), factors.count());
    problem.rows(problem.worker(0), problem.block(0, 1), factors, factor.data());
    return in_parts(team, tokens, 1024, [&](int64_t first, int64_t last, int who) {
      Lanes lanes(problem.worker(who), rows.count());
      for (int64_t at = first; at < last; at += LANES) {
        problem.rows(problem.worker(who), problem.block(at, last), rows, lanes.data());
        double* to = out.data() + at;
        std::fill(to, to + LANES, 0.0);
        for (int32_t r = 0; r < rows.count(); r++)
          for (int e = 0; e < LANES; e++) to[e] += factor[r].v[0] * lanes[r].v[e];
      }
    });
  }
};

struct KeptHead {
  std::vector<Head> one;  // the head as it runs without a matrix
  int32_t costs;
  bool turned, alike;  // alike: all keys have the same value
  Score still;
  Terms own, other;

  explicit KeptHead(Code& code) {
    one.emplace_back(code);
    costs = (int32_t)code.next(), turned = code.next(), alike = code.next();
    still = Score(code);
    own.read(code), other.read(code);
  }
  const Head& head() const { return one[0]; }
  // How many vectors the matrix is multiplied with: the weights, and their products with values.
  int32_t columns() const { return 1 + (head().number || alike ? 0 : head().writes); }
};

// What a head works with in one layer.
struct HeadRoom {
  std::vector<double> own, other, value;
  double middle = 0;
  std::vector<Lines<float>> factor32;
  std::vector<Lines<double>> factor64;
  std::vector<std::vector<double>> sum;  // by column: of every query
  std::shared_ptr<Kept> kept;
  std::vector<double> scores, own_value;

  template <class Real>
  auto& factor() {
    if constexpr (sizeof(Real) == 4) return factor32;
    else return factor64;
  }
};

template <class Real>
struct Numbers {
  static constexpr bool single = sizeof(Real) == 4;
  typedef Real Some __attribute__((vector_size(8 * sizeof(Real))));

  // exp of 8 numbers, with those that are next to nothing cut off.
  static Some exps(Eight x) {
    const Eight found = weftc::exps<single>(x);
    return __builtin_convertvector(single ? (x < every(LOWEST) ? Eight{} : found) : found, Some);
  }
  // The same of 64 numbers.
  static void exps(const double* x, Real* out) {
    for (int i = 0; i < EIGHTS; i++) {
      Eight number;
      std::memcpy(&number, x + 8 * i, sizeof number);
      const Some found = exps(number);
      std::memcpy(out + 8 * i, &found, sizeof found);
    }
  }
};

// row = matrix w, and column = z matrix, in one pass over the matrix; either may be left out.
template <class Real>
void once_over(Team& team, const Real* matrix, int64_t rows, int64_t wide, int64_t stride, const Real* w, const Real* z,
               double* row, double* column) {
  const int64_t each = part_rows(rows), parts = (rows + each - 1) / each;
  std::vector<double> columns(z ? parts * wide : 0);
  team.share(parts, [&](int64_t part) {
    const int64_t first = part * each, last = std::min(rows, first + each);
    double* sums = columns.data() + part * wide;
    if (w && z) pass<Real, true, true>(matrix, stride, wide, first, last, w, z, row, sums);
    else if (w) pass<Real, true, false>(matrix, stride, wide, first, last, w, nullptr, row, nullptr);
    else pass<Real, false, true>(matrix, stride, wide, first, last, nullptr, z, nullptr, sums);
  });
  if (!z) return;
  std::fill(column, column + wide, 0.0);
  for (int64_t part = 0; part < parts; part++)
    for (int64_t k = 0; k < wide; k++) column[k] += columns[part * wide + k];
}

struct KeptSoft : Instruction {
  std::vector<KeptHead> heads;

  explicit KeptSoft(Code& code) {
    const int64_t many = code.next();
    for (int64_t h = 0; h < many; h++) heads.emplace_back(code);
  }

  Outcome run(Problem& problem, Team& team) const override {
    return (problem.machine.single ? as<float>(problem, team) : as<double>(problem, team)) ? GOING : LAYER;
  }

  template <class Real>
  bool as(Problem& problem, Team& team) const {
    std::vector<HeadRoom> rooms(heads.size());
    for (size_t h = 0; h < heads.size(); h++)
      if (!begin<Real>(problem, team, heads[h], rooms[h]) && add_up(problem, team, heads[h].one, number) != GOING)
        return false;
    multiply<Real>(problem, team, rooms);
    for (size_t h = 0; h < heads.size(); h++)
      if (rooms[h].kept && !end(problem, team, heads[h], rooms[h])) return false;
    return true;
  }

  // Finds a matrix for a head, or makes one, and what it is multiplied with; false where the head runs without.
  template <class Real>
  static bool begin(Problem& problem, Team& team, const KeptHead& head, HeadRoom& room) {
    const int64_t queries = problem.tokens[head.head().query], keys = problem.tokens[head.head().keys];
    Store& store = *problem.machine.store;
    if (!queries || !keys || (int64_t)Kept::bytes(queries, keys, sizeof(Real) == 4) > store.limit) return false;
    if (!head.own.of(problem, team, queries, room.own) || !head.other.of(problem, team, keys, room.other)) return false;
    auto& known = store.of[problem.number][head.costs];
    double low, high;
    const auto serves = [&](const Kept& kept) {
      const double* base = kept.key_base(head.turned);
      // the terms of the rows of a matrix are relative to its peaks, with their sign turned around
      const double sign = head.turned == kept.turned ? -1 : 1;
      low = high = room.other[0] + sign * base[0];
      bool odd = false;
      for (int64_t k = 0; k < keys; k++) {
        const double moved = room.other[k] + sign * base[k];
        low = std::min(low, moved), high = std::max(high, moved);
        odd = odd || !(moved - moved == 0);
      }
      return !odd && high - low + kept.room(head.turned) <= store.reach;
    };
    for (size_t at = 0; at < known.size() && !room.kept; at++)
      if (serves(*known[at])) room.kept = known[at];
    if (room.kept && room.kept == known[0] && room.kept->turned != head.turned) known.resize(1);  // it serves both sides
    if (!room.kept) {
      known.erase(std::remove_if(known.begin(), known.end(), [&](const auto& kept) { return kept->turned == head.turned; }),
                  known.end());  // let go before another is made
      auto made = std::make_shared<Kept>(head.turned, queries, keys, sizeof(Real) == 4);
      if (!fill<Real>(problem, team, head, room, *made) || !serves(*made)) return false;
      known.insert(known.begin(), made);
      room.kept = made, store.made++;
    }
    room.middle = (low + high) / 2;
    return weigh<Real>(problem, team, head, room, keys);
  }

  // The vectors that the matrix of a head is multiplied with.
  template <class Real>
  static bool weigh(Problem& problem, Team& team, const KeptHead& head, HeadRoom& room, int64_t keys) {
    const bool along = head.turned == room.kept->turned;
    const double* base = room.kept->key_base(head.turned);
    const int64_t wide = along ? room.kept->wide : std::max(room.kept->padded_rows(), (int64_t)room.other.size());
    const int32_t columns = head.columns();
    auto& factor = room.factor<Real>();
    for (int32_t c = 0; c < columns; c++) factor.emplace_back(wide);
    if (head.alike && !head.head().number) problem.numbers(problem.worker(0), head.head().value, 1, room.value);
    const uint64_t serial = problem.serial;
    problem.serial += keys;
    return in_parts(team, keys, 1024, [&](int64_t first, int64_t last, int who) {
      Lanes values(problem.worker(who), columns - 1);
      for (int64_t at = first; at < last; at += LANES) {
        Block block = problem.block(at, last);
        block.serial = serial + 1 + at;
        double x[LANES];
        for (int e = 0; e < LANES; e++) {
          const double held = at + e < keys ? base[at + e] : 0;
          x[e] = (along ? room.other[at + e] - held : room.other[at + e] + held) - room.middle;
        }
        Real* to = factor[0].data() + at;
        Numbers<Real>::exps(x, to);
        for (int e = block.many; e < LANES; e++) to[e] = 0;
        if (columns > 1) problem.rows(problem.worker(who), block, head.head().value, values.data());
        for (int32_t c = 1; c < columns; c++)
          for (int e = 0; e < block.many; e++) factor[c][at + e] = (Real)(to[e] * values[c - 1].v[e]);
      }
    });
  }

  // Makes a matrix for a head as the terms of its keys are now; false where a score has no value.
  template <class Real>
  static bool fill(Problem& problem, Team& team, const KeptHead& head, const HeadRoom& room, Kept& out) {
    Side side;
    problem.side(problem.worker(0), head.still, true, out.rows, side);
    const int32_t features = head.still.features;
    side.largest = largest_size(side.number.data(), (int64_t)side.number.size());
    std::vector<Lane> keys((size_t)(out.wide / LANES) * features);
    std::atomic<bool> good{true};
    bool whole = in_parts(team, out.columns, 1024, [&](int64_t first, int64_t last, int who) {
      for (int64_t at = first; at < last; at += LANES) {
        const Block block = problem.block(at, last);
        Lane* lanes = keys.data() + at / LANES * features;
        problem.features(problem.worker(who), block, head.still, false, lanes);
        if (!in_range(head.still, lanes, block.many, side.largest)) good = false;
      }
    });
    std::copy(room.other.begin(), room.other.begin() + out.columns, out.column_base.begin());
    const Scorer scorer{head.still, side, true};
    const int64_t each = part_rows(out.padded_rows()), parts = (out.padded_rows() + each - 1) / each;
    std::vector<Real> most(parts * out.wide);  // the largest entries of the columns, part by part
    whole = whole && good && team.ranges(out.padded_rows(), each, [&](int64_t first, int64_t last, int) {
      std::vector<Lane> scores(out.wide / LANES);
      Real* high = most.data() + first / each * out.wide;
      for (int64_t row = first; row < last; row++) {
        Real* to = (Real*)out.matrix + row * out.stride;
        if (row >= out.rows) {
          std::fill(to, to + out.stride, Real(0));
          continue;
        }
        Eight top = every(NONE);
        for (size_t b = 0; b < scores.size(); b++) {
          Eight* s = scores[b].eights();
          scorer(row, keys.data() + b * features, s);
          for (int i = 0; i < EIGHTS; i++) {
            Eight base;
            std::memcpy(&base, out.column_base.data() + b * LANES + 8 * i, sizeof base);
            s[i] += base;
          }
          for (int64_t e = out.columns - (int64_t)b * LANES; e < LANES; e++) scores[b].v[e] = NONE;
          for (int i = 0; i < EIGHTS; i++) top = larger(top, s[i]);
        }
        const double peak = out.row_peak[row] = largest(top);
        if (!(peak - peak == 0)) good = false;
        for (size_t b = 0; b < scores.size(); b++) {
          for (int i = 0; i < EIGHTS; i++) {
            const typename Numbers<Real>::Some found = Numbers<Real>::exps(scores[b].eights()[i] - peak);
            typename Numbers<Real>::Some before;
            const int64_t at = b * LANES + 8 * i;
            std::memcpy(to + at, &found, sizeof found);
            std::memcpy(&before, high + at, sizeof before);
            before = found > before ? found : before;
            std::memcpy(high + at, &before, sizeof before);
          }
        }
        std::fill(to + out.columns, to + out.stride, Real(0));
      }
    });
    if (!whole || !good) return false;
    Real least = 1;
    for (int64_t c = 0; c < out.columns; c++) {
      Real high = 0;
      for (int64_t part = 0; part < parts; part++) high = std::max(high, most[part * out.wide + c]);
      least = std::min(least, high);
    }
    out.slack = least > 0 ? -std::log((double)least) : -NONE;
    return true;
  }

  // Multiplies matrices: where two heads see one from both sides, in one pass.
  template <class Real>
  void multiply(Problem& problem, Team& team, std::vector<HeadRoom>& rooms) const {
    struct Pass {
      Kept* kept;
      int64_t side[2][2];  // head and column whose keys are its columns, and its rows
    };
    std::vector<Pass> passes;
    for (size_t h = 0; h < heads.size(); h++) {
      HeadRoom& room = rooms[h];
      if (!room.kept) continue;
      const int side = heads[h].turned != room.kept->turned;
      room.sum.resize(heads[h].columns());
      for (int32_t c = 0; c < heads[h].columns(); c++) {
        auto free = std::find_if(passes.begin(), passes.end(),
                                 [&](const Pass& one) { return one.kept == room.kept.get() && one.side[side][0] < 0; });
        if (free == passes.end()) free = passes.insert(free, Pass{room.kept.get(), {{-1, 0}, {-1, 0}}});
        free->side[side][0] = (int64_t)h, free->side[side][1] = c;
        room.sum[c].resize(side ? room.kept->wide : room.kept->padded_rows());
      }
    }
    for (const Pass& one : passes) {
      const auto [along, a] = one.side[0];
      const auto [across, c] = one.side[1];
      const Real* w = along < 0 ? nullptr : rooms[along].template factor<Real>()[a].data();
      const Real* z = across < 0 ? nullptr : rooms[across].template factor<Real>()[c].data();
      const Kept& kept = *one.kept;
      once_over(team, (const Real*)kept.matrix, kept.padded_rows(), kept.wide, kept.stride, w, z,
                along < 0 ? nullptr : rooms[along].sum[a].data(), across < 0 ? nullptr : rooms[across].sum[c].data());
      problem.machine.store->passes++;
    }
  }

  // What a head adds to its queries.
  static bool end(Problem& problem, Team& team, const KeptHead& kept, HeadRoom& room) {
    const Head& head = kept.head();
    const int64_t queries = problem.tokens[head.query];
    const bool along = kept.turned == room.kept->turned;
    const double* base = along ? room.kept->row_peak.data() : room.kept->column_base.data();
    std::vector<double>& out = problem.outs[head.out];
    out.assign(queries * head.writes, 0.0);
    if (head.own_competes) problem.numbers(problem.worker(0), head.own_score, queries, room.scores);
    if (head.own_competes) problem.numbers(problem.worker(0), head.own_value, queries, room.own_value);
    std::atomic<bool> good{true};
    const bool whole = in_parts(team, queries, 1024, [&](int64_t first, int64_t last, int) {
      for (int64_t at = first; at < last; at += LANES) {
        const int many = (int)std::min<int64_t>(LANES, last - at);
        Lane peak{}, mass{}, left{}, right{};  // left, right: what the sums, and its own key, are multiplied with
        for (int e = 0; e < many; e++) peak.v[e] = room.own[at + e] + room.middle + (along ? base[at + e] : -base[at + e]);
        std::copy(room.sum[0].data() + at, room.sum[0].data() + at + many, mass.v);
        if (head.own_competes) std::copy(room.scores.data() + at, room.scores.data() + at + many, right.v);
        weigh_own(head, peak, mass, left, right);
        for (int e = 0; e < many; e++) good = good && mass.v[e] > 0 && mass.v[e] - mass.v[e] == 0;
        const Lane number = head.kind == LSE ? logarithms(peak, mass) : Lane{};
        for (int32_t w = 0; w < head.writes; w++)
          for (int e = 0; e < many; e++) {
            const double* own = head.own_competes ? room.own_value.data() + (at + e) * head.writes : nullptr;
            double value = number.v[e];
            if (head.number) {
              value *= head.factor[w];
            } else {
              value = left.v[e] * (kept.alike ? room.sum[0][at + e] * room.value[w] : room.sum[w + 1][at + e]);
              if (own) value += right.v[e] * own[w];
              if (head.kind == SOFTMAX) value /= mass.v[e];
            }
            out[(at + e) * head.writes + w] = value;
            if (!(value - value == 0)) good = false;
          }
      }
    });
    return whole && good;
  }

  // What sums are multiplied with beside a key of one's own, whose score `right` has; mass becomes that of both.
  static void weigh_own(const Head& head, Lane& peak, Lane& mass, Lane& left, Lane& right) {
    for (int i = 0; i < EIGHTS; i++) {
      Eight &p = peak.eights()[i], &l = left.eights()[i], &r = right.eights()[i], &m = mass.eights()[i];
      if (head.kind == EXPONENTIAL) {
        l = exps<false>(p), r = exps<false>(r);
        continue;
      }
      l = every(1.0);
      if (!head.own_competes) continue;
      const Eight apart = p - r, less = exps<false>(apart < Eight{} ? apart : -apart);
      l = apart < Eight{} ? less : every(1.0), p = apart < Eight{} ? r : p;
      r = apart < Eight{} ? every(1.0) : less;
      m = m * l + r;
    }
  }

  static Lane logarithms(const Lane& peak, const Lane& mass) {
    Lane out;
    for (int i = 0; i < EIGHTS; i++) out.eights()[i] = peak.eights()[i] + logs(mass.eights()[i]);
    return out;
  }
};

}  // namespace

std::unique_ptr<Instruction> make_kept(Code& code) { return std::make_unique<KeptSoft>(code); }

}  // namespace weftc

extern "C" {

// Room for the matrices of problems, by what their scores have in common; null where memory ran out.
void* weftc_store(int64_t problems, int64_t costs, double reach, int64_t limit) {
  try {
    auto made = std::make_unique<weftc::Store>();
    made->reach = reach, made->limit = limit;
    made->of.resize(problems);
    for (auto& of : made->of) of.resize(costs);
    return made.release();
  } catch (const std::exception&) {
    return nullptr;
  }
}

void weftc_store_free(void* store) { delete (weftc::Store*)store; }

// How many matrices were made, and how often one was passed over; how many there are, with their bytes.
void weftc_store_counts(const void* handle, int64_t* counts) {
  const auto& store = *(const weftc::Store*)handle;
  counts[0] = store.made, counts[1] = store.passes, counts[2] = counts[3] = 0;
  for (const auto& problem : store.of)
    for (const auto& costs : problem)
      for (const auto& kept : costs) counts[2]++, counts[3] += (int64_t)kept->bytes();
}

// The kernels by themselves. exp of `count` numbers, a multiple of 64; as they are kept in float32, or in float64.
void weftc_exponentials(const double* x, int64_t count, int32_t single, double* out) {
  for (int64_t at = 0; at < count; at += weftc::LANES) {
    float narrow[weftc::LANES];
    if (!single) {
      weftc::Numbers<double>::exps(x + at, out + at);
      continue;
    }
    weftc::Numbers<float>::exps(x + at, narrow);
    std::copy(narrow, narrow + weftc::LANES, out + at);
  }
}

// out[i] = sum_j matrix[i, j] x[j], or turned: out[j] = sum_i matrix[i, j] x[i]. Rows are a multiple of 8, columns of 64.
void weftc_product(const void* matrix, int32_t is_double, int64_t rows, int64_t columns, int64_t stride, int32_t turned,
                   const void* x, double* out, int32_t threads) {
  weftc::Team::run(threads, [&](weftc::Team& team) {
    const auto times = [&](auto* numbers, auto* by) {
      weftc::once_over(team, numbers, rows, columns, stride, turned ? nullptr : by, turned ? by : nullptr, out, out);
    };
    is_double ? times((const double*)matrix, (const double*)x) : times((const float*)matrix, (const float*)x);
  });
}
}
