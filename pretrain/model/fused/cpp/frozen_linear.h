// Products with weights that no longer change; pretrain/inference/linear.py has them in Python.
//
// Shapes: X rows, I inputs, O outputs.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>

#include "few_rows.h"
#include "operators.h"

namespace permcode {

// The weights as rows are multiplied with them, and, where there is such a thing, as oneDNN reads them.
struct FrozenLinear {
  at::Tensor weight_OI;
  OptionalTensor packed, bias_O;

  int64_t outputs() const { return weight_OI.size(0); }
  int64_t inputs() const { return weight_OI.size(1); }
};

// rows W^T + b in oneDNN; in C++ it has no other name.
inline at::Tensor multiply_packed(const at::Tensor& rows_XI, const FrozenLinear& linear) {
  using Attributes = c10::List<std::optional<at::Scalar>>;
  using Product = at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&, c10::string_view, Attributes,
                             std::optional<c10::string_view>);
  static const auto product =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Product>();
  return product.call(rows_XI, *linear.packed, linear.bias_O, "none", Attributes{}, "");
}

// finish(row, first output, 16 products of the row, the bias added) for rows [X, I], on all threads. Few rows cost what
// it takes to read the weights; more of them go through oneDNN, which rounds products to T.
template <typename T, typename Finish>
void multiply_frozen(const T* rows_XI, int64_t num_rows, int64_t max_few_rows, const FrozenLinear& linear,
                     const Finish& finish) {
  const int64_t outputs = linear.outputs(), inputs = linear.inputs();
  if (num_rows <= max_few_rows) {
    const T* bias = linear.bias_O ? linear.bias_O->const_data_ptr<T>() : nullptr;
    multiply_few_rows(rows_XI, num_rows, linear.weight_OI.const_data_ptr<T>(), outputs, inputs,
                      [&](int64_t x, int64_t o, Floats product) {
                        finish(x, o, bias ? product + load(bias + o) : product);
                      });
    return;
  }
  const at::Tensor product_XO = multiply_packed(
      at::from_blob(const_cast<T*>(rows_XI), {num_rows, inputs}, linear.weight_OI.options()), linear);
  const T* product = product_XO.const_data_ptr<T>();
  at::parallel_for(0, num_rows, 1, [&](int64_t first, int64_t last) {
    for (int64_t x = first; x < last; ++x)
      for (int64_t o = 0; o < outputs; o += kLanes) finish(x, o, load(product + x * outputs + o));
  });
}

}  // namespace permcode
