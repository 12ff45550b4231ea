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

// The query for keys is query * scale + content bias, the query for distances query * scale + distance bias.
struct Inputs {
  at::Tensor query_NBQH;
  double scale;
  OptionalTensor content_bias_NH, distance_bias_NH;
  at::Tensor key_NBKH, value_NBKH;
  OptionalTensor distance_NRH;

  Inputs with_plain_rows() const {
    return {permcode::with_plain_rows(query_NBQH),       scale,
            permcode::with_plain_rows(content_bias_NH),  permcode::with_plain_rows(distance_bias_NH),
            permcode::with_plain_rows(key_NBKH),         permcode::with_plain_rows(value_NBKH),
            permcode::with_plain_rows(distance_NRH)};
  }

  // The queries in head n of lane b of the rows that `order` names, in that order.
  template <typename T>
  Matrix<const T> asked(const OptionalTensor& bias_NH, int64_t n, int64_t b, const int64_t* order, int64_t num_rows,
                        T* to) const {
    const auto queries = head<const T>(query_NBQH, n, b);
    const int64_t width = query_NBQH.size(3);
    const T* bias = bias_NH ? static_cast<const T*>(bias_NH->data_ptr()) + n * bias_NH->stride(0) : nullptr;
    for (int64_t i = 0; i < num_rows; ++i)
      scale_and_add(queries.row(order[i]), float(scale), bias, to + i * width, width);
    return {to, width};
  }
};

struct Problem {
  int64_t heads, lanes, rows, keys, width, padded_keys, blocks;
  at::ScalarType type;
  DistanceRows distances;
  at::Tensor row_positions, row_orders, key_positions;
  std::vector<std::vector<KeyRun>> runs;

  Problem(const Inputs& inputs, const at::Tensor& row_position_BQ, const at::Tensor& row_order_BQ,
          const at::Tensor& key_position_BK, int64_t highest_distance)
      : heads(inputs.query_NBQH.size(0)),
        lanes(inputs.query_NBQH.size(1)),
        rows(inputs.query_NBQH.size(2)),
        keys(inputs.key_NBKH.size(2)),
        width(inputs.query_NBQH.size(3)),
        padded_keys(padded_keys_of(keys)),
        blocks((rows + kBlockRows - 1) / kBlockRows),
        type(inputs.query_NBQH.scalar_type()),
        distances{highest_distance, inputs.distance_NRH ? inputs.distance_NRH->size(1) : 0},
        row_positions(row_position_BQ.contiguous()),
        row_orders(row_order_BQ.contiguous()),
        key_positions(key_position_BK.contiguous()) {
    check(inputs);
    if (inputs.distance_NRH)
      for (int64_t b = 0; b < lanes; ++b)
        runs.push_back(key_runs(key_positions.data_ptr<int64_t>() + b * keys, keys));
  }

  // Everything below reads and writes by these sizes, so all tensors must have them.
  void check(const Inputs& inputs) const {
    TORCH_CHECK(type == at::kFloat || (type == at::kBFloat16 && width % 2 == 0), "float32, or bfloat16 in pairs");
    check_heads(inputs.query_NBQH, rows, width);
    check_bias(inputs.content_bias_NH);
    check_bias(inputs.distance_bias_NH);
    check_heads(inputs.key_NBKH, keys, width);
    check_heads(inputs.value_NBKH, keys, width);
    TORCH_CHECK(!inputs.distance_bias_NH || inputs.distance_NRH, "a bias for distances that have no keys");
    if (inputs.distance_NRH) {
      const at::Tensor& table = *inputs.distance_NRH;
      TORCH_CHECK(table.dim() == 3 && table.size(0) == heads && table.size(2) == width && distances.count > 0 &&
                      table.scalar_type() == type,
                  "distance keys of another shape");
    }
    TORCH_CHECK(row_positions.scalar_type() == at::kLong && row_positions.sizes().equals({lanes, rows}) &&
                    row_orders.scalar_type() == at::kLong && row_orders.sizes().equals({lanes, rows}) &&
                    key_positions.scalar_type() == at::kLong && key_positions.sizes().equals({lanes, keys}),
                "positions of another shape");
    const int64_t* order = row_orders.data_ptr<int64_t>();
    for (int64_t i = 0; i < lanes * rows; ++i) TORCH_CHECK(order[i] >= 0 && order[i] < rows, "no such row");
  }

  void check_heads(const at::Tensor& heads_NBXH, int64_t count, int64_t head_dim) const {
    TORCH_CHECK(heads_NBXH.scalar_type() == type && heads_NBXH.sizes().equals({heads, lanes, count, head_dim}),
                "heads of another shape or type: ", heads_NBXH.sizes());
  }

  void check_bias(const OptionalTensor& bias_NH) const {
    TORCH_CHECK(!bias_NH || (bias_NH->scalar_type() == type && bias_NH->sizes().equals({heads, width})),
                "a bias of another shape or type");
  }

  void check_bits(const OptionalTensor& bits_BQW) const {
    TORCH_CHECK(!bits_BQW || (bits_BQW->scalar_type() == at::kShort && bits_BQW->is_contiguous() &&
                              bits_BQW->sizes().equals({lanes, rows, padded_keys / kLanes})),
                "bits of another shape");
  }

  // Of the rows from `row` on, in the order of positions: where they stand, and which rows of the tensors they are.
  const int64_t* positions(int64_t b, int64_t row) const {
    return row_positions.data_ptr<int64_t>() + b * rows + row;
  }

  const int64_t* order(int64_t b, int64_t row) const { return row_orders.data_ptr<int64_t>() + b * rows + row; }
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
