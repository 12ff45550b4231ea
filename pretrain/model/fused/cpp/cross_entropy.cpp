// -log softmax(logits)[wanted] and its gradient, a row in the cache at a time; sums are float32.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <limits>

#include "operators.h"
#include "vectors.h"

namespace permcode {
namespace {

constexpr int64_t kRowsAtLeast = 4;  // for a thread

// The logarithm of the sum of e^logit is highest + log_sum; kept apart, for the sum of both has fewer digits.
struct Mass {
  float highest, log_sum;
};

template <typename T>
Mass mass_of(const T* logits, int64_t count) {
  Floats best = all(-std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) best = larger(load(logits + i), best);
  float highest = largest(best);
  for (int64_t rest = i; rest < count; ++rest) highest = std::max(highest, float(logits[rest]));
  Floats total{};
  for (i = 0; i + kLanes <= count; i += kLanes) total += exp_of_negative(load(logits + i) - all(highest));
  float mass = sum(total);
  for (; i < count; ++i) mass += std::exp(float(logits[i]) - highest);
  return {highest, std::log(mass)};
}

template <typename T>
void write_gradient(const T* logits, int64_t count, int64_t wanted, Mass mass, float scale, T* gradient) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(exp_of_negative(load(logits + i) - all(mass.highest) - all(mass.log_sum)) * all(scale), gradient + i);
  const auto probability = [=](int64_t at) { return std::exp(float(logits[at]) - mass.highest - mass.log_sum); };
  for (; i < count; ++i) gradient[i] = T(probability(i) * scale);
  gradient[wanted] = T((probability(wanted) - 1.0f) * scale);
}

void check(const at::Tensor& logits_XV, const at::Tensor& wanted_X) {
  TORCH_CHECK(logits_XV.dim() == 2 && logits_XV.is_contiguous() && wanted_X.is_contiguous() &&
                  wanted_X.sizes().equals({logits_XV.size(0)}),
              "logits [X, V] and wanted [X] in rows");
  const int64_t* wanted = wanted_X.data_ptr<int64_t>();
  for (int64_t x = 0; x < wanted_X.size(0); ++x)
    TORCH_CHECK(wanted[x] >= 0 && wanted[x] < logits_XV.size(1), "wanted token ", wanted[x], " is not in the vocabulary");
}

// Calls with_type(a zero of the logits' type).
template <typename WithType>
void by_type(const at::Tensor& logits_XV, WithType with_type) {
  TORCH_CHECK(logits_XV.scalar_type() == at::kFloat || logits_XV.scalar_type() == at::kBFloat16,
              "float32 or bfloat16");
  if (logits_XV.scalar_type() == at::kFloat)
    with_type(float(0));
  else
    with_type(at::BFloat16(0));
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> token_nats(const at::Tensor& logits_XV, const at::Tensor& wanted_X) {
  check(logits_XV, wanted_X);
  const int64_t rows = logits_XV.size(0), count = logits_XV.size(1);
  const auto options = logits_XV.options().dtype(at::kFloat);
  at::Tensor nats_X = at::empty({rows}, options), masses_X2 = at::empty({rows, 2}, options);
  float *nats = nats_X.data_ptr<float>(), *masses = masses_X2.data_ptr<float>();
  const int64_t* wanted = wanted_X.data_ptr<int64_t>();
  by_type(logits_XV, [&](auto zero) {
    const auto* logits = logits_XV.data_ptr<decltype(zero)>();
    at::parallel_for(0, rows, kRowsAtLeast, [&](int64_t first, int64_t last) {
      for (int64_t x = first; x < last; ++x) {
        const auto* row = logits + x * count;
        const Mass mass = mass_of(row, count);
        masses[2 * x] = mass.highest, masses[2 * x + 1] = mass.log_sum;
        nats[x] = mass.log_sum + (mass.highest - float(row[wanted[x]]));
      }
    });
  });
  return {nats_X, masses_X2};
}

at::Tensor cross_entropy_backward(const at::Tensor& logits_XV, const at::Tensor& wanted_X, const at::Tensor& masses_X2,
                                  double scale) {
  check(logits_XV, wanted_X);
  const int64_t rows = logits_XV.size(0), count = logits_XV.size(1);
  TORCH_CHECK(masses_X2.is_contiguous() && masses_X2.sizes().equals({rows, 2}), "a mass for every row");
  at::Tensor gradient_XV = at::empty_like(logits_XV);
  const float* masses = masses_X2.data_ptr<float>();
  const int64_t* wanted = wanted_X.data_ptr<int64_t>();
  by_type(logits_XV, [&](auto zero) {
    using T = decltype(zero);
    const T* logits = logits_XV.data_ptr<T>();
    T* gradient = gradient_XV.data_ptr<T>();
    at::parallel_for(0, rows, kRowsAtLeast, [&](int64_t first, int64_t last) {
      for (int64_t x = first; x < last; ++x)
        write_gradient(logits + x * count, count, wanted[x], {masses[2 * x], masses[2 * x + 1]}, float(scale),
                       gradient + x * count);
    });
  });
  return gradient_XV;
}

}  // namespace permcode
