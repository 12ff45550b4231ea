#include "few_rows.h"

#include <ATen/ops/empty.h>

#include "operators.h"

namespace permcode {
namespace {

template <typename T>
void linear_of(const at::Tensor& rows_XI, const at::Tensor& weight_OI, const OptionalTensor& bias_O, at::Tensor& product_XO) {
  const int64_t outputs = weight_OI.size(0);
  const T* bias = bias_O ? bias_O->const_data_ptr<T>() : nullptr;
  T* to = product_XO.data_ptr<T>();
  multiply_few_rows(rows_XI.const_data_ptr<T>(), rows_XI.size(0), weight_OI.const_data_ptr<T>(), outputs,
                    weight_OI.size(1), [=](int64_t x, int64_t o, Floats product) {
                      store(bias ? product + load(bias + o) : product, to + x * outputs + o);
                    });
}

}  // namespace

at::Tensor few_rows_linear(const at::Tensor& rows_XI, const at::Tensor& weight_OI, const OptionalTensor& bias_O) {
  const auto type = weight_OI.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, "weights in float32 or bfloat16");
  TORCH_CHECK(weight_OI.dim() == 2 && weight_OI.is_contiguous() && weight_OI.size(0) % kLanes == 0 &&
                  weight_OI.size(1) % 32 == 0,
              "a matrix without gaps, outputs in multiples of 16 and inputs of 32");
  TORCH_CHECK(rows_XI.dim() == 2 && rows_XI.is_contiguous() && rows_XI.scalar_type() == type &&
                  rows_XI.size(1) == weight_OI.size(1),
              "rows for this matrix");
  TORCH_CHECK(!bias_O || (bias_O->scalar_type() == type && bias_O->is_contiguous() &&
                          bias_O->sizes().equals({weight_OI.size(0)})),
              "a bias for this matrix");
  at::Tensor product_XO = at::empty({rows_XI.size(0), weight_OI.size(0)}, weight_OI.options());
  if (type == at::kFloat)
    linear_of<float>(rows_XI, weight_OI, bias_O, product_XO);
  else
    linear_of<at::BFloat16>(rows_XI, weight_OI, bias_O, product_XO);
  return product_XO;
}

}  // namespace permcode
