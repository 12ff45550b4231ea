// Sixteen numbers at a time, in the compiler's own vector types: any machine, any instruction set.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace permcode {

constexpr int64_t kLanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));
using Integers = int32_t __attribute__((vector_size(64)));
using Halves = uint16_t __attribute__((vector_size(32)));

inline Floats all(float value) { return Floats{} + value; }

inline Floats load(const float* from) {
  Floats read;
  std::memcpy(&read, from, sizeof(read));
  return read;
}

// What the compiler makes of its own conversions between 16 and 32 bits takes several instructions.
inline Words widened(Halves halves) {
#ifdef __AVX512F__
  return (Words)_mm512_cvtepu16_epi32((__m256i)halves);
#else
  return __builtin_convertvector(halves, Words);
#endif
}

// The lower halves of the words.
inline Halves narrowed(Words words) {
#ifdef __AVX512F__
  return (Halves)_mm512_cvtepi32_epi16((__m512i)words);
#else
  return __builtin_convertvector(words, Halves);
#endif
}

inline Floats load(const c10::BFloat16* from) {
  Halves read;
  std::memcpy(&read, from, sizeof(read));
  return (Floats)(widened(read) << 16);
}

inline void store(Floats value, float* to) { std::memcpy(to, &value, sizeof(value)); }

// To the nearest bfloat16, ties to even.
inline void store(Floats value, c10::BFloat16* to) {
#ifdef __AVX512BF16__
  const __m256bh written = _mm512_cvtneps_pbh((__m512)value);
#else
  Words bits = (Words)value;
  bits += 0x7fff + ((bits >> 16) & 1);
  const Halves written = narrowed(bits >> 16);
#endif
  std::memcpy(to, &written, sizeof(written));
}

// Adding it to a number below 2^22 rounds that to the nearest integer, which the lowest bits then are.
constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23

// To the nearest integers, which must fit.
inline void store_rounded(Floats value, int16_t* to) {
  const Halves written = narrowed((Words)(value + kToInteger));
  std::memcpy(to, &written, sizeof(written));
}

inline Floats load_integers(const int16_t* from) {
  Halves read;
  std::memcpy(&read, from, sizeof(read));
  return __builtin_convertvector((Integers)(widened(read) << 16) >> 16, Floats);
}

// No more than `count` of them.
template <typename T>
inline void store(Floats value, T* to, int64_t count) {
  if (count >= kLanes) return store(value, to);
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = T(value[lane]);
}

// `value` where the bit of a lane is set, `otherwise` elsewhere.
inline Floats where(uint16_t bits, Floats value, Floats otherwise) {
  constexpr Words kBitOfLane = {1,      1 << 1, 1 << 2,  1 << 3,  1 << 4,  1 << 5,  1 << 6,  1 << 7,
                                1 << 8, 1 << 9, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
  return ((Words{} + bits) & kBitOfLane) != 0 ? value : otherwise;
}

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// Always in the same order, so that a row's sum does not depend on the machine.
inline float sum(Floats value) {
  float part[kLanes];
  store(value, part);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
  return part[0];
}

inline float largest(Floats value) {
  float part[kLanes], best;
  store(value, part);
  best = part[0];
  for (int64_t lane = 1; lane < kLanes; ++lane) best = part[lane] > best ? part[lane] : best;
  return best;
}

// e^x for x <= 0 to 2 ulp, 0 below -87; NaN stays NaN. Cephes' expf (Moshier): x = n ln 2 + r, a polynomial in r.
inline Floats exp_of_negative(Floats x) {
  constexpr float kLowest = -87.0f;
  const Floats shifted = x * 1.44269504088896341f + kToInteger;
  const Floats n = shifted - kToInteger;
  const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Words exponent = (Words)shifted << 23;
  return x < all(kLowest) ? Floats{} : (Floats)((Words)p + exponent);
}

constexpr Words kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Lane i of `a` and `b` side by side, i < 32.
inline Words pick(Words a, Words b, Words i) {
#if defined(__clang__)
  Words picked;
  for (int64_t lane = 0; lane < kLanes; ++lane) picked[lane] = i[lane] < kLanes ? a[i[lane]] : b[i[lane] - kLanes];
  return picked;
#else
  return __builtin_shuffle(a, b, i);
#endif
}

// The first `count` numbers of 32 bits from `from`, zeros after them.
inline Words load_words(const void* from, int64_t count) {
  Words read{};
  if (count >= kLanes)
    std::memcpy(&read, from, sizeof(read));
  else
    std::memcpy(&read, from, count * sizeof(uint32_t));
  return read;
}

inline void store_words(Words words, void* to) { std::memcpy(to, &words, sizeof(words)); }

// Transposes 16 rows of 16 words by exchanging blocks of 8, 4, 2 and 1 across the diagonal.
inline void transpose_tile(Words* rows) {
#pragma GCC unroll 4
  for (uint32_t block = kLanes / 2; block > 0; block /= 2) {
    const Words upper = (kLane & block) != 0 ? kLane - block + kLanes : kLane;
    const Words lower = (kLane & block) != 0 ? kLane + kLanes : kLane + block;
#pragma GCC unroll 16
    for (uint32_t row = 0; row < kLanes; ++row) {
      if (row & block) continue;
      const Words a = rows[row], b = rows[row + block];
      rows[row] = pick(a, b, upper);
      rows[row + block] = pick(a, b, lower);
    }
  }
}

// Rows of numbers, any length.
template <typename From, typename To>
inline void convert(const From* from, To* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(load(from + i), to + i);
  for (; i < count; ++i) to[i] = static_cast<To>(static_cast<float>(from[i]));
}

// to[i] = from[i] * scale + bias[i]; nothing is added where there is no bias.
template <typename From, typename To>
inline void scale_and_add(const From* from, float scale, const To* bias, To* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(load(from + i) * all(scale) + (bias ? load(bias + i) : Floats{}), to + i);
  for (; i < count; ++i)
    to[i] = static_cast<To>(static_cast<float>(from[i]) * scale + (bias ? static_cast<float>(bias[i]) : 0.0f));
}

// to[i] = the pair (a[i], b[i]); float32 has no pairs, and `b` is not used.
inline void interleave(const float* a, const float*, int64_t count, float* to) { std::memcpy(to, a, count * sizeof(float)); }

inline void interleave(const c10::BFloat16* a, const c10::BFloat16* b, int64_t count, c10::BFloat16* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store_words((Words)load(a + i) >> 16 | (Words)load(b + i), to + 2 * i);
  for (; i < count; ++i) to[2 * i] = a[i], to[2 * i + 1] = b[i];
}

template <typename From>
inline void add(const From* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(load(to + i) + load(from + i), to + i);
  for (; i < count; ++i) to[i] += float(from[i]);
}

}  // namespace permcode
