// Threads that lend a hand: the caller goes through the pieces of a task, and so do helpers that have a core to run on.
//
// The caller waits only for pieces that a helper is at work on, never for a helper to come: a busy machine costs no more
// than the help. Helpers hold nothing but the team itself, so none is waited for at the end. Between calls they sleep; when
// they wake up they keep off the core of the caller, where new threads, and sometimes others, stay for longer than a call.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif
#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace weftc {

class Team;

// Threads that sleep until a team needs them. A process that was forked has its own.
class Crew {
 public:
  static Crew& ours() {
    static std::atomic<Crew*> known{nullptr};
    Crew* crew = known.load(std::memory_order_acquire);
    if (!crew || crew->process_ != process()) {  // what is left of another process is not touched
      Crew* made = new Crew;
      if (known.compare_exchange_strong(crew, made, std::memory_order_acq_rel)) crew = made;
      else delete made;
    }
    return *crew;
  }

  inline void lend(const std::shared_ptr<Team>& team, int many);

 private:
  struct Helper {
    std::shared_ptr<Team> team;
    int who = 0;
    std::condition_variable wake;
    std::thread::native_handle_type thread;

    // Any core that the caller may use, but not the one it is on.
    void keep_off() {
#if defined(__linux__)
      cpu_set_t cores;
      const int here = sched_getcpu();
      if (here < 0 || sched_getaffinity(0, sizeof cores, &cores) || CPU_COUNT(&cores) < 2) return;
      CPU_CLR(here, &cores);
      pthread_setaffinity_np(thread, sizeof cores, &cores);
#endif
    }
  };

  static int64_t process() {
#if defined(__unix__) || defined(__APPLE__)
    return getpid();
#else
    return 0;
#endif
  }

  inline void live(Helper* helper);

  const int64_t process_ = process();
  std::mutex lock_;
  std::vector<Helper*> idle_;
  size_t all_ = 0;
};

class Team {
 public:
  // A team of at most `threads`, the caller among them; work() is the caller's part.
  template <class Work>
  static void run(int threads, Work work) {
    auto team = std::make_shared<Team>();
    try {
      if (threads > 1) Crew::ours().lend(team, threads - 1);
    } catch (const std::exception&) {
      // fewer than hoped for
    }
    struct Stop {
      Team& team;
      ~Stop() { team.stop_.store(true, std::memory_order_release); }
    } stop{*team};
    work(*team);
  }

  // piece(number), or piece(number, who), for every number below `count`; `who` is below the number of threads, the
  // caller is 0. Pieces must not throw. A ticket has room for a million numbers, so more come in several turns.
  template <class Piece>
  void share(int64_t count, Piece piece) {
    for (int64_t first = 0; first < count; first += MOST) turn(first, std::min(MOST, count - first), piece);
  }

  // work(first, last, who) for ranges of at most `chunk` rows until all are done; false when it threw: memory ran out.
  template <class Work>
  bool ranges(int64_t rows, int64_t chunk, Work work) {
    std::atomic<bool> good{true};
    share((rows + chunk - 1) / chunk, [&](int64_t at, int who) {
      try {
        if (good) work(at * chunk, std::min(rows, (at + 1) * chunk), who);
      } catch (const std::exception&) {
        good = false;
      }
    });
    return good;
  }

 private:
  friend class Crew;
  static constexpr int BITS = 20, SPINS = 1000;
  static constexpr int64_t MOST = ((int64_t)1 << BITS) - 1;  // numbers of one turn

  template <class Piece>
  void turn(int64_t first, int64_t count, Piece& piece) {
    task_ = &piece, first_ = first;
    call_ = [](void* task, int64_t number, int who) {
      if constexpr (std::is_invocable_v<Piece, int64_t, int>) (*(Piece*)task)(number, who);
      else (*(Piece*)task)(number);
    };
    if (count == 1) return call_(task_, first_, 0);
    done_.store(0, std::memory_order_relaxed);
    const uint64_t turn = (ticket_.load(std::memory_order_relaxed) >> (2 * BITS)) + 1;
    ticket_.store(turn << (2 * BITS) | (uint64_t)count << BITS, std::memory_order_release);
    while (one(true, 0)) {
    }
    for (int spin = 0; done_.load(std::memory_order_acquire) < count; spin++) rest(spin);
  }

  // Takes a piece and does it: the caller from the front, helpers from the back, so that each meets its own pieces again
  // in the next task of the kind. A ticket names the task, so that nobody takes a piece of one that is over.
  bool one(bool front, int who) {
    constexpr uint64_t mask = (1u << BITS) - 1;
    uint64_t ticket = ticket_.load(std::memory_order_acquire), rest;
    do {
      if ((ticket & mask) >= (ticket >> BITS & mask)) return false;
      rest = front ? ticket + 1 : ticket - (1u << BITS);
    } while (!ticket_.compare_exchange_weak(ticket, rest, std::memory_order_acq_rel));
    call_(task_, first_ + (int64_t)(front ? ticket & mask : (rest >> BITS & mask)), who);
    done_.fetch_add(1, std::memory_order_release);
    return true;
  }

  void help(int who) {
    for (int spin = 0; !stop_.load(std::memory_order_acquire); spin++) {
      if (one(false, who))
        spin = 0;
      else
        rest(spin);
    }
  }

  static void rest(int spin) {
    if (spin >= SPINS)
      std::this_thread::yield();  // somebody else may need the core
#if defined(__SSE2__)
    else
      _mm_pause();
#endif
  }

  void* task_ = nullptr;
  int64_t first_ = 0;  // number that the pieces of this turn are counted from
  void (*call_)(void*, int64_t, int) = nullptr;
  std::atomic<uint64_t> ticket_{0};  // number of the task, end and start of the pieces that are left
  std::atomic<int64_t> done_{0};
  std::atomic<bool> stop_{false};
};

void Crew::lend(const std::shared_ptr<Team>& team, int many) {
  std::lock_guard<std::mutex> held(lock_);
  for (int who = 1; who <= many; who++) {
    Helper* helper = idle_.empty() ? nullptr : idle_.back();
    if (helper) {
      idle_.pop_back();
    } else {
      auto made = std::make_unique<Helper>();
      idle_.reserve(++all_);  // so that none fails to come back
      std::thread fresh([this, own = made.get()] { live(own); });
      made->thread = fresh.native_handle();
      fresh.detach();
      helper = made.release();
    }
    helper->keep_off();
    helper->team = team, helper->who = who;
    helper->wake.notify_one();
  }
}

void Crew::live(Helper* helper) {
  std::unique_lock<std::mutex> held(lock_);
  for (;;) {
    helper->wake.wait(held, [&] { return helper->team != nullptr; });
    const std::shared_ptr<Team> team = std::move(helper->team);
    const int who = helper->who;
    held.unlock();
    team->help(who);
    held.lock();
    idle_.push_back(helper);
  }
}

}  // namespace weftc
