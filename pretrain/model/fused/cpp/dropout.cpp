// Dropout whose choices are a function of a seed and the number's index: nothing has to be kept for the backward pass,
// and no thread waits for another's draws.
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "operators.h"
#include "vectors.h"

namespace permcode {
namespace {

constexpr int64_t kNumbersAtLeast = 4096;  // for a thread

// An invertible mixing of 32 bits: multiplications spread them upwards, shifts bring them down again.
inline Words mixed(Words x) {
  x = (x ^ (x >> 16)) * 0x21f0aaad;
  x = (x ^ (x >> 15)) * 0x735a2d97;
  return x ^ (x >> 15);
}

struct Key {
  uint32_t low, high;
};

// Evenly distributed words for the places `at` to `at` + 15.
inline Words drawn(Key key, int64_t at) {
  const Words place = kLane + static_cast<uint32_t>(at);
  const uint32_t far = static_cast<uint32_t>(static_cast<uint64_t>(at) >> 32);
  return mixed(mixed(place ^ key.low) + (key.high ^ (far * 0x9e3779b9)));
}

template <typename T>
void drop(const at::Tensor& x, Key key, uint32_t threshold, float scale, const at::Tensor& y) {
  const T* from = x.data_ptr<T>();
  T* to = y.data_ptr<T>();
  at::parallel_for(0, x.numel() / kLanes, kNumbersAtLeast / kLanes, [&](int64_t first, int64_t last) {
    for (int64_t i = first * kLanes; i < last * kLanes; i += kLanes) {
      const Floats value = load(from + i) * scale;
      store(drawn(key, i) < threshold ? Floats{} : value, to + i);
    }
  });
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, double probability, int64_t seed) {
  TORCH_CHECK(x.is_contiguous() && x.numel() % kLanes == 0, "numbers in steps of 16");
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, "float32 or bfloat16");
  TORCH_CHECK(probability >= 0.0 && probability < 1.0, "a probability below 1");
  const auto bits = static_cast<uint64_t>(seed);
  const Key key{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
  const auto threshold = static_cast<uint32_t>(std::lround(probability * 4294967295.0));
  const auto scale = static_cast<float>(1.0 / (1.0 - probability));
  at::Tensor y = at::empty_like(x);
  if (x.scalar_type() == at::kFloat)
    drop<float>(x, key, threshold, scale, y);
  else
    drop<at::BFloat16>(x, key, threshold, scale, y);
  return y;
}

}  // namespace permcode
