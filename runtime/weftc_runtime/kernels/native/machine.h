// The native machine: one interpreter of the instructions of a plan, for one problem or many, many layers in one call.
//
// A plan comes as flat arrays of whole numbers and doubles (`plan/encoding.py` writes them, `Code` reads them). Slots are
// arrays of all problems, one problem after the other. Every problem runs by itself, from layer to layer: many small ones
// side by side on all cores, a large one with all cores to itself. A problem stops where rows are in doubt that only
// rational arithmetic can settle, and where a layer meets what the kernels do not cover; both are the caller's, and it
// goes on from there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "team.h"

namespace weftc {

constexpr int LANES = 64;    // tokens that are looked at together
constexpr int TOGETHER = 4;  // blocks of tokens at most that are held at the same time

typedef double Eight __attribute__((vector_size(64)));
typedef int64_t EightWhole __attribute__((vector_size(64)));

struct alignas(64) Lane {
  double v[LANES];
  Eight* eights() { return (Eight*)v; }
  const Eight* eights() const { return (const Eight*)v; }
};

// The arrays a plan is written in; every read moves on.
struct Code {
  const int64_t* whole;
  const double* real;

  int64_t next() { return *whole++; }
  double number() { return *real++; }
};

struct Term {
  int32_t slot, column;
  double factor;
};

// Rows of a matrix over the slots of a stream.
struct Rows {
  bool exact = false;  // sums of three terms or more are rounded once
  bool plain = false;  // every row copies a number of one slot: side by side, from `column` on
  int32_t slot = 0, column = 0;
  std::vector<int32_t> start{0};
  std::vector<Term> terms;

  Rows() = default;
  explicit Rows(Code& code);
  int32_t count() const { return (int32_t)start.size() - 1; }
  bool reads(int32_t slot) const;
};

struct Part {
  bool distance;
  Rows query, keys, scale;
  double coefficient = 1;
  int32_t side = 0;  // of the scale: 0 none, 1 the query's, 2 the key's
  int32_t at = 0, scale_at = -1;  // where its features, and its scale, stand among those of a side
};

struct Score {
  std::vector<Part> parts;
  bool exact = false;  // features are stored numbers, up to powers of two
  int32_t features = 0;  // of each side, with the scales
  int32_t terms = 0;     // of the longest part

  Score() = default;
  explicit Score(Code& code);
};

enum SlotKind { DENSE, UNIFORM, INDEX, LAZY, NOISE, IDENTITY };

struct SlotType {
  int32_t kind, stream, width;
  bool single;    // stored in float32
  bool field;     // whose changes count
  int32_t group;  // lazy: the heads that make it; noise: its kind
  int64_t name;   // noise: the number its name gives
};

// Where a slot of all problems lies. See native_machine.py: (slots, 4) addresses.
struct SlotArrays {
  void *given, *room[2];
  double* values;
};

struct Slot {
  void *given = nullptr, *now = nullptr, *before = nullptr, *room[2] = {nullptr, nullptr};
  bool empty = true, moved = false;  // moved: written in the layer under way
  double* values = nullptr;          // of an index
  const struct Map* map = nullptr;   // lazy: what makes a block of rows when it is read, if not a group of heads

  bool stays() const { return now && now == given; }  // nothing has been written yet
};

// Tokens that are looked at together: a list of them, or those from `first` on.
struct Block {
  const int32_t* list;
  int64_t first;
  int many;
  uint64_t serial;

  int64_t token(int lane) const { return list ? list[std::min(lane, many - 1)] : first + std::min(lane, many - 1); }
  int lanes() const { return (many + 7) / 8 * 8; }  // that are looked at; those beyond hold what the last of them holds
  void fill_up(double* out) const { std::fill(out + lanes(), out + LANES, out[lanes() - 1]); }
};

struct Machine;
struct Problem;

// The columns of the slots of a lazy group for a block of tokens.
struct Tile {
  uint64_t serial = 0;  // what it was made for
  std::vector<std::vector<Lane>> slots;
};

// Tiles of all tokens, kept while a snapshot stands where they take little room and are asked for more than once.
struct LazyTiles {
  std::vector<Tile> of;  // by block
  uint64_t serial = 0;   // of the snapshot
  int asked = 0;         // how often the first was made for it
};

struct Memory {
  virtual ~Memory() = default;
};

// Columns of a slot that stays, one token to a lane: kept from layer to layer.
struct Columns {
  int32_t slot, column, count;
  std::vector<Lane> lanes;
  std::vector<uint8_t> made;  // by block
};

struct LaneRoom {
  std::unique_ptr<Lane[]> lanes;
  size_t size = 0;
};

// What one thread has for itself while problems run; it goes from one to the next.
struct Worker {
  struct Making {  // of a tile
    std::vector<Lane> scores, weights, features;
    Tile tiles[TOGETHER];
  };
  std::vector<Making> making;  // by group of lazy slots
  std::vector<LazyTiles> tiles;  // the same; those of its first worker serve a problem
  std::vector<Columns> columns;  // of the problem that it works on
  std::vector<std::unique_ptr<Memory>> of;  // by instruction: room that it uses again
  std::vector<LaneRoom> rooms;  // that nobody uses at the moment
  std::vector<double> terms, parts;
  bool odd = false;  // a number without a value was made while rows were read

  template <class Room>
  Room& room(int32_t instruction) {
    if ((size_t)instruction >= of.size()) of.resize(instruction + 1);
    if (!of[instruction]) of[instruction] = std::make_unique<Room>();
    return (Room&)*of[instruction];
  }
};

// Some lanes, in a room that a worker lends. What they hold is what others have left there.
class Lanes {
 public:
  Lanes(Worker& worker, size_t count) : worker_(&worker), count_(count) {
    if (!worker.rooms.empty()) room_ = std::move(worker.rooms.back()), worker.rooms.pop_back();
    if (room_.size < count) room_ = {std::unique_ptr<Lane[]>(new Lane[count]), count};
  }
  ~Lanes() {
    if (room_.lanes) worker_->rooms.push_back(std::move(room_));
  }
  Lanes(Lanes&&) = default;
  Lane* data() { return room_.lanes.get(); }
  Lane& operator[](size_t at) { return room_.lanes[at]; }
  const Lane& operator[](size_t at) const { return room_.lanes[at]; }
  const Lane& back() const { return room_.lanes[count_ - 1]; }
  size_t size() const { return count_; }
  bool empty() const { return !count_; }
  Lane* begin() { return data(); }
  Lane* end() { return data() + count_; }
  const Lane* begin() const { return room_.lanes.get(); }
  const Lane* end() const { return room_.lanes.get() + count_; }

 private:
  Worker* worker_;
  size_t count_;
  LaneRoom room_;
};

// Features of every token of a side (tokens, features), and for each which count in an inner product.
struct Side {
  int64_t tokens = 0;
  int32_t width = 0;
  std::vector<double> number;
  double largest = 0;  // of them by size, where it was asked for
  std::vector<int32_t> used, start;  // (tokens, parts): features that are not 0, of inner products only

  const double* row(int64_t token) const { return number.data() + token * width; }
};

enum Outcome { GOING, DOUBT, LAYER, FAILED };

// What the processes of a run do together, each with as many numbers (`ProcessGroup` carries it out): integers added in
// place, the largest doubles in place, doubles of all processes one after the other in `out`, or this process leaves the
// layer. 0: done; 1: another process leaves the layer; 2: it failed.
enum Joint { ADD, LARGEST, STACK, LEAVE };
typedef int32_t (*Together)(int32_t what, void* numbers, int64_t many, void* out);

// What a process holds of sets that it shares with others.
struct Shares {
  std::vector<uint8_t> shared;  // by stream; empty: this is the only process
  std::vector<int64_t> totals;  // tokens of all processes
  int32_t processes = 1;
  bool confirms = false;  // a process may leave a layer behind its last sum: all wait for each other at its end
  Together together = nullptr;
};

struct Instruction {
  int32_t number = 0;  // its place in the plan
  virtual ~Instruction() = default;
  // Carries it out on one problem; DOUBT and LAYER leave it to the caller.
  virtual Outcome run(Problem& problem, Team& team) const = 0;
};

// The keys that a stored index sorts into classes, and the classes that count for every query.
struct Classes {
  int32_t slot, count;  // count: of the classes
  bool same;            // class c counts for query c
  std::vector<int32_t> start, list;  // otherwise: for every query

  Classes() = default;
  explicit Classes(Code& code);
};

// Keys sorted by their class: those of class c are order[start[c]] up to order[start[c + 1]].
struct Sorted {
  std::vector<int32_t> order, start;

  void sort(const Problem& problem, const Classes& classes, int32_t keys);
  // The members of a query, in order; `room` where they are of several classes.
  std::pair<const int32_t*, int64_t> of(const Classes& classes, int64_t query, std::vector<int32_t>& room) const;
};

// Soft heads whose slots are made block by block when they are read: the features of their keys as they were.
struct LazyHead {
  int32_t kind, slot;      // of Soft; which slot it adds to
  int32_t names;           // the value of key j is 1 in column names + j; -1: it has rows, or is a number
  std::vector<double> factor;  // of a number, by column
  Rows value;
};

struct Snapshot {
  Side keys;
  std::vector<std::vector<double>> values;  // by head: (keys, width)
};

struct LazyGroup {
  int32_t query, keys;
  Score score;
  std::vector<LazyHead> heads;
  std::vector<int32_t> slots;
};

// How much a slot may change in a layer that ends a run: sums of squares, `share` of those of the slot itself.
struct Limit {
  int64_t slot;
  double most, share;
};

struct Store;  // of exponentials that are kept (kept.cpp)
void let_go(Store& store, int64_t problem);  // of a problem after a call, where all of them would take too much room

struct Problem {
  Machine& machine;
  int64_t number;
  std::vector<Slot> slots;
  std::vector<int64_t> tokens;  // by stream
  std::vector<std::vector<double>> outs;    // what heads add, by number
  std::vector<std::vector<int32_t>> members;  // labels that rankings give
  std::vector<Snapshot> snapshots, earlier;  // by group of lazy slots
  std::vector<std::unique_ptr<Memory>> memory;  // by instruction: what it keeps from layer to layer
  Worker* workers = nullptr;  // those that work on it, `hands` of them
  uint64_t serial = 0;
  int64_t layer = 0;
  int32_t at = 0;  // the instruction that comes next
  int32_t hands = 1;  // threads that work on it
  bool stable = false, settled = false;
  Outcome outcome = GOING;
  bool left = false;  // another process has left the layer under way
  std::vector<int64_t> doubt;    // rows that the caller settles
  std::vector<int32_t> answers;  // what it decided for them
  std::vector<int64_t> tiers;    // (layer, instruction, 3): rows settled by a bound, exactly, and all rows

  Problem(Machine& machine, int64_t number);
  ~Problem();

  // Whether a block is one of those that a stream is cut into.
  bool whole(const Block& block, int32_t stream) const {
    return !block.list && block.first % LANES == 0 && block.many == std::min<int64_t>(LANES, tokens[stream] - block.first);
  }
  Block block(int64_t first, int64_t last) { return {nullptr, first, (int)std::min<int64_t>(LANES, last - first), 0}; }
  // One column of a slot.
  void column(Worker& worker, const Block& block, int32_t slot, int32_t column, double* out);
  // One row of a matrix, and all of them; `sizes`: those of what was added.
  void row(Worker& worker, const Block& block, const Rows& rows, int32_t which, double* out, double* sizes = nullptr);
  void rows(Worker& worker, const Block& block, const Rows& rows, Lane* out, Lane* sizes = nullptr);
  // The columns of a slot that is made when it is read.
  const std::vector<Lane>& slot_of(Worker& worker, const Block& block, int32_t slot);
  // Columns of a slot that stays, where they take little room; null: elsewhere.
  const Lane* standing(Worker& worker, const Block& block, const Rows& rows);
  // Rows, or features, where they lie already, or in `room`, where they are put.
  const Lane* rows_at(Worker& worker, const Block& block, const Rows& rows, Lane* room);
  const Lane* features_at(Worker& worker, const Block& block, const Score& score, bool query, Lane* room);
  // All features of one side of a score for the tokens of a block, and for all tokens.
  void features(Worker& worker, const Block& block, const Score& score, bool query, Lane* out, Lane* sizes = nullptr);
  void side(Worker& worker, const Score& score, bool query, int64_t tokens, Side& out);
  // Numbers of rows for tokens (tokens, rows).
  void numbers(Worker& worker, const Rows& rows, int64_t tokens, std::vector<double>& out);
  void count(int32_t instruction, int64_t bound, int64_t exact, int64_t rows);
  Worker& worker(int who) { return workers[who]; }
  const SlotType& type(int32_t slot) const;
  // Whether other processes hold more tokens of a set; and what all of them do about it.
  bool shared(int32_t stream) const;
  int64_t total(int32_t stream) const;
  Outcome together(Joint what, void* numbers, int64_t many, void* out = nullptr);

  void take_over(int32_t slot);  // what was written to the room of a slot is what it holds
  void* room(int32_t slot) { return slots[slot].room[slots[slot].now == slots[slot].room[0]]; }
  void forget();
  void go(Team& team, Worker* workers, int32_t hands, int64_t last, int32_t stop, bool until_stable);

 private:
  bool is_odd() const;  // a number without a value was made
  bool unchanged(Team& team);
  bool within(const Limit& limit) const;
  bool same(Team& team, int32_t group);
  Outcome agree();
  void roll_back();
};

struct Machine {
  std::vector<Limit> limits;  // empty: nothing may change
  std::vector<SlotType> types;
  std::vector<SlotArrays> arrays;
  std::vector<LazyGroup> groups;
  std::vector<std::unique_ptr<Instruction>> list;
  std::vector<std::unique_ptr<Problem>> problems;
  std::vector<Worker> workers;  // by thread
  std::vector<std::vector<int64_t>> starts;  // by stream: the first token of every problem, and the end of the last
  std::vector<double> peaks;                 // by slot: the largest size of what was given; NaN: not known
  std::vector<uint64_t> seeds;
  int32_t streams = 0, outs = 0, rankings = 0, begins = 0;  // begins: instructions that come before the first layer
  int32_t threads = 1;
  bool single = false;
  int64_t base = 0;  // layers that ran before the first of this call
  Store* store = nullptr;
  Shares shares;
};

inline const SlotType& Problem::type(int32_t slot) const { return machine.types[slot]; }

std::unique_ptr<Instruction> make_choose(Code& code);
std::unique_ptr<Instruction> make_rank(Code& code);
std::unique_ptr<Instruction> make_best(Code& code);
std::unique_ptr<Instruction> make_gather(Code& code);
std::unique_ptr<Instruction> make_soft(Code& code);
std::unique_ptr<Instruction> make_kept(Code& code);
std::unique_ptr<Instruction> make_lazy(Code& code);
std::unique_ptr<Instruction> make_member_soft(Code& code);

// Makes a tile of a group of lazy slots (soft.cpp).
void fill(Tile& tile, Problem& problem, Worker& worker, const Block& block, int32_t group, const Snapshot& snapshot);
void take_snapshot(Problem& problem, int32_t group);

// Numbers from the generator (draw.cpp): one column of 64 tokens.
void draw(int32_t kind, uint64_t seed, int64_t name, int64_t layer, const Block& block, int32_t column, double* out);

inline int64_t rows_of(const Problem& problem, int32_t stream, bool once) { return once ? 1 : problem.tokens[stream]; }

// work(first, last, who) for ranges of tokens, cut by their number alone.
template <class Work>
bool in_parts(Team& team, int64_t tokens, int64_t least, Work work) {
  const int64_t each = std::max<int64_t>(least, (tokens / 32 + LANES) / LANES * LANES);
  return team.ranges(tokens, each, work);
}

}  // namespace weftc
