// Queries that are searched again and again while keys move: the lead that a row needs, and when bounds pay.
//
// With u = 2^-24, r features, X the length of a query and C that of the longest key, in scaled units, a score
// v = |k|^2 - 2 <q, k> or -<q, k> is computed in float32 with an error of at most
//
//     distance       (r + 8) u (C^2 + 2 X C)         inner product  (r + 8) u X C
//
// from rounding of features, keys and sums in any order, with or without fused operations, plus what features that are not
// data contribute. Twice that is the lead a certain row needs.
#pragma once

#include <memory>

#include "searcher.h"

// Queries as they are stored. See library.py, which has the same fields in the same order.
extern "C" struct WeftQueries {
  const void* data;  // (rows, features)
  int64_t stride;
  int64_t rows;
  int32_t is_double;
  int32_t features;
  int32_t distance;
  int32_t shorts;        // a first look in 16 bits may be taken
  int32_t bounds;        // 0: none are kept, 1: as long as they pay, 2: always
  int32_t many;          // features times keys from which scores cost more than bounds
  int32_t whole;         // all stored numbers are small whole numbers
  const double* centre;  // (features)
  double power;          // features are multiplied by this power of two
  double peak;           // of the stored numbers
  double top;            // no feature is larger, centred and scaled
  double length;         // of most queries, centred and scaled
  double slack;          // bound of the error of the features of a query, as a length
  double constant;       // length of the features that all queries share and that are not stored
};

// A search. See library.py.
extern "C" struct WeftFind {
  const double* keys;    // (count, features) for the stored columns
  const double* offset;  // (count) what the constant features add; null: nothing
  int32_t count;
  int32_t first;         // among equal scores the first key wins
  double longest;        // the length of the longest key, all its features counted
  double radius;         // bound of the error of the features of a key, as a length
  double tolerance;
  int32_t threads;
  int32_t* label;        // out; kept by the caller as long as no other search has come
  // found
  int32_t looked;        // whether a first look was taken in 16 bits
  int32_t carried;       // whether bounds of the search before were used
  int64_t scanned;
  int64_t refined;
  int64_t settled_f64;
  int64_t doubtful;
  const int64_t* doubt;  // rows of which nothing is proved, in order; valid until the next search
  const float* upper;    // bounds, or null
  const float* lower;
};

namespace weftc {

class Finder {
 public:
  explicit Finder(const WeftQueries& queries)
      : q_(queries), centre_(queries.centre, queries.centre + queries.features), shorts_(queries.shorts && WEFTC_SHORTS) {
    search_.data = q_.data, search_.stride = q_.stride, search_.rows = q_.rows, search_.is_double = q_.is_double;
    search_.features = q_.features, search_.distance = q_.distance;
    search_.centre = table_.centre = centre_.data(), search_.power = q_.power, search_.table = &table_;
    search_.grow = 1 + (q_.features + 8) * U;
    table_.features = q_.features, table_.distance = q_.distance, table_.length = q_.length, table_.top = q_.top;
  }

  int64_t rows() const { return q_.rows; }

  // Finds the best keys; false when memory ran out.
  bool find(WeftFind& ask, Team& team) {
    const bool sure = ask.radius == 0 && q_.slack == 0, plain = sure && ask.tolerance == 0;
    fill_table(ask, plain);
    if (!(table_.reach < LARGEST && table_.most < LARGEST)) {  // keys are too far out
      search_.scanned = search_.refined = search_.settled_f64 = ask.looked = ask.carried = 0;
      search_.doubt.resize(q_.rows);
      for (int64_t i = 0; i < q_.rows; i++) search_.doubt[i] = i, ask.label[i] = 0;
      return report(ask), true;
    }
    need(ask);
    search_.tolerance = ask.tolerance, search_.threads = ask.threads;
    search_.exact = sure ? ask.keys : nullptr;
    search_.label = ask.label;
    const bool bounded = plain && q_.distance && pays();
    search_.before = bounded ? carried() : nullptr;
    search_.upper = bounded ? upper_.get() : nullptr, search_.lower = bounded ? lower_.get() : nullptr;
    search_.previous = previous_.data(), search_.drift = drift_.data();
    if (!(q_.is_double ? carry_out(search_, doubles_, team) : carry_out(search_, floats_, team))) return false;
    ask.looked = table_.shorts.scale > 0 && !search_.ties;
    if (ask.looked && search_.refined > UNSETTLED * search_.scanned) shorts_ = false;
    ask.carried = search_.before != nullptr;
    if (bounded) {
      labels_ = ask.label;
      previous_.assign(ask.keys, ask.keys + (size_t)table_.count * q_.features);
      if (search_.before && q_.bounds == 1 && search_.scanned > worth() * q_.rows) give_up();
    }
    return report(ask), true;
  }

 private:
  static constexpr double SMALLEST = 0x1p-100;  // what float32 products may lose by underflow, in scaled units
  static constexpr double LARGEST = 0x1p30;     // keys further out than this many times the data are left to the caller
  static constexpr double WHOLE = 0x1p24;       // whole numbers up to here are exact in float32
  static constexpr double UNSETTLED = 0.25;     // the share of rows that a first look may leave
  static constexpr int PAUSE = 3;               // searches without bounds before they are tried again; twice as many each time

  void fill_table(const WeftFind& ask, bool plain) {
    table_.keys = ask.keys, table_.count = ask.count;
    if (!ask.offset) nothing_.assign(ask.count, 0.0);
    table_.offset = ask.offset ? ask.offset : nothing_.data();
    const bool same = q_.distance || q_.whole;
    table_.power = same ? q_.power : power_for(ask.keys, (size_t)ask.count * q_.features);
    table_.both = table_.power * q_.power;
    table_.in_shorts = shorts_ && plain;
    fill(table_);
  }

  // The lead a row needs, e0 + e1 |x|, and whether equal scores are equal without doubt.
  void need(const WeftFind& ask) {
    const double reach = table_.reach, most = table_.most, share = (q_.features + 8) * U * ROOM;
    const double own = q_.slack * q_.power * ROOM, other = ask.radius * table_.power * ROOM;
    const double largest = q_.features * table_.peak * (table_.peak + 2 * q_.peak) + table_.peak;
    const bool whole = q_.whole && table_.whole && largest < WHOLE && own == 0 && other == 0 && ask.tolerance == 0;
    search_.ties = whole && ask.first;
    if (whole) {
      search_.e0 = search_.e1 = 0;
      return;
    }
    const double least = 2 * SMALLEST + ask.tolerance * q_.power * table_.power;
    double e0, e1;
    if (q_.distance) {
      const double both = own + other, aside = std::sqrt(most);  // aside: the part of a distance that all queries share
      e0 = 2 * share * (reach * reach + most) + 2 * both * (2 * (reach + aside) + both) + least;
      e1 = 4 * share * reach + 4 * both;
    } else {
      const double constant = q_.constant * q_.power, length = ask.longest * table_.power;
      e0 = 2 * share * most + 2 * (own * length + own * other + constant * other) + least;
      e1 = 2 * share * reach + 2 * other;
    }
    search_.e0 = (float)(e0 * ROOM), search_.e1 = (float)(e1 * ROOM);
  }

  // Whether bounds are kept this time.
  bool pays() {
    if (q_.bounds != 1 || table_.most != 0) return q_.bounds && table_.most == 0;
    if ((int64_t)table_.count * q_.features < q_.many) return false;
    pause_ = std::max(0, pause_ - 1);
    return !pause_;
  }

  // The labels that the bounds belong to; null where bounds start anew.
  const int32_t* carried() {
    if (upper_ && previous_.size() == (size_t)table_.count * q_.features) return labels_;
    if (!upper_) upper_.reset(new float[q_.rows]), lower_.reset(new float[q_.rows]);
    drift_.assign(table_.count, 0.0);
    search_.spread = 0;
    return nullptr;
  }

  // The share of rows scanned up to which bounds pay, by rough nanoseconds per row.
  double worth() const {
    const double features = q_.features, scan = 5 + features / 4 + features * table_.count / (shorts_ ? 90 : 50);
    const double look = 2.5, own = 5 + 0.6 * features, apart = 8;  // bounds, one distance, rows that lie apart
    return (scan - look) / (1.15 * scan + apart + 1.4 * own);
  }

  void give_up() {
    pause_ = longer_, longer_ *= 2;
    labels_ = nullptr;
    upper_.reset(), lower_.reset();
  }

  void report(WeftFind& ask) const {
    ask.scanned = search_.scanned, ask.refined = search_.refined, ask.settled_f64 = search_.settled_f64;
    ask.doubtful = (int64_t)search_.doubt.size(), ask.doubt = search_.doubt.data();
    const bool kept = labels_ == ask.label;
    ask.upper = kept ? upper_.get() : nullptr, ask.lower = kept ? lower_.get() : nullptr;
  }

  WeftQueries q_;
  std::vector<double> centre_, nothing_, previous_, drift_;
  std::unique_ptr<float[]> upper_, lower_;
  const int32_t* labels_ = nullptr;  // that the bounds belong to
  bool shorts_;
  int pause_ = 4, longer_ = PAUSE;  // the first keys move far
  Table table_{};
  Search search_{};
  Searchers<float> floats_;
  Searchers<double> doubles_;
};

}  // namespace weftc
