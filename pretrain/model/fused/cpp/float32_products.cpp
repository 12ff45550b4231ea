// Products of bfloat16 matrices where the processor has no instructions for them: PyTorch multiplies those number by
// number, some fifty times slower than float32's. Here both are made float32 (exactly), multiplied, and the sums rounded
// once, as such instructions do.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include "operators.h"

namespace permcode {
namespace {

using at::Scalar;
using at::Tensor;

template <typename... Tensors>
bool are_bfloat16(const Tensors&... tensors) {
  return ((tensors.scalar_type() == at::kBFloat16) && ...);
}

Tensor wide(const Tensor& narrow) { return narrow.to(at::kFloat); }

Tensor narrow(const Tensor& wide) { return wide.to(at::kBFloat16); }

Tensor& put(const Tensor& wide, Tensor& out) {
  at::native::resize_output(out, wide.sizes());
  return out.copy_(wide);
}

Tensor mm(const Tensor& left, const Tensor& right) {
  if (!are_bfloat16(left, right)) return at::cpu::mm(left, right);
  return narrow(at::cpu::mm(wide(left), wide(right)));
}

Tensor& mm_out(const Tensor& left, const Tensor& right, Tensor& out) {
  if (!are_bfloat16(left, right, out)) return at::cpu::mm_out(out, left, right);
  return put(at::cpu::mm(wide(left), wide(right)), out);
}

Tensor bmm(const Tensor& left, const Tensor& right) {
  if (!are_bfloat16(left, right)) return at::cpu::bmm(left, right);
  return narrow(at::cpu::bmm(wide(left), wide(right)));
}

Tensor& bmm_out(const Tensor& left, const Tensor& right, Tensor& out) {
  if (!are_bfloat16(left, right, out)) return at::cpu::bmm_out(out, left, right);
  return put(at::cpu::bmm(wide(left), wide(right)), out);
}

// The three with a summand have the same signature, and each an inner function, one with `out` and one in place.
#define PERMCODE_WITH_SUMMAND(name)                                                                                   \
  Tensor name(const Tensor& summand, const Tensor& left, const Tensor& right, const Scalar& beta,                     \
              const Scalar& alpha) {                                                                                  \
    if (!are_bfloat16(summand, left, right)) return at::cpu::name(summand, left, right, beta, alpha);                 \
    return narrow(at::cpu::name(wide(summand), wide(left), wide(right), beta, alpha));                                \
  }                                                                                                                   \
  Tensor& name##_out(const Tensor& summand, const Tensor& left, const Tensor& right, const Scalar& beta,              \
                     const Scalar& alpha, Tensor& out) {                                                              \
    if (!are_bfloat16(summand, left, right, out)) return at::cpu::name##_out(out, summand, left, right, beta, alpha); \
    return put(at::cpu::name(wide(summand), wide(left), wide(right), beta, alpha), out);                              \
  }                                                                                                                   \
  Tensor& name##_(Tensor& summand, const Tensor& left, const Tensor& right, const Scalar& beta,                       \
                  const Scalar& alpha) {                                                                              \
    if (!are_bfloat16(summand, left, right)) return at::cpu::name##_(summand, left, right, beta, alpha);              \
    return summand.copy_(at::cpu::name(wide(summand), wide(left), wide(right), beta, alpha));                         \
  }

PERMCODE_WITH_SUMMAND(addmm)
PERMCODE_WITH_SUMMAND(addmv)
PERMCODE_WITH_SUMMAND(baddbmm)

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

// For this process, from the first call on; never taken back.
void multiply_in_float32() {
  static const torch::Library* const products = [] {
    // PyTorch warns of every operator that is registered a second time.
    static Silent silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library->impl("mm", mm);
    library->impl("mm.out", mm_out);
    library->impl("bmm", bmm);
    library->impl("bmm.out", bmm_out);
    library->impl("addmm", addmm);
    library->impl("addmm.out", addmm_out);
    library->impl("addmm_", addmm_);
    library->impl("addmv", addmv);
    library->impl("addmv.out", addmv_out);
    library->impl("addmv_", addmv_);
    library->impl("baddbmm", baddbmm);
    library->impl("baddbmm.out", baddbmm_out);
    library->impl("baddbmm_", baddbmm_);
    return library;
  }();
  (void)products;
}

}  // namespace permcode
