// Attention of the few rows of a decoding step to the keys and values in a layer's cache.
//
// Shapes: N heads, B lanes, Q rows, C columns, K columns in use, H head dim (a multiple of 16), R distances.
#pragma once

#include "few_rows.h"
#include "operators.h"
#include "softmax.h"

namespace permcode {

// What a layer adds to its queries, [N, H], and its key of "another document"; float32.
struct QueryBiases {
  OptionalTensor distance_NH, document_NH, other_document_NH;
};

// The caches, float32, and what rows see of them: the first K columns but those where `hidden_BQK`, in the type of the
// weights, is not 0. The distance of row q and key k stands in row first_distance - q + k of the table. `other_BQK`
// tells keys of another document than the row's. In both Q may be 1.
struct DecodingKeys {
  at::Tensor key_NBCH, value_NBCH;
  OptionalTensor distance_NRH;
  int64_t num_keys, first_distance;
  OptionalTensor hidden_BQK, other_BQK;
};

inline float dot(const float* a, const float* b, int64_t width) {
  Floats parts{};
  for (int64_t h = 0; h < width; h += kLanes) parts += load(a + h) * load(b + h);
  return sum(parts);
}

// One row's attention in one head; a thread has one of it. T is the type of the weights.
template <typename T>
class RowAttention {
 public:
  RowAttention(const QueryBiases& biases, const DecodingKeys& keys)
      : biases_(biases), keys_(keys), width_(keys.key_NBCH.size(3)),
        padded_((keys.num_keys + kLanes - 1) / kLanes * kLanes), scores_(padded_), biased_(width_),
        visible_(padded_ / kLanes), other_(padded_ / kLanes) {}

  // What row q of lane b gathers with this query, [H].
  void gather(int64_t n, int64_t b, int64_t q, const float* query, float* to) {
    float of_documents[2] = {0.0f, 0.0f};
    if (keys_.other_BQK)
      of_documents[1] = dot(biased(query, *biases_.document_NH, n), row(*biases_.other_document_NH, n), width_);
    score(n, b, q, query);
    softmax<float>(scores_.data(), padded_, see(b, q), of_documents, scores_.data());
    mix(head<const float>(keys_.value_NBCH, n, b), to);
  }

 private:
  const float* row(const at::Tensor& vectors_NH, int64_t n) const {
    return vectors_NH.const_data_ptr<float>() + n * width_;
  }

  const float* biased(const float* query, const at::Tensor& bias_NH, int64_t n) {
    for (int64_t h = 0; h < width_; h += kLanes) store(load(query + h) + load(row(bias_NH, n) + h), biased_.data() + h);
    return biased_.data();
  }

  void score(int64_t n, int64_t b, int64_t q, const float* query) {
    const auto keys = head<const float>(keys_.key_NBCH, n, b);
    const Matrix<const float> content_query{query, 0};
    Matrix<const float> distances{}, distance_query{};
    if (keys_.distance_NRH) {
      distances = head<const float>(*keys_.distance_NRH, n);
      distances.data = distances.row(keys_.first_distance - q);
      distance_query.data = biased(query, *biases_.distance_NH, n);
    }
    for (int64_t k = 0; k < keys_.num_keys; k += kLanes) {
      Sums sums;
      const int64_t left = keys_.num_keys - k;
      add_products<1>(content_query, from_row(keys, k), left, width_, sums);
      if (keys_.distance_NRH) add_products<1>(distance_query, from_row(distances, k), left, width_, sums);
      store(sums.total(), scores_.data() + k);
    }
  }

  RowSight see(int64_t b, int64_t q) {
    const T* hidden = keys_.hidden_BQK ? of_row<T>(*keys_.hidden_BQK, b, q) : nullptr;
    write_bits(visible_, [=](int64_t k) { return !hidden || float(hidden[k]) == 0.0f; });
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

  // A bit per key, 16 to a word, 0 behind the last key.
  template <typename Test>
  void write_bits(std::vector<uint16_t>& words, const Test& test) const {
    std::fill(words.begin(), words.end(), 0);
    for (int64_t k = 0; k < keys_.num_keys; ++k) words[k / kLanes] |= uint16_t(test(k)) << (k % kLanes);
  }

  // Sixteen keys at a time, which stay in the first-level cache.
  void mix(Matrix<const float> values, float* to) const {
    std::fill(to, to + width_, 0.0f);
    for (int64_t first = 0; first < keys_.num_keys; first += kLanes)
      for (int64_t h = 0; h < width_; h += kLanes) {
        Floats mixed = load(to + h);
        for (int64_t k = first; k < std::min(keys_.num_keys, first + kLanes); ++k)
          mixed += all(scores_.data()[k]) * load(values.row(k) + h);
        store(mixed, to + h);
      }
  }

  const QueryBiases& biases_;
  const DecodingKeys& keys_;
  int64_t width_, padded_;
  Buffer<float> scores_, biased_;
  std::vector<uint16_t> visible_, other_;
};

}  // namespace permcode
