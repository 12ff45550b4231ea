#include <torch/library.h>

#include "operators.h"

TORCH_LIBRARY(permcode_attention, library) {
  library.def(
      "visible(Tensor bound_BQ, Tensor row_group_BQ, Tensor rank_BK, Tensor key_group_BK, int unfilled_group)"
      " -> Tensor",
      permcode::visible);
  library.def("different(Tensor row_BQ, Tensor key_BK) -> Tensor", permcode::different);
  library.def("multiplies(ScalarType type) -> bool", permcode::multiplies);
  library.def("multiply_in_float32() -> ()", permcode::multiply_in_float32);
  library.def(
      "forward(Tensor query_NBQH, float scale, Tensor? content_bias_NH, Tensor? distance_bias_NH,"
      " Tensor? document_NBQ2, Tensor key_NBKH, Tensor value_NBKH, Tensor? distance_NRH, Tensor visible_BQW,"
      " Tensor? other_BQW, Tensor row_position_BQ, Tensor row_order_BQ, Tensor key_position_BK, int highest_distance,"
      " bool keeps_weights) -> (Tensor, Tensor)",
      permcode::forward);
  library.def(
      "backward(Tensor gradient_NBQH, Tensor weights_NBQS, Tensor query_NBQH, float scale, Tensor? content_bias_NH,"
      " Tensor? distance_bias_NH, Tensor key_NBKH, Tensor value_NBKH, Tensor? distance_NRH, Tensor? other_BQW,"
      " Tensor row_position_BQ, Tensor row_order_BQ, Tensor key_position_BK, int highest_distance)"
      " -> (Tensor, Tensor?, Tensor?, Tensor?, Tensor, Tensor, Tensor?)",
      permcode::backward);
  library.def("token_nats(Tensor logits_XV, Tensor wanted_X) -> (Tensor, Tensor)", permcode::token_nats);
  library.def(
      "cross_entropy_backward(Tensor logits_XV, Tensor wanted_X, Tensor masses_X2, float scale) -> Tensor",
      permcode::cross_entropy_backward);
  library.def("bias_gelu(Tensor x_XF, Tensor bias_F, bool keeps_slope) -> (Tensor, Tensor)", permcode::bias_gelu);
  library.def("bias_gelu_backward(Tensor gradient_XF, Tensor slope_XF) -> (Tensor, Tensor)", permcode::bias_gelu_backward);
  library.def("few_rows_linear(Tensor rows_XI, Tensor weight_OI, Tensor? bias_O) -> Tensor", permcode::few_rows_linear);
  library.def("dropout(Tensor x, float probability, int seed) -> Tensor", permcode::dropout);
  library.def(
      "add_norm(Tensor rows_XD, Tensor update_XD, Tensor weight_D, Tensor bias_D, float epsilon)"
      " -> (Tensor, Tensor, Tensor, Tensor)",
      permcode::add_norm);
  library.def(
      "add_norm_backward(Tensor? wide_XD, Tensor? narrow_XD, Tensor normal_XD, Tensor scale_X, Tensor weight_D,"
      " ScalarType type) -> (Tensor, Tensor, Tensor)",
      permcode::add_norm_backward);
}
