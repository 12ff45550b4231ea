// Which scores of a distance table belong to which keys.
#pragma once

#include <algorithm>
#include <vector>

#include "vectors.h"

namespace permcode {

// Keys [first, first + count) stand at positions position, position + 1, ...
struct KeyRun {
  int64_t first, count, position;
};

// Whether no two keys have one position, as far as the runs show that: they follow each other.
inline bool in_order(const std::vector<KeyRun>& runs) {
  for (size_t i = 1; i < runs.size(); ++i)
    if (runs[i].position < runs[i - 1].position + runs[i - 1].count) return false;
  return true;
}

inline std::vector<KeyRun> key_runs(const int64_t* position, int64_t count) {
  std::vector<KeyRun> runs;
  for (int64_t key = 0; key < count; ++key) {
    if (!runs.empty() && position[key] == runs.back().position + runs.back().count)
      ++runs.back().count;
    else
      runs.push_back({key, 1, position[key]});
  }
  return runs;
}

// The rows [first, first + width) of a table that a block of queries needs; tables run from distance `high` down.
struct Window {
  int64_t first, width;
};

struct DistanceRows {
  int64_t high, count;

  int64_t of(int64_t query_position, int64_t key_position) const {
    return std::clamp<int64_t>(high - query_position + key_position, 0, count - 1);
  }

  // Starts at an even row and is wide in steps of 32: few shapes, each of which brgemm compiles once.
  Window window(const int64_t* query_position, int64_t num_queries, const std::vector<KeyRun>& runs) const {
    if (runs.empty()) return {0, kWidthStep};
    const auto [lowest, highest] = std::minmax_element(query_position, query_position + num_queries);
    int64_t first = count - 1, last = 0;
    for (const KeyRun& run : runs) {
      first = std::min(first, of(*highest, run.position));
      last = std::max(last, of(*lowest, run.position + run.count - 1));
    }
    first -= first % 2;
    return {first, (last - first + kWidthStep) / kWidthStep * kWidthStep};
  }

  // Calls each(row of the window, key, count) for stretches in which both grow by one.
  template <typename Each>
  void stretches(int64_t query_position, const std::vector<KeyRun>& runs, Window window, Each each) const {
    for (const KeyRun& run : runs) {
      const int64_t row = high - query_position + run.position;
      if (row >= 0 && row + run.count <= count)
        each(row - window.first, run.first, run.count);
      else
        for (int64_t i = 0; i < run.count; ++i)
          each(of(query_position, run.position + i) - window.first, run.first + i, int64_t(1));
    }
  }

  // Whether a table row belongs to one key at most for these queries, so that there is nothing to add up.
  bool one_key_a_row(const int64_t* query_position, int64_t num_queries, const std::vector<KeyRun>& runs) const {
    if (runs.empty() || !in_order(runs)) return false;
    const auto [lowest, highest] = std::minmax_element(query_position, query_position + num_queries);
    const KeyRun& end = runs.back();
    return high - *highest + runs.front().position >= 0 && high - *lowest + end.position + end.count <= count;
  }

  // Tables are padded so that every window ends within them.
  int64_t padded() const { return (count + 2 * kWidthStep - 1) / kWidthStep * kWidthStep; }

  static constexpr int64_t kWidthStep = 32;
};

}  // namespace permcode
