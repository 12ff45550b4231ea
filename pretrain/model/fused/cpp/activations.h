// The activations between the two products of a feed-forward network.
#pragma once

#include "vectors.h"

namespace permcode {

inline Floats magnitude(Floats x) { return x < Floats{} ? -x : x; }

// x times the normal distribution's mass below x. Its erf is Abramowitz and Stegun's 7.1.26, to 1.5e-7.
inline Floats gelu(Floats x) {
  const Floats a = magnitude(x) * 0.70710678118654752f;
  const Floats t = 1.0f / (1.0f + 0.3275911f * a);
  Floats p = t * 1.061405429f - 1.453152027f;
  p = p * t + 1.421413741f;
  p = p * t - 0.284496736f;
  p = p * t + 0.254829592f;
  const Floats tail = 0.5f * p * t * exp_of_negative(-a * a);
  return x * (x < Floats{} ? tail : 1.0f - tail);
}

inline Floats relu(Floats x) { return x < Floats{} ? Floats{} : x; }

inline Floats silu(Floats x) {
  const Floats e = exp_of_negative(-magnitude(x));
  return x * (x < Floats{} ? e : all(1.0f)) / (1.0f + e);
}

}  // namespace permcode
