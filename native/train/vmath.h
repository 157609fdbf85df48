// Elementary functions in float32 without branches, so that a loop over them becomes vector code.
//
// Range reduction by powers of two (x = n ln 2 + r with ln 2 split in two, so that n times its upper half is
// exact) and minimax polynomials fitted in float64.  Errors are relative and measured against float64, see
// tests/train/fused/test_pointwise.py.  NaN in gives NaN out; no finite argument does.
#pragma once
#include <cstdint>
#include <cstring>

namespace vmath {

inline float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline uint32_t to_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
// Adding this rounds to an integer n and leaves n + 127 in the low bits: shifted up, they are 2^n.
constexpr float kRound = 12582912.0f + 127.0f;
constexpr float kInfinity = __builtin_inff();

}  // namespace vmath

// e^x, error 9e-8.  0 below -87.3365 (the result would be subnormal), infinity above 88.376.
inline float fast_exp(float x) {
    using namespace vmath;
    constexpr float low = -87.3365f, high = 88.376f;
    float c = x < low ? low : x;
    c = c > high ? high : c;
    const float shifted = c * kLog2E + kRound;
    const float n = shifted - kRound;
    const float r = (c - n * kLn2High) - n * kLn2Low;
    float p = 1.381432036e-03f;
    p = p * r + 8.368851085e-03f;
    p = p * r + 4.166840109e-02f;
    p = p * r + 1.666651952e-01f;
    p = p * r + 4.999999337e-01f;
    p = (p * r) * r + r + 1.0f;
    float y = p * from_bits(to_bits(shifted) << 23);
    y = x < low ? 0.0f : y;
    return x > high ? kInfinity : y;
}

// 1 / (1 + e^-x), error 1.5e-7; exactly 0 and 1 far out.
inline float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// tanh x = E / (E + 2) with E = e^2x - 1, taken together so that small x keeps its digits; error 2e-7.
inline float fast_tanh(float x) {
    using namespace vmath;
    float c = 2.0f * x;
    c = c < -20.0f ? -20.0f : c;
    c = c > 20.0f ? 20.0f : c;
    const float shifted = c * kLog2E + kRound;
    const float n = shifted - kRound;
    const float r = (c - n * kLn2High) - n * kLn2Low;
    float q = 1.394666995e-03f;
    q = q * r + 8.366710660e-03f;
    q = q * r + 4.166627908e-02f;
    q = q * r + 1.666654205e-01f;
    q = q * r + 5.000000063e-01f;
    q = (q * r) * r + r;
    const float power = from_bits(to_bits(shifted) << 23);
    const float e = q * power + (power - 1.0f);
    return e / (e + 2.0f);
}

// ln x for normal x > 0, error 1e-7, near x = 1 too.  -infinity for zero and subnormals,
// NaN below.
inline float fast_log(float x) {
    using namespace vmath;
    // Counted from sqrt(1/2), so that the mantissa lies in [sqrt(1/2), sqrt(2)) and ln 1 is exactly 0.
    constexpr uint32_t root_half = 0x3f3504f3u;
    const uint32_t offset = to_bits(x) - root_half;
    const float n = static_cast<float>(static_cast<int32_t>(offset) >> 23);
    const float f = from_bits((offset & 0x007fffffu) + root_half) - 1.0f;
    float p = 6.746638263e-02f;
    p = p * f - 1.167565121e-01f;
    p = p * f + 1.188816297e-01f;
    p = p * f - 1.240558906e-01f;
    p = p * f + 1.421955228e-01f;
    p = p * f - 1.666799584e-01f;
    p = p * f + 2.000211866e-01f;
    p = p * f - 2.500000960e-01f;
    p = p * f + 3.333331260e-01f;
    const float square = f * f;
    float y = (p * f) * square + n * kLn2Low;
    y = (y - 0.5f * square) + f;
    y = y + n * kLn2High;
    y = x < 1.17549435e-38f ? -kInfinity : y;
    y = x < 0.0f ? __builtin_nanf("") : y;
    return x <= 3.40282347e38f ? y : x + x;  // infinity and NaN stay what they are
}
