// LayerNorm(rows + update), rows in float32, a row in the cache at a time.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "column_sums.h"
#include "operators.h"
#include "vectors.h"

namespace permcode {
namespace {

constexpr int64_t kRowsAtLeast = 16;  // for a thread

template <typename Value>
float mean_of(int64_t columns, Value value) {
  Floats total{};
  for (int64_t i = 0; i < columns; i += kLanes) total += value(i);
  return sum(total) / float(columns);
}

// normal = (rows + update - mean) / deviation; returns 1 / deviation.
template <typename T>
float normalise(const float* rows, const T* update, int64_t columns, float epsilon, float* normal) {
  const Floats mean = all(mean_of(columns, [&](int64_t i) {
    const Floats added = load(rows + i) + load(update + i);
    store(added, normal + i);
    return added;
  }));
  const float variance = mean_of(columns, [&](int64_t i) {
    const Floats centred = load(normal + i) - mean;
    return centred * centred;
  });
  const float scale = 1.0f / std::sqrt(variance + epsilon);
  for (int64_t i = 0; i < columns; i += kLanes) store((load(normal + i) - mean) * all(scale), normal + i);
  return scale;
}

struct AddNorm {
  at::Tensor wide_XD, narrow_XD, normal_XD, scale_X;
};

template <typename T>
void advance(const at::Tensor& rows_XD, const at::Tensor& update_XD, const at::Tensor& weight_D,
             const at::Tensor& bias_D, float epsilon, const AddNorm& out) {
  const int64_t columns = rows_XD.size(1);
  const float *rows = rows_XD.data_ptr<float>(), *weight = weight_D.data_ptr<float>(), *bias = bias_D.data_ptr<float>();
  const T* update = update_XD.data_ptr<T>();
  float *wide = out.wide_XD.data_ptr<float>(), *normals = out.normal_XD.data_ptr<float>();
  float* scale = out.scale_X.data_ptr<float>();
  T* narrow = out.narrow_XD.data_ptr<T>();
  at::parallel_for(0, rows_XD.size(0), kRowsAtLeast, [&](int64_t first, int64_t last) {
    for (int64_t x = first; x < last; ++x) {
      float* normal = normals + x * columns;
      scale[x] = normalise(rows + x * columns, update + x * columns, columns, epsilon, normal);
      for (int64_t i = 0; i < columns; i += kLanes) {
        const Floats value = load(normal + i) * load(weight + i) + load(bias + i);
        store(value, wide + x * columns + i);
        store(value, narrow + x * columns + i);
      }
    }
  });
}

// From the gradients of either copy of the result (null: none) to those of its parts; sums are added to.
template <typename T>
void differentiate_row(const float* wide, const T* narrow, const float* normal, const float* weight, float scale,
                       int64_t columns, float* of_rows, T* of_update, float* of_weight, float* of_bias) {
  Floats total{}, total_normal{};
  for (int64_t i = 0; i < columns; i += kLanes) {
    Floats gradient = wide ? load(wide + i) : Floats{};
    if (narrow) gradient += load(narrow + i);
    store(load(of_weight + i) + gradient * load(normal + i), of_weight + i);
    store(load(of_bias + i) + gradient, of_bias + i);
    gradient *= load(weight + i);
    total += gradient;
    total_normal += gradient * load(normal + i);
    store(gradient, of_rows + i);
  }
  const Floats mean = all(sum(total) / float(columns)), slope = all(sum(total_normal) / float(columns));
  for (int64_t i = 0; i < columns; i += kLanes) {
    const Floats gradient = (load(of_rows + i) - mean - load(normal + i) * slope) * all(scale);
    store(gradient, of_rows + i);
    store(gradient, of_update + i);
  }
}

template <typename T>
at::Tensor differentiate(const OptionalTensor& wide_XD, const OptionalTensor& narrow_XD, const at::Tensor& normal_XD,
                         const at::Tensor& scale_X, const at::Tensor& weight_D, const at::Tensor& of_rows_XD,
                         const at::Tensor& of_update_XD) {
  const int64_t columns = normal_XD.size(1);
  const float* wide = wide_XD ? wide_XD->data_ptr<float>() : nullptr;
  const T* narrow = narrow_XD ? narrow_XD->data_ptr<T>() : nullptr;
  const float *normal = normal_XD.data_ptr<float>(), *scale = scale_X.data_ptr<float>();
  const float* weight = weight_D.data_ptr<float>();
  float* of_rows = of_rows_XD.data_ptr<float>();
  T* of_update = of_update_XD.data_ptr<T>();
  return with_column_sums(normal_XD.size(0), 2, columns, [&](int64_t x, float* sums) {
    const int64_t at = x * columns;
    differentiate_row(wide ? wide + at : nullptr, narrow ? narrow + at : nullptr, normal + at, weight, scale[x], columns,
                      of_rows + at, of_update + at, sums, sums + columns);
  });
}

void check(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.sizes().equals(sizes) && tensor.scalar_type() == type,
              "rows of another shape or type: ", tensor.sizes(), " instead of ", sizes);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> add_norm(const at::Tensor& rows_XD,
                                                                    const at::Tensor& update_XD,
                                                                    const at::Tensor& weight_D,
                                                                    const at::Tensor& bias_D, double epsilon) {
  TORCH_CHECK(rows_XD.dim() == 2 && rows_XD.size(1) > 0 && rows_XD.size(1) % kLanes == 0, "rows in steps of 16");
  const bool is_float = update_XD.scalar_type() == at::kFloat;
  check(rows_XD, rows_XD.sizes());
  check(update_XD, rows_XD.sizes(), is_float ? at::kFloat : at::kBFloat16);
  check(weight_D, {rows_XD.size(1)});
  check(bias_D, {rows_XD.size(1)});
  AddNorm out{at::empty_like(rows_XD), {}, at::empty_like(rows_XD), at::empty({rows_XD.size(0)}, rows_XD.options())};
  out.narrow_XD = is_float ? out.wide_XD : at::empty_like(update_XD);
  if (is_float)
    advance<float>(rows_XD, update_XD, weight_D, bias_D, float(epsilon), out);
  else
    advance<at::BFloat16>(rows_XD, update_XD, weight_D, bias_D, float(epsilon), out);
  return {out.wide_XD, out.narrow_XD, out.normal_XD, out.scale_X};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_norm_backward(const OptionalTensor& wide_XD,
                                                                 const OptionalTensor& narrow_XD,
                                                                 const at::Tensor& normal_XD, const at::Tensor& scale_X,
                                                                 const at::Tensor& weight_D, at::ScalarType type) {
  TORCH_CHECK(normal_XD.dim() == 2 && normal_XD.size(1) % kLanes == 0, "rows in steps of 16");
  const auto sizes = normal_XD.sizes();
  check(normal_XD, sizes);
  check(scale_X, {sizes[0]});
  check(weight_D, {sizes[1]});
  if (wide_XD) check(*wide_XD, sizes);
  if (narrow_XD) check(*narrow_XD, sizes, type);
  const at::Tensor of_rows_XD = at::empty_like(normal_XD);
  const bool is_float = type == at::kFloat;
  const at::Tensor of_update_XD = is_float ? of_rows_XD : at::empty(sizes, normal_XD.options().dtype(at::kBFloat16));
  const at::Tensor sums_2D =
      is_float ? differentiate<float>(wide_XD, narrow_XD, normal_XD, scale_X, weight_D, of_rows_XD, of_update_XD)
               : differentiate<at::BFloat16>(wide_XD, narrow_XD, normal_XD, scale_X, weight_D, of_rows_XD, of_update_XD);
  return {of_rows_XD, of_update_XD, sums_2D};
}

}  // namespace permcode
