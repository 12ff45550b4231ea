// gelu(x + bias): the forward pass keeps the slope, so that the backward pass only multiplies.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "column_sums.h"
#include "operators.h"
#include "vectors.h"

namespace permcode {
namespace {

constexpr int64_t kRowsAtLeast = 16;  // for a thread

// Slopes lie between -0.13 and 1.13: beside bfloat16 they are kept in steps of 2^-14, which is as small and finer.
constexpr float kSlopeSteps = 16384.0f;

template <typename T>
using SlopeOf = std::conditional_t<sizeof(T) == 2, int16_t, float>;

struct Gelu {
  Floats value, slope;
};

// x P(x) and P(x) + x p(x) of the normal distribution P and its density p. P(-|x|) by Abramowitz and Stegun 7.1.26, off
// by 1e-7 at most: it needs e^(-x^2 / 2), as p does.
inline Gelu gelu_of(Floats x) {
  const Floats bell = exp_of_negative(x * x * -0.5f);
  const Floats t = 1.0f / (larger(x, -x) * 0.231641888f + 1.0f);
  Floats p = t * 0.5307027145f - 0.7265760135f;
  p = p * t + 0.7107068705f;
  p = p * t - 0.142248368f;
  p = p * t + 0.127414796f;
  const Floats beyond = p * t * bell;
  const Floats below = x < Floats{} ? beyond : 1.0f - beyond;
  return {x * below, below + x * bell * 0.3989422804f};
}

inline void store_slope(Floats slope, float* to) { store(slope, to); }
inline void store_slope(Floats slope, int16_t* to) { store_rounded(slope * kSlopeSteps, to); }
inline Floats load_slope(const float* from) { return load(from); }
inline Floats load_slope(const int16_t* from) { return load_integers(from) * (1.0f / kSlopeSteps); }

template <typename T>
void advance(const at::Tensor& x_XF, const at::Tensor& bias_F, const at::Tensor& y_XF, const at::Tensor& slope_XF) {
  const int64_t columns = x_XF.size(1);
  const float* bias = bias_F.data_ptr<float>();
  const T* from = x_XF.data_ptr<T>();
  T* to = y_XF.data_ptr<T>();
  SlopeOf<T>* slopes = slope_XF.numel() ? slope_XF.data_ptr<SlopeOf<T>>() : nullptr;
  at::parallel_for(0, x_XF.size(0), kRowsAtLeast, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row)
      for (int64_t i = 0; i < columns; i += kLanes) {
        const int64_t at = row * columns + i;
        const Gelu gelu = gelu_of(load(from + at) + load(bias + i));
        store(gelu.value, to + at);
        if (slopes) store_slope(gelu.slope, slopes + at);
      }
  });
}

template <typename T>
at::Tensor differentiate(const at::Tensor& gradient_XF, const at::Tensor& slope_XF, const at::Tensor& of_x_XF) {
  const int64_t columns = gradient_XF.size(1);
  const T* from = gradient_XF.data_ptr<T>();
  const SlopeOf<T>* slopes = slope_XF.data_ptr<SlopeOf<T>>();
  T* to = of_x_XF.data_ptr<T>();
  return with_column_sums(gradient_XF.size(0), 1, columns, [&](int64_t row, float* sums) {
    for (int64_t i = 0; i < columns; i += kLanes) {
      const int64_t at = row * columns + i;
      const Floats gradient = load(from + at) * load_slope(slopes + at);
      store(gradient, to + at);
      store(load(sums + i) + gradient, sums + i);
    }
  });
}

void check(const at::Tensor& x_XF) {
  TORCH_CHECK(x_XF.dim() == 2 && x_XF.is_contiguous() && x_XF.size(1) % kLanes == 0, "rows in steps of 16");
  TORCH_CHECK(x_XF.scalar_type() == at::kFloat || x_XF.scalar_type() == at::kBFloat16, "float32 or bfloat16");
}

at::ScalarType slope_type(const at::Tensor& x_XF) { return x_XF.scalar_type() == at::kFloat ? at::kFloat : at::kShort; }

}  // namespace

std::tuple<at::Tensor, at::Tensor> bias_gelu(const at::Tensor& x_XF, const at::Tensor& bias_F, bool keeps_slope) {
  check(x_XF);
  TORCH_CHECK(bias_F.scalar_type() == at::kFloat && bias_F.is_contiguous() && bias_F.sizes().equals({x_XF.size(1)}),
              "a float32 bias for every column");
  at::Tensor y_XF = at::empty_like(x_XF);
  at::Tensor slope_XF =
      at::empty({keeps_slope ? x_XF.size(0) : 0, x_XF.size(1)}, x_XF.options().dtype(slope_type(x_XF)));
  if (x_XF.scalar_type() == at::kFloat)
    advance<float>(x_XF, bias_F, y_XF, slope_XF);
  else
    advance<at::BFloat16>(x_XF, bias_F, y_XF, slope_XF);
  return {y_XF, slope_XF};
}

std::tuple<at::Tensor, at::Tensor> bias_gelu_backward(const at::Tensor& gradient_XF, const at::Tensor& slope_XF) {
  check(gradient_XF);
  TORCH_CHECK(slope_XF.scalar_type() == slope_type(gradient_XF) && slope_XF.is_contiguous() &&
                  slope_XF.sizes().equals(gradient_XF.sizes()),
              "a slope for every gradient");
  at::Tensor of_x_XF = at::empty_like(gradient_XF);
  at::Tensor of_bias_1F = gradient_XF.scalar_type() == at::kFloat
                              ? differentiate<float>(gradient_XF, slope_XF, of_x_XF)
                              : differentiate<at::BFloat16>(gradient_XF, slope_XF, of_x_XF);
  return {of_x_XF, of_bias_1F.select(0, 0)};
}

}  // namespace permcode
