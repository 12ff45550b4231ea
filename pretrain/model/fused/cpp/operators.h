// The operators of torch.ops.permcode_attention; library.cpp has their schemas.
//
// Shapes: N heads, B lanes, Q rows, K keys, H head dim, R distances, W words of 16 keys each, S keys padded to a
// multiple of kKeysStep; X rows, V vocabulary, I inputs, O outputs.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace permcode {

constexpr int64_t kKeysStep = 32;

// At least one step, so that even no keys at all need no special case.
inline int64_t padded_keys_of(int64_t keys) { return std::max<int64_t>(1, (keys + kKeysStep - 1) / kKeysStep) * kKeysStep; }

// Rows that are worked on at once: their scores stay in the second-level cache.
constexpr int64_t kBlockRows = 64;

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor visible(const at::Tensor& bound_BQ, const at::Tensor& row_group_BQ, const at::Tensor& rank_BK,
                   const at::Tensor& key_group_BK, int64_t unfilled_group);

at::Tensor different(const at::Tensor& row_BQ, const at::Tensor& key_BK);

// Whether this machine can multiply numbers of this type as layout.h does.
bool multiplies(at::ScalarType type);

// Have PyTorch compute its products of bfloat16 matrices on a CPU by way of float32.
void multiply_in_float32();

// Bits, positions and weights have their rows in the order of positions, row i being row_order[i] of the other
// tensors: a block of rows then needs few distances.

// [N, B, Q, H] and the weights [N, B, Q, S]; an empty tensor in their place unless they are to be kept. What rows ask is
// query * scale + bias; without `distance_NRH` there is nothing to be asked about distances.
std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query_NBQH, double scale,
                                           const OptionalTensor& content_bias_NH,
                                           const OptionalTensor& distance_bias_NH, const OptionalTensor& document_NBQ2,
                                           const at::Tensor& key_NBKH, const at::Tensor& value_NBKH,
                                           const OptionalTensor& distance_NRH, const at::Tensor& visible_BQW,
                                           const OptionalTensor& other_BQW, const at::Tensor& row_position_BQ,
                                           const at::Tensor& row_order_BQ, const at::Tensor& key_position_BK,
                                           int64_t highest_distance, bool keeps_weights);

// Of the query, the two biases, the documents' scores, keys, values and the keys of distances.
using BackwardResult = std::tuple<at::Tensor, OptionalTensor, OptionalTensor, OptionalTensor, at::Tensor, at::Tensor,
                                  OptionalTensor>;

BackwardResult backward(const at::Tensor& gradient_NBQH, const at::Tensor& weights_NBQS, const at::Tensor& query_NBQH,
                        double scale, const OptionalTensor& content_bias_NH, const OptionalTensor& distance_bias_NH,
                        const at::Tensor& key_NBKH, const at::Tensor& value_NBKH, const OptionalTensor& distance_NRH,
                        const OptionalTensor& other_BQW, const at::Tensor& row_position_BQ,
                        const at::Tensor& row_order_BQ, const at::Tensor& key_position_BK, int64_t highest_distance);

// -log softmax(logits)[wanted], float32 [X]; and of every row the highest logit and the logarithm of the sum of
// e^(logit - highest), float32 [X, 2]. Refuses wanted tokens outside the vocabulary.
std::tuple<at::Tensor, at::Tensor> token_nats(const at::Tensor& logits_XV, const at::Tensor& wanted_X);

// (softmax(logits) - 1 at the wanted token) * scale, in the type of the logits.
at::Tensor cross_entropy_backward(const at::Tensor& logits_XV, const at::Tensor& wanted_X, const at::Tensor& masses_X2,
                                  double scale);

// gelu(x + bias) and, if it is to be kept, its slope; bias in float32, columns in steps of 16.
std::tuple<at::Tensor, at::Tensor> bias_gelu(const at::Tensor& x_XF, const at::Tensor& bias_F, bool keeps_slope);

// Gradients of x, and of the bias in float32.
std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& gradient_XF, const at::Tensor& slope_XF);

// rows W^T + b in the type of the matrix, at the price of reading it once. I in steps of 32, O of 16.
at::Tensor few_rows_linear(const at::Tensor& rows_XI, const at::Tensor& weight_OI, const OptionalTensor& bias_O);

// Zeros with this probability, else x / (1 - probability); float32 or bfloat16 in steps of 16 numbers. The same for the
// same seed, so that it is its own backward pass.
at::Tensor dropout(const at::Tensor& x, double probability, int64_t seed);

// LayerNorm(rows + update), in float32 and in the type of the update; what it is before weight and bias; 1 / deviation.
// All but the update are float32; columns in steps of 16.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> add_norm(const at::Tensor& rows_XD,
                                                                    const at::Tensor& update_XD,
                                                                    const at::Tensor& weight_D,
                                                                    const at::Tensor& bias_D, double epsilon);

// Gradients of rows, of the update (of `type`), and of weight and bias [2, D], from those of either copy of the result.
std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm_backward(const OptionalTensor& wide_XD,
                                                                 const OptionalTensor& narrow_XD,
                                                                 const at::Tensor& normal_XD, const at::Tensor& scale_X,
                                                                 const at::Tensor& weight_D, at::ScalarType type);

}  // namespace permcode
