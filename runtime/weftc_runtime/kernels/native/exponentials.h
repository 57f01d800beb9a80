// exp of 64 numbers at a time, to within about one unit in the last place of what is asked for.
//
// exp(x) = 2^k exp(r), |r| <= log(2) / 2: k and r are found in float64, also for results in float32, so that the error of
// a result does not grow with |x|. Loops of fixed length are left to the compiler to turn into vectors.
#pragma once

#include <cstdint>
#include <cstring>

namespace weftc {

constexpr int BLOCK = 64;  // numbers at a time; token arrays are padded to multiples of it
constexpr double LOG2E = 1.4426950408889634074, LN2 = 0.69314718055994530942;
constexpr double LN2_HIGH = 0.693145751953125, LN2_LOW = 1.42860682030941723212e-6;  // HIGH * k is exact
constexpr double ROUND = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves a whole number in the last bits

// Below `lowest` the result is 0; above 80 it is no longer right. NaN stays NaN.
template <class Real>
constexpr double lowest();
template <>
constexpr double lowest<float>() {
  return -86.0;
}
template <>
constexpr double lowest<double>() {
  return -700.0;
}

__attribute__((noinline)) static void exps(const double* x, float* out) {
  constexpr double low = lowest<float>();
  double whole[BLOCK];
  float rest[BLOCK], scale[BLOCK];
  int32_t bits[BLOCK];
  for (int e = 0; e < BLOCK; e++) {
    const double y = x[e] < low ? low : x[e];
    whole[e] = (y * LOG2E + ROUND) - ROUND;
    rest[e] = (float)(y - whole[e] * LN2);
  }
  for (int e = 0; e < BLOCK; e++) bits[e] = ((int32_t)whole[e] + 127) << 23;
  std::memcpy(scale, bits, sizeof scale);
  for (int e = 0; e < BLOCK; e++) {
    const float r = rest[e];
    float p = 1.9875691500e-4f;  // the coefficients of Cephes, whose error is below that of rounding
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    const float found = (p + 1.0f) * scale[e];
    out[e] = x[e] < low ? 0.0f : found;
  }
}

__attribute__((noinline)) static void exps(const double* x, double* out) {
  constexpr double low = lowest<double>();
  double rest[BLOCK], scale[BLOCK];
  int64_t bits[BLOCK];
  for (int e = 0; e < BLOCK; e++) {
    const double y = x[e] < low ? low : x[e];
    scale[e] = y * LOG2E + ROUND;
    const double whole = scale[e] - ROUND;
    rest[e] = (y - whole * LN2_HIGH) - whole * LN2_LOW;
  }
  std::memcpy(bits, scale, sizeof bits);
  for (int e = 0; e < BLOCK; e++) bits[e] = (int64_t)((uint64_t)(bits[e] + 1023) << 52);
  std::memcpy(scale, bits, sizeof scale);
  for (int e = 0; e < BLOCK; e++) {
    const double r = rest[e];
    double p = 1.0 / 6227020800.0;  // Taylor up to r^13: the next term is below 5e-18
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * (r * r) + r;
    const double found = (p + 1.0) * scale[e];
    out[e] = x[e] < low ? 0.0 : found;
  }
}

}  // namespace weftc
