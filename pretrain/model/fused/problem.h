// The sizes and the places of one call, as both directions need them.
#pragma once

#include "distances.h"
#include "layout.h"
#include "operators.h"
#include "softmax.h"

namespace permcode {

inline at::Tensor with_plain_rows(const at::Tensor& tensor) {
  return tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

inline OptionalTensor with_plain_rows(const OptionalTensor& tensor) {
  return tensor ? OptionalTensor(with_plain_rows(*tensor)) : std::nullopt;
}

struct Problem {
  int64_t heads, lanes, rows, keys, width, padded_keys, blocks;
  DistanceRows distances;
  at::Tensor row_positions, key_positions;
  std::vector<std::vector<KeyRun>> runs;

  Problem(const at::Tensor& content_NBQH, const at::Tensor& key_NBKH, const OptionalTensor& distance_NRH,
          const at::Tensor& row_position_BQ, const at::Tensor& key_position_BK, int64_t highest_distance)
      : heads(content_NBQH.size(0)),
        lanes(content_NBQH.size(1)),
        rows(content_NBQH.size(2)),
        keys(key_NBKH.size(2)),
        width(content_NBQH.size(3)),
        padded_keys(rounded_up(keys, kKeysStep)),
        blocks((rows + kBlockRows - 1) / kBlockRows),
        distances{highest_distance, distance_NRH ? distance_NRH->size(1) : 0},
        row_positions(row_position_BQ.contiguous()),
        key_positions(key_position_BK.contiguous()) {
    if (distance_NRH)
      for (int64_t b = 0; b < lanes; ++b)
        runs.push_back(key_runs(key_positions.data_ptr<int64_t>() + b * keys, keys));
  }

  const int64_t* positions(int64_t b, int64_t row) const {
    return row_positions.data_ptr<int64_t>() + b * rows + row;
  }
};

// Bits [B, Q, W] of pairs of row and key, or none.
struct Bits {
  const uint16_t* data;
  int64_t rows, words;

  explicit Bits(const OptionalTensor& bits_BQW)
      : data(bits_BQW ? reinterpret_cast<const uint16_t*>(bits_BQW->data_ptr<int16_t>()) : nullptr),
        rows(bits_BQW ? bits_BQW->size(1) : 0),
        words(bits_BQW ? bits_BQW->size(2) : 0) {}

  const uint16_t* row(int64_t b, int64_t row) const { return data ? data + (b * rows + row) * words : nullptr; }
};

}  // namespace permcode
