// Softmax of one row over the keys it sees, and its derivative.
#pragma once

#include <limits>

#include "vectors.h"

namespace permcode {

// What a row sees: a bit per key, 16 to a word; `other` (of another document) may be null.
struct RowVisibility {
  const uint16_t* visible;
  const uint16_t* other;
};

// The weights of `padded` scores; zeros where nothing is seen. `scores` is used as scratch.
template <typename T>
void softmax(float* scores, int64_t padded, RowVisibility visibility, const T* document_scores, T* weights) {
  const Floats hidden = all(-std::numeric_limits<float>::infinity());
  Floats same{}, other{}, best = hidden;
  if (visibility.other) same = all(float(document_scores[0])), other = all(float(document_scores[1]));
  for (int64_t i = 0; i < padded; i += kLanes) {
    Floats score = load(scores + i);
    if (visibility.other) score += where(visibility.other[i / kLanes], other, same);
    score = where(visibility.visible[i / kLanes], score, hidden);
    best = larger(score, best);
    store(score, scores + i);
  }
  const float highest = largest(best);
  // Nothing seen, or all that is seen is NaN: the first must give zeros, the second comes out as NaN below.
  const Floats reference = all(highest == -std::numeric_limits<float>::infinity() ? 0.0f : highest);
  Floats total{};
  for (int64_t i = 0; i < padded; i += kLanes) {
    const Floats weight = exp_of_negative(load(scores + i) - reference);
    total += weight;
    store(weight, scores + i);
  }
  const float mass = sum(total);
  const Floats scale = all(mass == 0.0f ? 0.0f : 1.0f / mass);
  for (int64_t i = 0; i < padded; i += kLanes) store(load(scores + i) * scale, weights + i);
}

// From the gradients of the weights to those of the scores: w (g - sum of w g).
template <typename T>
void softmax_backward(const float* gradients, const T* weights, int64_t padded, T* score_gradients) {
  Floats total{};
  for (int64_t i = 0; i < padded; i += kLanes) total += load(weights + i) * load(gradients + i);
  const Floats mean = all(sum(total));
  for (int64_t i = 0; i < padded; i += kLanes)
    store(load(weights + i) * (load(gradients + i) - mean), score_gradients + i);
}

}  // namespace permcode
