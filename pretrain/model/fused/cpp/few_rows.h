// A few rows times a matrix that is read once, so that the product costs what the reading costs.
//
// Shapes: X rows, I inputs, O outputs. I is a multiple of 16, in bfloat16 of 32.
#pragma once

#include <ATen/Parallel.h>

#include <type_traits>

#include "layout.h"

#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace permcode {

// Sixteen sums in the making, a vector of parts for each.
struct Sums {
  Floats parts[kLanes] = {};

  // Sum i in lane i: halves of two vectors are added at a time, 8, 4, 2 and 1 lanes apart.
  Floats total() const {
    Floats halves[kLanes];
    std::copy(parts, parts + kLanes, halves);
#pragma GCC unroll 4
    for (uint32_t block = kLanes / 2; block > 0; block /= 2) {
      const Words first = (kLane & block) != 0 ? kLane - block + kLanes : kLane;
      const Words second = (kLane & block) != 0 ? kLane + kLanes : kLane + block;
#pragma GCC unroll 8
      for (uint32_t i = 0; i < block; ++i) {
        const Words a = (Words)halves[i], b = (Words)halves[i + block];
        halves[i] = (Floats)pick(a, b, first) + (Floats)pick(a, b, second);
      }
    }
    return halves[0];
  }
};

// The unit of a multiplication: 16 numbers, or 16 pairs of bfloat16.
template <typename T>
constexpr int64_t kStep = kLanes * kPair<T>;

inline Floats load_step(const float* from) { return load(from); }
inline Words load_step(const c10::BFloat16* from) { return load_words(from, kLanes); }

inline void add_product(Floats a, Floats b, Floats& sum) { sum += a * b; }

inline void add_product(Words a, Words b, Floats& sum) {
#ifdef __AVX512BF16__
  sum = (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  constexpr uint32_t kUpper = 0xffff0000;
  sum += (Floats)(a << 16) * (Floats)(b << 16);
  sum += (Floats)(a & kUpper) * (Floats)(b & kUpper);
#endif
}

template <typename T>
Matrix<T> from_row(Matrix<T> matrix, int64_t first) {
  return {matrix.row(first), matrix.stride};
}

// Prefetches what is read half a page later: the processor's own prefetching starts anew at every page.
inline void read_ahead(const void* from) {
  constexpr int64_t kBytes = 2048;
  __builtin_prefetch(static_cast<const char*>(from) + kBytes);
}

// Sum o * kRows + r grows by (row r) (row o of the matrix). The matrix has `count` rows; the last one serves for
// those that are missing. One row of it is read after the other: memory delivers half as much of eight at a time.
// `Inputs` is int64_t, or a number that is known when this is compiled.
template <int64_t kRows, typename T, typename Inputs>
inline void add_products(Matrix<const T> rows, Matrix<const T> matrix, int64_t count, Inputs inputs, Sums& sums) {
#pragma GCC unroll 16
  for (int64_t o = 0; o < kLanes / kRows; ++o) {
    const T* weights = matrix.row(std::min(o, count - 1));
    Floats parts[kRows];
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) parts[r] = sums.parts[o * kRows + r];
#pragma GCC unroll 4
    for (int64_t i = 0; i < inputs; i += kStep<T>) {
      read_ahead(weights + i);
      const auto weight = load_step(weights + i);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) add_product(weight, load_step(rows.row(r) + i), parts[r]);
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) sums.parts[o * kRows + r] = parts[r];
  }
}

// The products of kRows rows with 16 rows of the matrix, or as many as it has: to[r][o].
template <int64_t kRows, typename T, typename Inputs>
inline void multiply_tile(Matrix<const T> rows, Matrix<const T> matrix, int64_t count, Inputs inputs,
                          float (*to)[kLanes]) {
  constexpr int64_t kOutputs = kLanes / kRows;
  for (int64_t first = 0; first < std::min(kLanes, count); first += kOutputs) {
    Sums sums;
    add_products<kRows>(rows, from_row(matrix, first), count - first, inputs, sums);
    float total[kLanes];
    store(sums.total(), total);
    for (int64_t o = 0; o < kOutputs; ++o)
      for (int64_t r = 0; r < kRows; ++r) to[r][first + o] = total[o * kRows + r];
  }
}

constexpr int64_t kBlocksAtLeast = 2;  // of 16 outputs, for a thread

// each(number of rows, first row) for groups of 4, 2 and 1 rows; the number is known when this is compiled.
template <typename Each>
inline void in_groups(int64_t num_rows, const Each& each) {
  int64_t x = 0;
  for (; num_rows - x >= 4; x += 4) each(std::integral_constant<int64_t, 4>{}, x);
  if (num_rows - x >= 2) each(std::integral_constant<int64_t, 2>{}, x), x += 2;
  if (num_rows - x >= 1) each(std::integral_constant<int64_t, 1>{}, x);
}

// finish(row, first output, 16 products of the row) for rows [X, I] and a matrix [O, I], on all threads. Where there
// are fewer than 16 outputs left, the last products mean nothing.
template <typename T, typename Finish>
void multiply_few_rows(const T* rows, int64_t num_rows, const T* matrix, int64_t outputs, int64_t inputs,
                       const Finish& finish) {
  const int64_t blocks = (outputs + kLanes - 1) / kLanes;
  at::parallel_for(0, blocks, kBlocksAtLeast, [&](int64_t first_block, int64_t last_block) {
    for (int64_t o = first_block * kLanes; o < last_block * kLanes; o += kLanes)
      in_groups(num_rows, [&](auto group, int64_t x) {
        constexpr int64_t kRows = decltype(group)::value;
        float products[kRows][kLanes];
        multiply_tile<kRows>(Matrix<const T>{rows + x * inputs, inputs}, Matrix<const T>{matrix + o * inputs, inputs},
                             outputs - o, inputs, products);
        for (int64_t r = 0; r < kRows; ++r) finish(x + r, o, load(products[r]));
      });
  });
}

}  // namespace permcode
