// Sums over rows that come with work on every row.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "vectors.h"

namespace permcode {

// Calls each(row, sums of its block of rows) for all rows; the sums [count, columns] of all blocks together. Blocks are
// added up in their order, so the result does not depend on the number of threads.
template <typename Each>
at::Tensor with_column_sums(int64_t rows, int64_t count, int64_t columns, Each each) {
  constexpr int64_t kRows = 64;
  const int64_t blocks = (rows + kRows - 1) / kRows, size = count * columns;
  at::Tensor sums = at::zeros({std::max<int64_t>(blocks, 1), count, columns}, at::kFloat);
  float* parts = sums.data_ptr<float>();
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t row = first * kRows; row < std::min(last * kRows, rows); ++row) each(row, parts + row / kRows * size);
  });
  for (int64_t block = 1; block < blocks; ++block) add(parts + block * size, parts, size);
  return sums.select(0, 0);
}

}  // namespace permcode
