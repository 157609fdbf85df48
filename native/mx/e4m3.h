// Single E4M3 values: sign, four bits of exponent (bias 7), three of mantissa; no infinity, largest 448.
#pragma once
#include <cmath>
#include <cstdint>

#include "train/vmath.h"

namespace mx {

constexpr float kLargestE4M3 = 448.0f;

// The code nearest to x, even at ties; beyond 448 it is 448.  x is a number.
inline uint8_t to_e4m3(float x) {
    const float size = std::fabs(x) < kLargestE4M3 ? std::fabs(x) : kLargestE4M3;
    const uint32_t bits = vmath::to_bits(size);
    // Three bits of mantissa left, and the exponent's bias changed from 127 to 7.
    const uint32_t normal = ((bits + 0x7ffffu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);
    // Below 2^-6 codes count steps of 2^-9, which is what the last bit of a float near 2^14 is worth.
    const uint32_t small = vmath::to_bits(size + 16384.0f) - vmath::to_bits(16384.0f);
    const uint32_t sign = (vmath::to_bits(x) >> 24) & 0x80u;
    return static_cast<uint8_t>(sign | (bits < 0x3c800000u ? small : normal));
}

// The value of a code that to_e4m3 gives; exact.
inline float from_e4m3(uint8_t code) {
    const uint32_t bits = static_cast<uint32_t>(code & 0x7fu) << 20;
    const float size = vmath::from_bits(bits) * 0x1p120f;
    return code & 0x80u ? -size : size;
}

}  // namespace mx
