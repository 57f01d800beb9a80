// The best key of every query by a polynomial score; the first of the best.
//
// Where queries are numbers as they are stored and scores are distances or inner products, the certified search of
// finder.h looks for them. Otherwise scores are made in float64 with their bound, one key to a lane for few queries, and
// one query to a lane for few keys. What a bound leaves open is settled exactly (exact.h), and what cannot be, by the caller.

#include "exact.h"
#include "finder.h"

namespace weftc {
namespace {

constexpr int64_t SAMPLE = 1 << 15;  // stored numbers looked at together
constexpr int32_t NARROW = 8;        // features from which a first look in 16 bits pays
constexpr int32_t MANY = 500;        // features times keys from which scores cost more than bounds

struct Searching : Memory {
  std::unique_ptr<Finder> finder;
  const void* data = nullptr;
  std::vector<double> copy, keys;
  std::vector<int32_t> labels[2];
  int turn = 0;
};

struct Candidate {
  int64_t key;
  double low, high;
};

// What a scan of keys works with; used again.
struct Scanning : Memory {
  std::vector<std::vector<Candidate>> found;  // by part of the keys, and query
  std::vector<Candidate> all;
  Side side;
  std::vector<Rows> fixed;  // the keys of every part of the score without random numbers
  double rounding = 0;
};

struct Choose : Instruction {
  int32_t query, keys, slot, out, writes;
  bool once, finds, noisy;
  Score score;
  Rows value;

  explicit Choose(Code& code) {
    query = (int32_t)code.next(), keys = (int32_t)code.next(), once = code.next(), finds = code.next();
    noisy = code.next(), slot = (int32_t)code.next(), out = (int32_t)code.next(), writes = (int32_t)code.next();
    score = Score(code);
    value = Rows(code);
  }

  Outcome run(Problem& problem, Team& team) const override {
    const int64_t queries = rows_of(problem, query, once);
    if (!problem.memory[number]) problem.memory[number] = std::make_unique<Searching>();
    Searching& kept = (Searching&)*problem.memory[number];
    int32_t* label;
    if (slot >= 0) {
      label = (int32_t*)problem.room(slot);
    } else {
      kept.labels[kept.turn].resize(queries);
      label = kept.labels[kept.turn].data();
    }
    if (problem.settled) {
      for (size_t at = 0; at < problem.doubt.size(); at++) label[problem.doubt[at]] = problem.answers[at];
      problem.doubt.clear();
    } else {
      problem.doubt.clear();
      const bool good = finds ? find(problem, team, kept, queries, label) : scan(problem, team, queries, label);
      if (!good) return FAILED;
      if (!problem.doubt.empty()) return DOUBT;
    }
    kept.turn ^= 1;
    if (out >= 0) take(problem, queries, label);
    return GOING;
  }

  // The values of the keys that were chosen.
  void take(Problem& problem, int64_t queries, const int32_t* label) const {
    std::vector<double>& to = problem.outs[out];
    to.resize(queries * writes);
    Lanes lanes(problem.worker(0), writes);
    for (int64_t at = 0; at < queries; at += LANES) {
      const Block block{label + at, 0, (int)std::min<int64_t>(LANES, queries - at), ++problem.serial};
      problem.rows(problem.worker(0), block, value, lanes.data());
      for (int e = 0; e < block.many; e++)
        for (int32_t w = 0; w < writes; w++) to[(at + e) * writes + w] = lanes[w].v[e];
    }
  }

  // ---------------------------------------------------------------- the search
  bool find(Problem& problem, Team& team, Searching& kept, int64_t queries, int32_t* label) const {
    const Part& part = score.parts[0];
    const int64_t count = problem.tokens[keys];
    problem.numbers(problem.worker(0), part.keys, count, kept.keys);
    const Slot& from = problem.slots[part.query.slot];
    if (!kept.finder || kept.data != from.now) prepare(problem, kept, queries);
    if (kept.finder) {
      WeftFind ask{};
      ask.keys = kept.keys.data(), ask.count = (int32_t)count, ask.first = 1, ask.threads = problem.hands, ask.label = label;
      if (!kept.finder->find(ask, team)) return false;
      problem.doubt.assign(ask.doubt, ask.doubt + ask.doubtful);
      problem.count(number, ask.settled_f64, 0, queries);
    } else {  // numbers beyond the range of the search
      problem.doubt.resize(queries);
      for (int64_t i = 0; i < queries; i++) problem.doubt[i] = i;
      problem.count(number, 0, 0, queries);
    }
    if (!problem.doubt.empty()) settle(problem, kept, label);
    return true;
  }

  template <class Real>
  void measure(const Real* data, int64_t stride, int64_t rows, int32_t columns, double peak, WeftQueries& out,
               std::vector<double>& centre) const {
    out.whole = peak <= 0x1p11;
    for (int64_t i = 0; i < rows && out.whole; i++)
      for (int32_t c = 0; c < columns; c++) out.whole &= data[i * stride + c] == std::nearbyint(data[i * stride + c]);
    const int64_t wanted = std::max<int64_t>(64, std::min<int64_t>(4096, SAMPLE / std::max(1, columns)));
    const int64_t step = std::max<int64_t>(1, rows / wanted), some = (rows + step - 1) / step;
    if (out.distance && !out.whole) {
      for (int64_t i = 0; i < rows; i += step)
        for (int32_t c = 0; c < columns; c++) centre[c] += (double)data[i * stride + c];
      for (double& each : centre) {
        int power;
        const double part = std::frexp(each / (double)some, &power);
        each = std::ldexp((double)(float)part, power);
      }
    }
    double size = 0, longest = 0;
    for (double each : centre) size = std::max(size, std::fabs(each));
    size += peak;
    for (int64_t i = 0; i < rows; i += step) {
      double square = 0;
      for (int32_t c = 0; c < columns; c++) {
        const double gap = (double)data[i * stride + c] - centre[c];
        square += gap * gap;
      }
      longest = std::max(longest, square);
    }
    const double power = size > 0 ? std::max(-900.0, std::min(900.0, std::ceil(std::log2(size)))) : 0;
    out.power = out.whole ? 1.0 : std::ldexp(1.0, -(int)power);
    out.peak = peak, out.top = size * out.power, out.length = std::sqrt(longest) * out.power;
  }

  void prepare(Problem& problem, Searching& kept, int64_t queries) const {
    const Rows& rows = score.parts[0].query;
    const SlotType& type = problem.type(rows.slot);
    const Slot& slot = problem.slots[rows.slot];
    const int32_t columns = rows.count();
    kept.data = slot.now;
    WeftQueries made{};
    made.stride = type.width, made.rows = queries, made.is_double = !type.single, made.features = columns;
    made.distance = score.parts[0].distance, made.bounds = 1, made.many = MANY;
    double peak = slot.now == problem.machine.arrays[rows.slot].given ? problem.machine.peaks[rows.slot] : NAN;
    if (peak != peak)
      peak = type.single ? weftc::peak((const float*)slot.now + rows.column, type.width, 0, queries, columns)
                         : weftc::peak((const double*)slot.now + rows.column, type.width, 0, queries, columns);
    kept.finder.reset();
    if (!(peak < 0x1p480)) return;
    std::vector<double> centre(columns);
    if (type.single) measure((float*)slot.now + rows.column, type.width, queries, columns, peak, made, centre);
    else measure((double*)slot.now + rows.column, type.width, queries, columns, peak, made, centre);
    const bool narrow = type.single && !(made.power > 0x1p-100 && made.power < 0x1p100);
    made.shorts = columns >= NARROW && !narrow;
    if (narrow) {
      kept.copy.resize(queries * columns);
      for (int64_t i = 0; i < queries; i++)
        for (int32_t c = 0; c < columns; c++)
          kept.copy[i * columns + c] = (double)((float*)slot.now)[i * type.width + rows.column + c];
      made.data = kept.copy.data(), made.stride = columns, made.is_double = 1;
    } else {
      made.data = type.single ? (void*)((float*)slot.now + rows.column) : (void*)((double*)slot.now + rows.column);
    }
    made.centre = centre.data();
    kept.finder = std::make_unique<Finder>(made);
  }

  // Settles rows in doubt exactly; those that remain are the caller's.
  void settle(Problem& problem, const Searching& kept, int32_t* label) const {
    if (!score.exact) return;
    const Part& part = score.parts[0];
    const int64_t count = problem.tokens[keys];
    const int32_t wide = part.query.count();
    Worker& worker = problem.worker(0);
    Lanes lanes(worker, score.features);
    std::vector<double> row(score.features);
    std::vector<int32_t> list(1);
    std::vector<int64_t> left;
    std::vector<Candidate> found;
    int64_t bound = 0, exact = 0;
    for (int64_t i : problem.doubt) {
      list[0] = (int32_t)i;
      const Block block{list.data(), 0, 1, ++problem.serial};
      problem.rows(worker, block, part.query, lanes.data());
      for (int32_t f = 0; f < wide; f++) row[f] = lanes[f].v[0];
      found.clear();
      double best = -INFINITY;
      for (int64_t j = 0; j < count; j++) {
        double sum = 0, size = 0;
        for (int32_t f = 0; f < wide; f++) {
          const double k = kept.keys[j * wide + f], term = part.distance ? (row[f] - k) * (row[f] - k) : row[f] * k;
          sum += term, size += std::fabs(term);
        }
        sum *= part.distance ? part.coefficient : 1.0, size *= std::fabs(part.distance ? part.coefficient : 1.0);
        const double error = share(score) * size * (1 + 0x1p-30) + 0x1p-1000;
        found.push_back({j, sum - error, sum + error});
        best = std::max(best, sum - error);
      }
      const int told = pick(worker, row.data(), kept.keys.data(), wide, found, best, label[i]);
      bound += told == 0, exact += told == 1;
      if (told == 2) left.push_back(i);
    }
    problem.count(number, bound, exact, 0);
    problem.doubt.swap(left);
  }

  // The best of some candidates: 0 by their bounds, 1 exactly, 2 not at all.
  int pick(Worker& worker, const double* row, const double* features, int32_t wide, std::vector<Candidate>& found, double best,
           int32_t& label) const {
    found.erase(std::remove_if(found.begin(), found.end(), [&](const Candidate& c) { return !(c.high >= best); }), found.end());
    if (found.empty() || !(best - best == 0)) return 2;
    label = (int32_t)found[0].key;
    if (found.size() == 1) return 0;
    if (!score.exact) return 2;
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
    size_t first = 0;
    for (size_t at = 1; at < found.size(); at++) {
      const double *a = features + found[at].key * wide, *b = features + found[first].key * wide;
      const int sign = compare(score, row, a, b, worker);
      if (sign == 2) return 2;
      if (sign > 0) first = at;
    }
    label = (int32_t)found[first].key;
    return 1;
  }

  // ---------------------------------------------------------------- any score
  bool scan(Problem& problem, Team& team, int64_t queries, int32_t* label) const {
    const int64_t count = problem.tokens[keys];
    return count > queries ? by_keys(problem, team, queries, count, label) : by_queries(problem, team, queries, count, label);
  }

  // How far drawn numbers may be from those of the generator that defines them (draw.cpp), for one key and query.
  double noise_error(const Problem& problem, const double* own, const Lane* sizes, int lane) const {
    double error = 0;
    for (const Part& part : score.parts)
      for (int32_t f = 0; f < part.keys.count(); f++)
        for (int32_t t = part.keys.start[f]; t < part.keys.start[f + 1]; t++) {
          const SlotType& type = problem.type(part.keys.terms[t].slot);
          if (type.kind != NOISE || type.group == 2) continue;
          const double size = sizes[part.at + f].v[lane] * (type.single ? 0x1p-22 : 0x1p-46) + 0x1p-44;
          error += std::fabs(own[part.at + f] * part.coefficient) * size;
        }
    return error;
  }

  // Whether random numbers are added to scores, times numbers of the query.
  bool adds_random(const Problem& problem) const {
    return noisy && std::all_of(score.parts.begin(), score.parts.end(), [&](const Part& part) {
      return !(part.distance || part.side) || std::none_of(part.keys.terms.begin(), part.keys.terms.end(),
                                                           [&](const Term& term) { return is_random(problem, term); });
    });
  }

  static bool is_random(const Problem& problem, const Term& term) { return problem.type(term.slot).kind == NOISE; }

  // The keys without random numbers, and how far sums of both may be off.
  void part_with_random(const Problem& problem, Scanning& out) const {
    out.rounding = share(score);
    for (const Part& part : score.parts) {
      Rows rows = part.keys;
      rows.plain = false, rows.terms.clear(), rows.start.assign(1, 0);
      for (int32_t f = 0; f < part.keys.count(); f++) {
        for (int32_t t = part.keys.start[f]; t < part.keys.start[f + 1]; t++)
          if (!is_random(problem, part.keys.terms[t])) rows.terms.push_back(part.keys.terms[t]);
          else out.rounding += 2 * UNIT;
        rows.start.push_back((int32_t)rows.terms.size());
      }
      out.fixed.push_back(rows.terms.size() < part.keys.terms.size() ? std::move(rows) : part.keys);
    }
  }

  // Keys that random numbers can still bring to the top: these are drawn for them alone, 64 keys at a time.
  struct Drawing {
    static constexpr double MOST[] = {0, 37.5, 1}, LEAST[] = {0, -3.7, 0};  // by kind: Gumbel, uniform

    struct Left {  // of one query
      Left() : many(0) {}  // the rest is written before it is read
      int many;
      int32_t key[LANES];
      double score[LANES], size[LANES];
    };

    const Choose& choose;
    Problem& problem;
    Worker& worker;
    const Side& side;
    const Scanning& room;
    std::vector<Left> left;
    std::vector<double> most, least;  // what random numbers may add to a score, and add at least

    Drawing(const Choose& choose, Problem& problem, Worker& worker, const Scanning& room)
        : choose(choose), problem(problem), worker(worker), side(room.side), room(room), left(side.tokens),
          most(side.tokens), least(side.tokens) {
      for (int64_t q = 0; q < side.tokens; q++)
        each_term(q, [&](double by, const Term& term) {
          const int32_t kind = problem.type(term.slot).group;
          most[q] += (by > 0 ? by * MOST[kind] : by * LEAST[kind]) + std::fabs(by) * 0x1p-10;
          least[q] += (by > 0 ? by * LEAST[kind] : by * MOST[kind]) - std::fabs(by) * 0x1p-10;
        });
    }

    // what(factor, term) for every random number that counts for a query.
    template <class What>
    void each_term(int64_t q, What what) const {
      const double* own = side.row(q);
      for (const Part& part : choose.score.parts)
        for (int32_t f = 0; f < part.keys.count(); f++)
          for (int32_t t = part.keys.start[f]; own[part.at + f] != 0 && t < part.keys.start[f + 1]; t++)
            if (is_random(problem, part.keys.terms[t])) what(own[part.at + f] * part.keys.terms[t].factor, part.keys.terms[t]);
    }

    void range(int64_t first, int64_t last, uint64_t base, std::vector<Candidate>* found, double* best, const double* drawn) {
      const Score& score = choose.score;
      Lanes lanes(worker, score.features), sizes(worker, score.features);
      Lane s, size;
      for (int64_t at = first; at < last; at += LANES) {
        Block block = problem.block(at, last);
        block.serial = base + 1 + at;
        for (size_t p = 0; p < room.fixed.size(); p++) {
          const Part& part = score.parts[p];
          problem.rows(worker, block, room.fixed[p], lanes.data() + part.at, sizes.data() + part.at);
          if (part.side == 2) problem.rows(worker, block, part.scale, lanes.data() + part.scale_at);
        }
        for (int64_t q = 0; q < side.tokens; q++) {
          const int eights = block.lanes() / 8;
          bounded(score, side.row(q), true, lanes.data(), s.v, size.v, sizes.data(), eights);
          for (int e = block.many; e < block.lanes(); e++) s.v[e] = -INFINITY, size.v[e] = 0;
          Left& mine = left[q];
          best[q] = std::max(best[q], floor(s, size, eights) + (least[q] - drawn[q]));
          for (uint64_t some = reach(s, size, eights, most[q] + drawn[q], best[q]); some; some &= some - 1) {
            const int e = __builtin_ctzll(some);
            if (e >= block.many) break;
            mine.key[mine.many] = (int32_t)(at + e), mine.score[mine.many] = s.v[e], mine.size[mine.many] = size.v[e];
            if (++mine.many == LANES) draw_for(q, found[q], best[q]);
          }
        }
      }
      for (int64_t q = 0; q < side.tokens; q++)
        if (left[q].many) draw_for(q, found[q], best[q]);
    }

    // What the best of these scores is at least.
    static double floor(const Lane& s, const Lane& size, int eights) {
      Eight top = Eight{} - INFINITY;
      for (int i = 0; i < eights; i++) {
        const Eight low = s.eights()[i] - size.eights()[i] * 0x1p-20;
        top = low > top ? low : top;
      }
      double best = -INFINITY;
      for (int e = 0; e < 8; e++) best = std::max(best, top[e]);
      return best;
    }

    // Which of 64 scores may come to the top, bit by bit.
    static uint64_t reach(const Lane& s, const Lane& size, int eights, double more, double top) {
      uint64_t found = 0;
      for (int i = 0; i < eights; i++) {
        const Eight most = s.eights()[i] + (size.eights()[i] * 0x1p-20 + more);
#if defined(__AVX512F__)
        found |= (uint64_t)_mm512_cmp_pd_mask((__m512d)most, _mm512_set1_pd(top), _CMP_NLT_UQ) << 8 * i;
#else
        const EightWhole below = most < Eight{} + top;
        for (int e = 0; e < 8; e++) found |= (uint64_t)(below[e] == 0) << (8 * i + e);
#endif
      }
      return found;
    }

    // Draws for the keys that are left of a query, and keeps those that may be the best.
    void draw_for(int64_t q, std::vector<Candidate>& found, double& top) {
      Left& mine = left[q];
      const Block block{mine.key, 0, mine.many, 0};
      Lane number;
      double error[LANES] = {};
      each_term(q, [&](double by, const Term& term) {
        const SlotType& type = problem.type(term.slot);
        const double size = std::fabs(by), unsure = type.group == 2 ? 0 : type.single ? 0x1p-22 : 0x1p-46;
        problem.column(worker, block, term.slot, term.column, number.v);
        for (int e = 0; e < LANES; e++) {
          const double more = std::fabs(number.v[e]);
          mine.score[e] += by * number.v[e], mine.size[e] += size * more;
          error[e] += size * (more * unsure + (unsure != 0 ? 0x1p-44 : 0));
        }
      });
      for (int e = 0; e < mine.many; e++) {
        const double off = (room.rounding * mine.size[e] + error[e]) * (1 + 0x1p-30) + 0x1p-1000;
        if (mine.score[e] + off < top) continue;
        found.push_back({mine.key[e], mine.score[e] - off, mine.score[e] + off});
        top = mine.score[e] - off > top ? mine.score[e] - off : top;
      }
      mine.many = 0;
    }
  };

  bool by_keys(Problem& problem, Team& team, int64_t queries, int64_t count, int32_t* label) const {
    Scanning& room = problem.worker(0).room<Scanning>(number);
    Side& side = room.side;
    problem.side(problem.worker(0), score, true, queries, side);
    const int64_t each = std::max<int64_t>(2048, (count / 32 + LANES) / LANES * LANES), parts = (count + each - 1) / each;
    std::vector<std::vector<Candidate>>& found = room.found;
    if ((int64_t)found.size() < parts * queries) found.resize(parts * queries);
    for (std::vector<Candidate>& some : found) some.clear();
    std::vector<double> best(parts * queries, -INFINITY);
    std::vector<double> drawn(queries, 0x1p-900);  // above what numbers near 0 that are drawn may be off
    for (int64_t q = 0; q < queries && noisy; q++)
      for (const Part& part : score.parts)
        for (int32_t f = part.at; f < part.at + part.query.count(); f++)
          drawn[q] += std::fabs(side.row(q)[f] * part.coefficient) * 0x1p-42;
    const uint64_t base = problem.serial;
    problem.serial += count;
    const double rounding = share(score) * (1 + 0x1p-30);
    const bool drawing = adds_random(problem);
    if (drawing && room.fixed.empty()) part_with_random(problem, room);
    const bool good = team.ranges(count, each, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      if (drawing) {
        const int64_t at = first / each * queries;
        Drawing(*this, problem, worker, room).range(first, last, base, found.data() + at, best.data() + at, drawn.data());
        return;
      }
      Lanes lanes(worker, score.features), sizes(worker, score.exact ? 0 : score.features);
      Lane s, size;
      for (int64_t at = first; at < last; at += LANES) {
        Block block = problem.block(at, last);
        block.serial = base + 1 + at;
        problem.features(worker, block, score, false, lanes.data(), score.exact ? nullptr : sizes.data());
        for (int64_t q = 0; q < queries; q++) {
          bounded(score, side.row(q), true, lanes.data(), s.v, size.v, score.exact ? nullptr : sizes.data());
          std::vector<Candidate>& mine = found[first / each * queries + q];
          double& top = best[first / each * queries + q];
          double reach[LANES];
          for (int e = 0; e < LANES; e++) reach[e] = s.v[e] + (size.v[e] * (noisy ? 0x1p-20 : 2 * rounding) + drawn[q]);
          bool any = false;
          for (int e = 0; e < block.many; e++) any |= !(reach[e] < top);
          if (!any) continue;
          for (int e = 0; e < block.many; e++) {
            if (reach[e] < top) continue;
            double error = rounding * size.v[e] + 0x1p-1000;
            if (noisy) error += noise_error(problem, side.row(q), sizes.data(), e);
            if (s.v[e] + error < top) continue;
            mine.push_back({at + e, s.v[e] - error, s.v[e] + error});
            top = s.v[e] - error > top ? s.v[e] - error : top;
          }
        }
      }
    });
    if (!good) return false;
    int64_t bound = 0, exact = 0;
    for (int64_t q = 0; q < queries; q++) {
      double top = -INFINITY;
      std::vector<Candidate>& all = room.all;
      all.clear();
      for (int64_t p = 0; p < parts; p++) top = std::max(top, best[p * queries + q]);
      for (int64_t p = 0; p < parts; p++)
        for (const Candidate& one : found[p * queries + q])
          if (one.high >= top) all.push_back(one);
      const int told = close(problem, side.row(q), all, top, label[q]);
      bound += told == 0, exact += told == 1;
      if (told == 2) problem.doubt.push_back(q);
    }
    problem.count(number, bound, exact, once ? problem.tokens[query] : queries);
    return true;
  }

  // The best of candidates whose features are made anew.
  int close(Problem& problem, const double* row, std::vector<Candidate>& all, double top, int32_t& label) const {
    if (all.size() < 2 || !score.exact) return pick(problem.worker(0), row, nullptr, 0, all, top, label);
    std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
    std::vector<double> features(all.size() * score.features);
    Lanes lanes(problem.worker(0), score.features);
    std::vector<int32_t> list(1);
    std::vector<Candidate> some(all.size());
    for (size_t at = 0; at < all.size(); at++) {
      list[0] = (int32_t)all[at].key;
      const Block block{list.data(), 0, 1, ++problem.serial};
      problem.features(problem.worker(0), block, score, false, lanes.data());
      for (int32_t f = 0; f < score.features; f++) features[at * score.features + f] = lanes[f].v[0];
      some[at] = {(int64_t)at, all[at].low, all[at].high};
    }
    const int told = pick(problem.worker(0), row, features.data(), score.features, some, top, label);
    label = (int32_t)all[label].key;
    return told;
  }

  bool by_queries(Problem& problem, Team& team, int64_t queries, int64_t count, int32_t* label) const {
    Side side;
    problem.side(problem.worker(0), score, false, count, side);
    std::mutex lock;
    int64_t bound = 0, exact = 0;
    const double rounding = share(score) * (1 + 0x1p-30);
    const bool good = team.ranges(queries, 16 * LANES, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      Lanes lanes(worker, score.features), sizes(worker, score.features), s(worker, count), size(worker, count);
      std::vector<double> row(score.features);
      std::vector<Candidate> found;
      std::vector<int64_t> left;
      int64_t told_bound = 0, told_exact = 0;
      for (int64_t at = first; at < last; at += LANES) {
        const Block block = problem.block(at, last);
        problem.features(worker, block, score, true, lanes.data(), sizes.data());
        for (int64_t j = 0; j < count; j++) bounded(score, side.row(j), false, lanes.data(), s[j].v, size[j].v, sizes.data());
        for (int e = 0; e < block.many; e++) {
          found.clear();
          double best = -INFINITY;
          for (int64_t j = 0; j < count; j++) {
            const double error = rounding * size[j].v[e] + 0x1p-1000, low = s[j].v[e] - error, high = s[j].v[e] + error;
            if (!(high >= best)) continue;
            found.push_back({j, low, high});
            best = low > best ? low : best;
          }
          for (int32_t f = 0; f < score.features; f++) row[f] = lanes[f].v[e];
          const int told = pick(worker, row.data(), side.number.data(), score.features, found, best, label[at + e]);
          told_bound += told == 0, told_exact += told == 1;
          if (told == 2) left.push_back(at + e);
        }
      }
      std::lock_guard<std::mutex> held(lock);
      bound += told_bound, exact += told_exact;
      problem.doubt.insert(problem.doubt.end(), left.begin(), left.end());
    });
    std::sort(problem.doubt.begin(), problem.doubt.end());
    problem.count(number, bound, exact, queries);
    return good;
  }
};

}  // namespace

std::unique_ptr<Instruction> make_choose(Code& code) { return std::make_unique<Choose>(code); }

}  // namespace weftc
