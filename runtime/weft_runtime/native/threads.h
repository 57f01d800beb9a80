// Ranges of rows handed out to threads. Threads live as long as one call: nothing is left behind after a fork.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace weft {

// Calls work(first, last, thread) for ranges of at most `chunk` rows until all are done; false when memory ran out.
template <class Work>
bool share(int64_t rows, int64_t chunk, int threads, Work work) {
  const int64_t chunks = (rows + chunk - 1) / chunk;
  std::atomic<int64_t> next{0};
  std::atomic<bool> good{true};
  auto loop = [&](int thread) {
    try {
      for (int64_t at = next++; at < chunks && good; at = next++)
        work(at * chunk, std::min(rows, (at + 1) * chunk), thread);
    } catch (const std::exception&) {
      good = false;
    }
  };
  std::vector<std::thread> others;
  const int helpers = (int)std::min<int64_t>(threads, chunks) - 1;
  try {
    for (int t = 1; t <= helpers; t++) others.emplace_back(loop, t);
  } catch (const std::exception&) {
    // fewer threads than hoped for
  }
  loop(0);
  for (auto& other : others) other.join();
  return good;
}

}  // namespace weft
