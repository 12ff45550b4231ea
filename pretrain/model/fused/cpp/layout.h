// The layout of matrices in memory: heads of a tensor, and what at::native::cpublas::brgemm wants as its second factor.
//
// brgemm multiplies A [m, k] by B [k, n]. In bfloat16 it wants B in pairs: [k / 2, n, 2], the two numbers of a
// pair being neighbours in k. In float32 B is plain. "Rows" below are rows of B.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "vectors.h"

namespace permcode {

template <typename T>
constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;

// One head of one lane: rows of contiguous numbers.
template <typename T>
struct Matrix {
  T* data;
  int64_t stride;
  T* row(int64_t index) const { return data + index * stride; }
};

// A tensor [N, B, X, H] (or [N, X, H]) in any layout whose last dimension is contiguous.
template <typename T>
Matrix<T> head(const at::Tensor& tensor, int64_t n, int64_t b) {
  return {static_cast<T*>(tensor.data_ptr()) + n * tensor.stride(0) + b * tensor.stride(1), tensor.stride(2)};
}

template <typename T>
Matrix<T> head(const at::Tensor& tensor, int64_t n) {
  return {static_cast<T*>(tensor.data_ptr()) + n * tensor.stride(0), tensor.stride(1)};
}

// The rows that `index` names, one after the other.
template <typename T>
Matrix<const T> gather_rows(Matrix<const T> from, const int64_t* index, int64_t count, int64_t width, T* to) {
  for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * width, from.row(index[i]), width * sizeof(T));
  return {to, width};
}

// The products of one thread. Processors with tiles (AMX) have them set for one shape at a time. PyTorch sets them when
// the shape changes, and does not notice when another product on the thread has changed them since: they are released
// after the last of these.
class Products {
 public:
  Products() = default;
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() { at::native::cpublas::brgemm_release(); }

  // C [m, n] = A B, or C += A B. `b_stride` is n of the whole B.
  template <typename T>
  void multiply(int64_t m, int64_t n, int64_t k, Matrix<const T> a, const T* b, int64_t b_stride, float* c,
                int64_t c_stride, bool accumulate = false) const {
    at::native::cpublas::brgemm(m, n, k, a.stride, b_stride, c_stride, accumulate, a.data, b, c, sizeof(T) == 2);
  }
};

// Memory that is written before it is read.
template <typename T>
struct Buffer {
  std::unique_ptr<T[]> memory;
  int64_t size = 0;

  explicit Buffer(int64_t count = 0) { make(count); }

  void make(int64_t count) {
    if (count > size) memory.reset(new T[count]), size = count;
  }

  T* data() { return memory.get(); }
  const T* data() const { return memory.get(); }
  void zero() { std::memset(memory.get(), 0, size * sizeof(T)); }
};

// B = the matrix itself: rows [count, width], then zeros up to `padded` rows (a multiple of 2).
template <typename T>
void pack_rows(Matrix<const T> from, int64_t count, int64_t padded, int64_t width, T* to) {
  constexpr int64_t pair = kPair<T>;
  const std::vector<T> zeros(count < padded ? width : 0, T(0));
  const auto row = [&](int64_t index) { return index < count ? from.row(index) : zeros.data(); };
  for (int64_t first = 0; first < padded; first += pair)
    interleave(row(first), row(first + pair - 1), width, to + first * width);
}

// to[j, i] = from[i, j] of words; i < `count`, zeros from there up to `padded` (a multiple of 16).
inline void transpose_words(Matrix<const uint32_t> from, int64_t count, int64_t padded, int64_t width,
                            Matrix<uint32_t> to) {
  for (int64_t i = 0; i < padded; i += kLanes)
    for (int64_t j = 0; j < width; j += kLanes) {
      Words tile[kLanes];
      for (int64_t row = 0; row < kLanes; ++row)
        tile[row] = i + row < count ? load_words(from.row(i + row) + j, width - j) : Words{};
      transpose_tile(tile);
      for (int64_t column = 0; column < std::min(kLanes, width - j); ++column)
        store_words(tile[column], to.row(j + column) + i);
    }
}

// to[i, j] = from[j, i] of float32 rows of `stride` numbers (a multiple of 16), i < `count`, j < `width`.
template <typename T>
void transpose_floats(const float* from, int64_t stride, int64_t count, int64_t width, Matrix<T> to) {
  for (int64_t i = 0; i < count; i += kLanes)
    for (int64_t j = 0; j < width; j += kLanes) {
      Words tile[kLanes];
      for (int64_t row = 0; row < kLanes; ++row)
        tile[row] = j + row < width ? load_words(from + (j + row) * stride + i, kLanes) : Words{};
      transpose_tile(tile);
      for (int64_t row = 0; row < std::min(kLanes, count - i); ++row)
        store((Floats)tile[row], to.row(i + row) + j, width - j);
    }
}

template <typename To, typename From>
Matrix<To> as_words(Matrix<From> matrix) {
  return {reinterpret_cast<To*>(matrix.data), matrix.stride / kPair<std::remove_const_t<From>>};
}

// B = the matrix transposed: [width, count], then zeros up to `padded` columns; width a multiple of the pair.
template <typename T>
void pack_columns(Matrix<const T> from, int64_t count, int64_t padded, int64_t width, T* to) {
  transpose_words(as_words<const uint32_t>(from), count, padded, width / kPair<T>,
                  {reinterpret_cast<uint32_t*>(to), padded});
}

// A = the matrix transposed: to[j, i] = from[i, j], i < `count`, then zeros up to `padded` (a multiple of 32).
template <typename T>
void transpose_rows(Matrix<const T> from, int64_t count, int64_t padded, int64_t width, T* scratch, T* to) {
  pack_rows(from, count, padded, width, scratch);
  const int64_t num_words = padded / kPair<T>;
  transpose_words({reinterpret_cast<const uint32_t*>(scratch), width}, num_words, num_words, width,
                  {reinterpret_cast<uint32_t*>(to), num_words});
}

}  // namespace permcode
