// A layer's pass over the rows of a decoding step; pretrain/inference/layer.py has the same in plain PyTorch.
//
// Shapes: N heads, B lanes, Q rows (content first), P rows that go on to the next layer, C columns, K columns in use,
// H head dim, R distances, D model, I = NH, E = 3NH, F feed-forward.
#pragma once

#include <torch/custom_class.h>

#include <string>
#include <vector>

#include "frozen_linear.h"

namespace permcode {

using NamedTensors = c10::Dict<std::string, at::Tensor>;

// Matrices and what is added to their products are of one type, float32 or bfloat16; everything else is float32.
struct DecodingLayer : torch::CustomClassHolder {
  // `activation` is gelu, relu or swiglu. Tensors have the names of the members, those of a product also
  // `projection.weight_OI` and so on; optional ones may be missing. Refuses those that do not fit each other, a D, I or
  // F that is not a multiple of 32, and an H that is not one of 16.
  DecodingLayer(int64_t num_heads, bool pre_norm, double epsilon, std::string activation, int64_t max_few_rows,
                const NamedTensors& tensors);

  // Whether all weights are `packed`: without, there may be at most `max_few_rows` rows.
  bool takes_many_rows() const;

  // The last `num_passed` rows one layer up, [B, P, D]. Before, the keys and values of the first `num_content` rows
  // are written to their columns. DecodingKeys tells of the other arguments.
  at::Tensor advance(const at::Tensor& rows_BQD, int64_t num_content, int64_t num_passed, int64_t first_column,
                     const at::Tensor& key_NBCH, const at::Tensor& value_NBCH, const OptionalTensor& distance_NRH,
                     int64_t num_keys, int64_t highest_distance, const OptionalTensor& column_BQ,
                     const OptionalTensor& hidden_BQK, const OptionalTensor& other_BQK) const;

  int64_t num_heads;
  bool pre_norm;
  double epsilon;
  std::string activation;
  int64_t max_few_rows;
  FrozenLinear projection, output, up, down;
  std::optional<FrozenLinear> gate;
  at::Tensor attention_norm_2D, feed_forward_norm_2D;
  OptionalTensor distance_NH, document_NH, other_document_NH;
};

// Layers one above the other: one call from Python for all of them.
struct DecodingLayers : torch::CustomClassHolder {
  using Layers = std::vector<c10::intrusive_ptr<DecodingLayer>>;

  explicit DecodingLayers(Layers layers) : layers(std::move(layers)) {}

  bool takes_many_rows() const;

  // As a layer's; `num_passed` is of the last one, the others pass all rows on. A cache for each layer; no tensors of
  // distances where positions have none.
  at::Tensor advance(at::Tensor rows_BQD, int64_t num_content, int64_t num_passed, int64_t first_column,
                     const std::vector<at::Tensor>& key_NBCH, const std::vector<at::Tensor>& value_NBCH,
                     const std::vector<at::Tensor>& distance_NRH, int64_t num_keys, int64_t highest_distance,
                     const OptionalTensor& column_BQ, const OptionalTensor& hidden_BQK,
                     const OptionalTensor& other_BQK) const;

  Layers layers;
};

}  // namespace permcode
