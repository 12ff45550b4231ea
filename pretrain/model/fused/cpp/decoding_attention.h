// Attention of the rows of a decoding step, few of each lane, to the keys and values in a layer's cache.
//
// Shapes: N heads, B lanes, Q rows, C columns, K columns in use, H head dim (a multiple of 16), R distances.
#pragma once

#include "few_rows.h"
#include "operators.h"
#include "softmax.h"

namespace permcode {

// The biases of a layer's queries, [N, H], and its key of "another document"; float32.
struct QueryBiases {
  OptionalTensor distance_NH, document_NH, other_document_NH;
};

// The caches, float32, and what rows see of them: the first K columns but those where `hidden_BQK`, in the type of the
// weights, is not 0. A row stands in its column of `column_BQ`, or, without them, row q of all lanes in column
// first_column + q. The distance of a row in column c and key k stands in row highest_distance - c + k of the table.
// `other_BQK` tells keys of another document than the row's. In both masks Q may be 1.
struct DecodingKeys {
  at::Tensor key_NBCH, value_NBCH;
  OptionalTensor distance_NRH;
  int64_t num_keys, first_column, highest_distance;
  OptionalTensor column_BQ, hidden_BQK, other_BQK;

  int64_t column(int64_t b, int64_t q) const {
    return column_BQ ? column_BQ->const_data_ptr<int64_t>()[b * column_BQ->size(1) + q] : first_column + q;
  }
};

inline float dot(const float* a, const float* b, int64_t width) {
  Floats parts{};
  for (int64_t h = 0; h < width; h += kLanes) parts += load(a + h) * load(b + h);
  return sum(parts);
}

// Attention of the rows of one lane in one head; a thread has one of it. T is the type of the weights.
template <typename T>
class HeadAttention {
 public:
  HeadAttention(const QueryBiases& biases, const DecodingKeys& keys)
      : biases_(biases), keys_(keys), width_(keys.key_NBCH.size(3)),
        padded_((keys.num_keys + kLanes - 1) / kLanes * kLanes), shifted_stride_(padded_ + kLanes),
        scores_(kMostRows * padded_), shifted_(kMostRows * shifted_stride_), biased_(kMostRows * width_),
        mixed_(kMostRows * width_), visible_(padded_ / kLanes), other_(padded_ / kLanes) {}

  // The attention output of the rows from q on of lane b with these queries, [Q, H].
  void gather(int64_t n, int64_t b, int64_t q, int64_t num_rows, Matrix<const float> queries, Matrix<T> to) {
    in_groups(num_rows, [&](auto group, int64_t r) {
      constexpr int64_t kRows = decltype(group)::value;
      score<kRows>(n, b, q + r, from_row(queries, r));
      for (int64_t i = 0; i < kRows; ++i) weigh(n, b, q + r + i, queries.row(r + i), scores_.data() + i * padded_);
      mix<kRows>(head<const float>(keys_.value_NBCH, n, b));
      for (int64_t i = 0; i < kRows; ++i) convert(mixed_.data() + i * width_, to.row(r + i), width_);
    });
  }

 private:
  static constexpr int64_t kMostRows = 4;  // of a group
  static constexpr int64_t kUsualWidth = 64;  // known when this is compiled, it lets queries stay in registers

  const float* row(const at::Tensor& vectors_NH, int64_t n) const {
    return vectors_NH.const_data_ptr<float>() + n * width_;
  }

  const float* biased(const float* query, const at::Tensor& bias_NH, int64_t n, float* to) const {
    scale_and_add(query, 1.0f, row(bias_NH, n), to, width_);
    return to;
  }

  // to[r][k] = (row r) (row k of the matrix)
  template <int64_t kRows>
  void products(Matrix<const float> rows, Matrix<const float> matrix, int64_t count, Matrix<float> to) const {
    if (width_ == kUsualWidth)
      products<kRows>(rows, matrix, count, std::integral_constant<int64_t, kUsualWidth>{}, to);
    else
      products<kRows>(rows, matrix, count, width_, to);
  }

  template <int64_t kRows, typename Width>
  static void products(Matrix<const float> rows, Matrix<const float> matrix, int64_t count, Width width,
                       Matrix<float> to) {
    for (int64_t k = 0; k < count; k += kLanes) {
      float tile[kRows][kLanes];
      multiply_tile<kRows>(rows, from_row(matrix, k), count - k, width, tile);
      for (int64_t r = 0; r < kRows; ++r) store(load(tile[r]), to.row(r) + k);
    }
  }

  template <int64_t kRows>
  void score(int64_t n, int64_t b, int64_t q, Matrix<const float> queries) {
    products<kRows>(queries, head<const float>(keys_.key_NBCH, n, b), keys_.num_keys, {scores_.data(), padded_});
    if (!keys_.distance_NRH) return;
    for (int64_t r = 0; r < kRows; ++r)
      biased(queries.row(r), *biases_.distance_NH, n, biased_.data() + r * width_);
    const auto table = head<const float>(*keys_.distance_NRH, n);
    // A row in the next column begins a row earlier in the table, so rows in successive columns share its rows.
    for (int64_t r = 0; r < kRows && !successive<kRows>(b, q); ++r) {
      products<1>({biased_.data() + r * width_, width_}, from_row(table, keys_.highest_distance - keys_.column(b, q + r)),
                  keys_.num_keys, {shifted_.data(), shifted_stride_});
      add(shifted_.data(), scores_.data() + r * padded_, keys_.num_keys);
    }
    if (!successive<kRows>(b, q)) return;
    const int64_t first = keys_.highest_distance - keys_.column(b, q + kRows - 1);
    products<kRows>({biased_.data(), width_}, from_row(table, first), keys_.num_keys + kRows - 1,
                    {shifted_.data(), shifted_stride_});
    for (int64_t r = 0; r < kRows; ++r)
      add(shifted_.data() + r * shifted_stride_ + kRows - 1 - r, scores_.data() + r * padded_, keys_.num_keys);
  }

  template <int64_t kRows>
  bool successive(int64_t b, int64_t q) const {
    for (int64_t r = 1; r < kRows; ++r)
      if (keys_.column(b, q + r) != keys_.column(b, q) + r) return false;
    return true;
  }

  // From the scores of row q to its weights.
  void weigh(int64_t n, int64_t b, int64_t q, const float* query, float* scores) {
    float of_documents[2] = {0.0f, 0.0f};
    if (keys_.other_BQK)
      of_documents[1] = dot(biased(query, *biases_.document_NH, n, biased_.data()), row(*biases_.other_document_NH, n),
                            width_);
    softmax<float>(scores, padded_, see(b, q), of_documents, scores);
  }

  RowVisibility see(int64_t b, int64_t q) {
    const T* hidden = keys_.hidden_BQK ? of_row<T>(*keys_.hidden_BQK, b, q) : nullptr;
    if (hidden)
      write_bits(visible_, [=](int64_t k) { return float(hidden[k]) == 0.0f; });
    else
      write_ones(visible_);
    if (!keys_.other_BQK) return {visible_.data(), nullptr};
    const bool* other = of_row<bool>(*keys_.other_BQK, b, q);
    write_bits(other_, [=](int64_t k) { return other[k]; });
    return {visible_.data(), other_.data()};
  }

  template <typename U>
  static const U* of_row(const at::Tensor& tensor_BQK, int64_t b, int64_t q) {
    return tensor_BQK.const_data_ptr<U>() + b * tensor_BQK.stride(0) +
           (tensor_BQK.size(1) == 1 ? 0 : q * tensor_BQK.stride(1));
  }

  // A bit per key, 16 to a word, 0 after the last key.
  template <typename Test>
  void write_bits(std::vector<uint16_t>& words, const Test& test) const {
    std::fill(words.begin(), words.end(), 0);
    for (int64_t k = 0; k < keys_.num_keys; ++k) words[k / kLanes] |= uint16_t(test(k)) << (k % kLanes);
  }

  void write_ones(std::vector<uint16_t>& words) const {
    for (int64_t k = 0; k < padded_; k += kLanes)
      words[k / kLanes] = uint16_t((1u << std::min(kLanes, keys_.num_keys - k)) - 1);
  }

  // The weighted sums of the values for the rows of a group, columns [0, H) of them.
  template <int64_t kRows>
  void mix(Matrix<const float> values) {
    int64_t h = 0;
    for (; h + 4 * kLanes <= width_; h += 4 * kLanes) mix_columns<kRows, 4>(values, h);
    for (; h < width_; h += kLanes) mix_columns<kRows, 1>(values, h);
  }

  // The same of 16 kVectors columns, whose sums stay in registers: memory is read in its order.
  template <int64_t kRows, int64_t kVectors>
  void mix_columns(Matrix<const float> values, int64_t h) {
    Floats mixed[kRows][kVectors] = {};
    for (int64_t k = 0; k < keys_.num_keys; ++k) {
      const float* value = values.row(k) + h;
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v) read_ahead(value + v * kLanes);
#pragma GCC unroll 4
      for (int64_t r = 0; r < kRows; ++r) {
        const Floats weight = all(scores_.data()[r * padded_ + k]);
#pragma GCC unroll 4
        for (int64_t v = 0; v < kVectors; ++v) mixed[r][v] += weight * load(value + v * kLanes);
      }
    }
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t v = 0; v < kVectors; ++v) store(mixed[r][v], mixed_.data() + r * width_ + h + v * kLanes);
  }

  const QueryBiases& biases_;
  const DecodingKeys& keys_;
  int64_t width_, padded_, shifted_stride_;
  Buffer<float> scores_, shifted_, biased_, mixed_;
  std::vector<uint16_t> visible_, other_;
};

}  // namespace permcode
