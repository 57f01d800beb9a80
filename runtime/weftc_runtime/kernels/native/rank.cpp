// Rankings among all keys, or those that a stored index names: the best N, the best P percent, the supports of normmax and
// sparsemax; and the best score alone.
//
// Compiled without contraction: scores, and weights of sparsemax, have the bits of the reference.

#include "exact.h"
#include "few.h"

namespace weftc {
namespace {

constexpr int64_t TOGETHER = 1 << 19, ROWS = 32;  // scores, and queries, that are looked at together
constexpr size_t FEW = 32;             // of the best are found without sorting
constexpr double SMALLEST = 0x1p-480;  // the reference scales by powers of two where all features are smaller

enum Ranking { COUNT, PERCENT, NORMMAX, SPARSEMAX };

struct Rank : Instruction {
  Classes classes;
  int32_t query, keys, kind, ranking, out, writes;
  bool once, own;
  int64_t above, below;  // a count; a share of the members; gamma: above / below
  Score score;
  Rows value, own_value;

  explicit Rank(Code& code) : classes(code) {
    query = (int32_t)code.next(), keys = (int32_t)code.next(), kind = (int32_t)code.next(), once = code.next();
    ranking = (int32_t)code.next(), out = (int32_t)code.next(), writes = (int32_t)code.next(), own = code.next();
    above = code.next(), below = code.next();
    score = Score(code);
    value = Rows(code), own_value = Rows(code);
  }

  Outcome run(Problem& problem, Team& team) const override {
    if (classes.slot < 0) return among_all(problem, team);
    const int64_t queries = rows_of(problem, query, once);
    Sorted sorted;
    sorted.sort(problem, classes, keys);
    Side side;
    problem.side(problem.worker(0), score, true, queries, side);
    if (ranking >= 0) problem.members[ranking].assign(problem.tokens[keys], -1);
    std::vector<double> own_values;
    if (kind == SPARSEMAX) {
      problem.outs[out].assign(queries * writes, 0.0);
      if (own) problem.numbers(problem.worker(0), own_value, queries, own_values);
    }
    std::atomic<int64_t> exact{0};
    std::atomic<bool> good{true};
    const bool whole = team.ranges(queries, 1, [&](int64_t q, int64_t, int who) {
      One one{*this, problem, problem.worker(who), side.row(q), {}, {}, {}, 0, {}, {}};
      std::vector<int32_t> room;
      const auto [list, many] = sorted.of(classes, q, room);
      one.list = list, one.many = many;
      if (many) one.make_scores();
      int told = 0;
      if (kind == SPARSEMAX) {
        double* to = problem.outs[out].data() + q * writes;
        if (many) one.sparsemax(to);
        else if (own) std::copy(own_values.begin() + q * writes, own_values.begin() + (q + 1) * writes, to);
        else told = 2;
      } else if (many) {
        told = kind == NORMMAX ? one.normmax() : one.top();
        for (int32_t chosen : one.chosen) problem.members[ranking][list[chosen]] = (int32_t)q;
      }
      if (told == 1) exact++;
      if (told == 2) good = false;
    });
    if (!whole) return FAILED;
    if (!good) return LAYER;
    problem.count(number, queries - exact, exact, queries);
    return GOING;
  }

  // Every key counts for every query: scores of some queries at a time, and the means of the values of those that are chosen.
  Outcome among_all(Problem& problem, Team& team) const {
    const int64_t queries = rows_of(problem, query, once), many = problem.tokens[keys];
    Side side;
    problem.side(problem.worker(0), score, true, queries, side);
    std::vector<double>& to = problem.outs[out];
    to.assign(queries * writes, 0.0);
    if (!many && !own) return LAYER;
    if (!many) return problem.numbers(problem.worker(0), own_value, queries, to), GOING;
    if (kind == COUNT && above > 0 && above <= (int64_t)FEW && many > 8 * (int64_t)FEW && looks()) {
      Side other;
      problem.side(problem.worker(0), score, false, many, other);
      const Part& part = score.parts[0];
      const FewBest best(other.number.data(), (int32_t)many, side.number.data(), queries, score.features, part.distance);
      if (best.good()) return among_few(problem, team, side, best);
    }
    std::vector<int32_t> all(many);
    for (int64_t i = 0; i < many; i++) all[i] = (int32_t)i;
    const int64_t padded = (many + LANES - 1) / LANES * LANES, each = std::max<int64_t>(1, std::min<int64_t>(ROWS, TOGETHER / padded));
    const uint64_t base = problem.serial;
    problem.serial += padded;
    std::atomic<int64_t> exact{0};
    std::atomic<bool> good{true};
    const bool whole = team.ranges(queries, each, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      std::vector<One> some;
      for (int64_t q = first; q < last; q++) {
        some.push_back({*this, problem, worker, side.row(q), {}, {}, {}, 0, all.data(), many});
        some.back().s.resize(padded);
      }
      Lanes lanes(worker, score.features);
      Lane size;
      Eight sizes[ROWS] = {};  // the largest of each query
      for (int64_t at = 0; at < many; at += LANES) {
        Block block = problem.block(at, many);
        block.serial = base + 1 + at;
        problem.features(worker, block, score, false, lanes.data());
        for (One& one : some) {
          bounded(score, one.own, true, lanes.data(), one.s.data() + at, size.v);
          Eight& most = sizes[&one - some.data()];
          for (int i = 0; i < LANES / 8; i++) {
            const Eight each = size.eights()[i], whole = each < INFINITY ? each : Eight{} + INFINITY;
            most = whole > most ? whole : most;
          }
        }
      }
      for (int64_t q = first; q < last; q++) {
        One& one = some[q - first];
        const Eight& most = sizes[q - first];
        for (int e = 0; e < 8; e++) one.error = std::max(one.error, most[e]);
        one.bound(one.error);
        double* mean = to.data() + q * writes;
        if (kind == SPARSEMAX) {
          one.sparsemax(mean);
          continue;
        }
        const int told = kind == NORMMAX ? one.normmax() : one.top();
        if (told == 1) exact++;
        if (told == 2 || !one.mean(mean)) good = false;
      }
    });
    if (!whole) return FAILED;
    if (!good) return LAYER;
    problem.count(number, queries - exact, exact, queries);
    return GOING;
  }

  // Whether scores are distances, the nearest first, or inner products, and nothing else.
  bool looks() const {
    if (!score.exact || score.parts.size() != 1 || score.parts[0].side || !score.features) return false;
    return score.parts[0].distance ? score.parts[0].coefficient < 0 : score.parts[0].coefficient == 1;
  }

  // The same where a look in float32 leaves few keys for every query.
  Outcome among_few(Problem& problem, Team& team, const Side& side, const FewBest& best) const {
    const int64_t queries = side.tokens;
    std::atomic<int64_t> exact{0};
    std::atomic<bool> good{true};
    const bool whole = team.ranges(queries, TILE, [&](int64_t first, int64_t last, int who) {
      std::vector<std::vector<int32_t>> left;
      best.look(first, (int)(last - first), (size_t)above, left);
      for (int64_t q = first; q < last; q++) {
        const std::vector<int32_t>& list = left[q - first];
        One one{*this, problem, problem.worker(who), side.row(q), {}, {}, {}, 0, list.data(), (int64_t)list.size()};
        one.make_scores();
        const int told = one.top();
        if (told == 1) exact++;
        if (told == 2 || !one.mean(problem.outs[out].data() + q * writes)) good = false;
      }
    });
    if (!whole) return FAILED;
    if (!good) return LAYER;
    problem.count(number, queries - exact, exact, queries);
    return GOING;
  }

  // One query and its members.
  struct One {
    const Rank& rank;
    Problem& problem;
    Worker& worker;
    const double* own;
    std::vector<double> s;        // scores
    std::vector<int32_t> order, chosen;
    double error;                 // of every score
    const int32_t* list;
    int64_t many;

    void make_scores() {
      Lanes lanes(worker, rank.score.features);
      Lane size;
      s.resize((many + LANES - 1) / LANES * LANES);
      double most = 0;
      for (int64_t at = 0; at < many; at += LANES) {
        const Block block{list + at, 0, (int)std::min<int64_t>(LANES, many - at), 0};
        problem.features(worker, block, rank.score, false, lanes.data());
        bounded(rank.score, own, true, lanes.data(), s.data() + at, size.v);
        for (int e = 0; e < block.many; e++) most = size.v[e] <= most ? most : size.v[e];
      }
      bound(most);
    }

    // The scores are made, and none is farther from the truth than this.
    void bound(double most) {
      s.resize(many);
      error = most * share(rank.score) * (1 + 0x1p-30) + 0x1p-1000;
    }

    void features(int32_t member, std::vector<double>& row) {
      Lanes lanes(worker, rank.score.features);
      const int32_t token[1] = {list[member]};
      const Block block{token, 0, 1, 0};
      problem.features(worker, block, rank.score, false, lanes.data());
      row.resize(lanes.size());
      for (size_t f = 0; f < lanes.size(); f++) row[f] = lanes[f].v[0];
    }

    // Sorts members by their exact scores, the best first; false where these cannot be told.
    bool sort_exactly(std::vector<int32_t>& some) {
      if (!rank.score.exact || !(error < INFINITY)) return false;
      std::vector<std::vector<double>> rows(some.size());
      std::vector<int32_t> place(some.size());
      for (size_t at = 0; at < some.size(); at++) features(some[at], rows[at]), place[at] = (int32_t)at;
      bool told = true;
      std::stable_sort(place.begin(), place.end(), [&](int32_t a, int32_t b) {
        const double apart = s[some[a]] - s[some[b]];
        if (std::fabs(apart) > 2 * error) return apart > 0;
        const int sign = compare(rank.score, own, rows[a].data(), rows[b].data(), worker);
        told &= sign != 2;
        return sign == 1;
      });
      std::vector<int32_t> sorted;
      for (int32_t at : place) sorted.push_back(some[at]);
      some.swap(sorted);
      return told;
    }

    // The score that so many have, or a better one.
    double best(size_t wanted) const {
      std::vector<double> sorted;
      if (wanted > FEW) {
        sorted = s;
        std::nth_element(sorted.begin(), sorted.begin() + (wanted - 1), sorted.end(), std::greater<double>());
        return sorted[wanted - 1];
      }
      for (double each : s) {
        if (sorted.size() == wanted && !(each > sorted.back())) continue;
        if (sorted.size() == wanted) sorted.pop_back();
        sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), each, std::greater<double>()), each);
      }
      return sorted.back();
    }

    // The mean of the values of those that are chosen: an exact sum, rounded once.
    bool mean(double* to) {
      std::vector<int32_t> tokens;
      for (int32_t i : chosen) tokens.push_back(list[i]);
      Lanes lanes(worker, rank.writes);
      std::vector<std::vector<double>> numbers(rank.writes);
      for (size_t at = 0; at < tokens.size(); at += LANES) {
        const Block block{tokens.data() + at, 0, (int)std::min<size_t>(LANES, tokens.size() - at), 0};
        problem.rows(worker, block, rank.value, lanes.data());
        for (int32_t w = 0; w < rank.writes; w++) numbers[w].insert(numbers[w].end(), lanes[w].v, lanes[w].v + block.many);
      }
      bool good = !tokens.empty();
      for (int32_t w = 0; w < rank.writes && good; w++) {
        to[w] = exact_sum(numbers[w], worker.parts) / (double)tokens.size();
        good = to[w] - to[w] == 0;
      }
      return good;
    }

    // 0: by bounds, 1: exactly, 2: not at all.
    int top() {
      int64_t wanted = rank.kind == COUNT ? std::min(rank.above, many) : (int64_t)((__int128)rank.above * (many - 1) / rank.below) + 1;
      if (wanted <= 0) return 0;
      if (!(error < INFINITY)) return 2;
      const double boundary = best((size_t)wanted);
      std::vector<int32_t> open;
      for (int32_t i = 0; i < many; i++) {
        if (s[i] > boundary + 2 * error) chosen.push_back(i);
        else if (!(s[i] < boundary - 2 * error)) open.push_back(i);
      }
      const size_t left = (size_t)wanted - chosen.size();
      if (open.size() == left) {
        chosen.insert(chosen.end(), open.begin(), open.end());
        return 0;
      }
      if (!sort_exactly(open)) return 2;
      chosen.insert(chosen.end(), open.begin(), open.begin() + left);
      std::vector<double> last, next;
      features(open[left - 1], last);
      for (size_t at = left; rank.kind == PERCENT && at < open.size(); at++) {
        features(open[at], next);
        const int sign = compare(rank.score, own, last.data(), next.data(), worker);
        if (sign == 2) return 2;
        if (sign) break;
        chosen.push_back(open[at]);
      }
      return 1;
    }

    // The best m, m smallest with gamma * (sum of the m best - m * the next) >= 1. That never falls as m grows.
    int normmax() {
      if (!(error < INFINITY)) return 2;
      order.resize(many);
      for (int32_t i = 0; i < many; i++) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return s[a] > s[b]; });
      const double wanted = (double)rank.below / (double)rank.above;
      double total = 0, size = 0;
      int64_t m = 1;
      bool sure = true;
      for (; m < many; m++) {
        total += s[order[m - 1]], size += std::fabs(s[order[m - 1]]);
        const double next = s[order[m]], gap = total - (double)m * next;
        const double off = 2 * (double)m * error + ((double)m + 4) * UNIT * (size + (double)m * std::fabs(next)) + wanted * 0x1p-50;
        if (gap + off < wanted) continue;
        sure = gap - off >= wanted && s[order[m - 1]] - next > 2 * error;
        break;
      }
      if (sure) {
        chosen.assign(order.begin(), order.begin() + m);
        return 0;
      }
      return exactly(m) ? 1 : 2;
    }

    bool exactly(int64_t from) {
      if ((int64_t)(double)rank.above != rank.above || (int64_t)(double)rank.below != rank.below) return false;
      if (!sort_exactly(order)) return false;
      std::vector<double> total, row, terms;
      for (int64_t m = 1; m < many; m++) {
        features(order[m - 1], row);
        if (!push_score(rank.score, own, row.data(), 1.0, total)) return false;
        if (total.size() > 4096) shorten(total);
        if (m + 1 < from) continue;
        features(order[m], row);
        terms = total;
        const size_t first = terms.size();
        if (!push_score(rank.score, own, row.data(), -1.0, terms) || !multiply(terms, first, (double)m)) return false;
        if (!multiply(terms, 0, (double)rank.above)) return false;
        terms.push_back(-(double)rank.below);
        if (exact_sum(terms, worker.parts) >= 0) {
          chosen.assign(order.begin(), order.begin() + m);
          return true;
        }
      }
      chosen = order;
      return true;
    }

    // The same sum with few terms: what adding leaves, without rounding.
    void shorten(std::vector<double>& terms) {
      exact_sum(terms, worker.parts);
      terms = worker.parts;
    }

    // Weights max(0, s - t) that sum to 1 but for rounding; the sum of values with them by their own sum, each product
    // rounded, the sums without error.
    void sparsemax(double* to) {
      const double peak = *std::max_element(s.begin(), s.end());
      for (double& each : s) each -= peak;
      std::vector<double> sorted;
      for (double each : s)
        if (each > -1) sorted.push_back(each);
      std::sort(sorted.begin(), sorted.end(), std::greater<double>());
      double sum = 0;
      int64_t inside = 0;
      for (size_t r = 0; r < sorted.size(); r++) {
        sum += sorted[r];
        inside += 1 + (double)(r + 1) * sorted[r] > sum;
      }
      const double floor = sorted[std::max<int64_t>(inside, 1) - 1];
      std::vector<double>& terms = worker.terms;
      terms.clear();
      for (int32_t i = 0; i < many; i++)
        if (s[i] >= floor) chosen.push_back(i), terms.push_back(s[i]);
      const double threshold = (exact_sum(terms, worker.parts) - 1) / (double)chosen.size();
      std::vector<int32_t> tokens;
      terms.clear();
      for (int32_t i : chosen) {
        tokens.push_back(list[i]);
        terms.push_back(s[i] = std::max(s[i] - threshold, 0.0));
      }
      const double mass = exact_sum(terms, worker.parts);
      Lanes lanes(worker, rank.writes);
      std::vector<std::vector<double>> products(rank.writes);
      for (size_t at = 0; at < tokens.size(); at += LANES) {
        const Block block{tokens.data() + at, 0, (int)std::min<size_t>(LANES, tokens.size() - at), 0};
        problem.rows(worker, block, rank.value, lanes.data());
        for (int32_t w = 0; w < rank.writes; w++)
          for (int e = 0; e < block.many; e++)
            products[w].push_back(s[chosen[at + e]] * lanes[w].v[e]);
      }
      for (int32_t w = 0; w < rank.writes; w++) to[w] = exact_sum(products[w], worker.parts) / mass;
    }
  };
};

// The best score of every query, times a number for each column.
struct Best : Instruction {
  int32_t query, keys, out;
  bool once;
  Score score;
  std::vector<double> factor;

  explicit Best(Code& code) {
    query = (int32_t)code.next(), keys = (int32_t)code.next(), out = (int32_t)code.next();
    factor.resize(code.next()), once = code.next();
    score = Score(code);
    for (double& each : factor) each = code.number();
  }

  Outcome run(Problem& problem, Team& team) const override {
    const int64_t queries = rows_of(problem, query, once), many = problem.tokens[keys], writes = (int64_t)factor.size();
    Side side;
    problem.side(problem.worker(0), score, false, many, side);
    double peak = 0;
    for (double each : side.number) peak = std::max(peak, std::fabs(each));
    if (!(peak > SMALLEST)) return LAYER;  // squares may vanish
    std::vector<double>& to = problem.outs[out];
    to.assign(queries * writes, 0.0);
    std::atomic<bool> good{true};
    const bool whole = team.ranges(queries, many * LANES > 1 << 16 ? LANES : 16 * LANES, [&](int64_t first, int64_t last, int who) {
      Worker& worker = problem.worker(who);
      Lanes lanes(worker, score.features);
      for (int64_t at = first; at < last; at += LANES) {
        const Block block = problem.block(at, last);
        problem.features(worker, block, score, true, lanes.data());
        Lane found, best;
        bounded(score, side.row(0), false, lanes.data(), best.v, nullptr);
        for (int64_t k = 1; k < many; k++) {
          bounded(score, side.row(k), false, lanes.data(), found.v, nullptr);
          for (int i = 0; i < LANES / 8; i++) {
            Eight &most = best.eights()[i], next = found.eights()[i];
            most = next <= most ? most : next;
          }
        }
        for (int e = 0; e < block.many; e++) {
          if (!std::isfinite(best.v[e])) good = false;
          for (int64_t w = 0; w < writes; w++) to[(at + e) * writes + w] = best.v[e] * factor[w];
        }
      }
    });
    if (!whole) return FAILED;
    return good ? GOING : LAYER;
  }
};

}  // namespace

std::unique_ptr<Instruction> make_rank(Code& code) { return std::make_unique<Rank>(code); }
std::unique_ptr<Instruction> make_best(Code& code) { return std::make_unique<Best>(code); }

}  // namespace weftc
