#include "train/mxfp4.h"

#include "train/vmath.h"

namespace {

constexpr int kBlock = 32;
constexpr uint32_t kInfinityBits = 0x7f800000u;

struct E2M1 {
    static constexpr int kMaxExponent = 2, kMantissa = 1, kMinExponent = 0;
    static constexpr float kMaxNormal = 6.0f;
};

struct E4M3 {
    static constexpr int kMaxExponent = 8, kMantissa = 3, kMinExponent = -6;
    static constexpr float kMaxNormal = 448.0f;
};

// An element is rounded by adding and taking away 2^(23 - mantissa bits) times its power of two (that of the smallest
// normal number for subnormals), whose last bit is what the last mantissa bit counts: ties go to even.
template <class Format>
void values(const float *x, float *y, long n, int32_t increment) {
    using namespace vmath;
    constexpr int kMaxScale = 127 + 127 - Format::kMaxExponent;
    constexpr uint32_t kSmallest = (uint32_t)(127 + Format::kMinExponent) << 23;
    for (long at = 0; at < n; at += kBlock) {
        uint32_t magnitude[kBlock], largest = 0;
        for (int i = 0; i < kBlock; ++i) magnitude[i] = to_bits(x[at + i]) & 0x7fffffffu;
        for (int i = 0; i < kBlock; ++i) largest = magnitude[i] > largest ? magnitude[i] : largest;
        if (largest >= kInfinityBits) {
            for (int i = 0; i < kBlock; ++i) y[at + i] = __builtin_nanf("");
            continue;
        }
        int32_t scale = (int32_t)((largest + (uint32_t)increment) >> 23) - Format::kMaxExponent;
        scale = scale < 0 ? 0 : scale > kMaxScale ? kMaxScale : scale;
        const float shrink = from_bits((uint32_t)(254 - scale) << 23);
        const float grow = scale == 0 ? from_bits(1u << 22) : from_bits((uint32_t)scale << 23);
        for (int i = 0; i < kBlock; ++i) {
            float v = from_bits(magnitude[i]) * shrink;
            v = v < Format::kMaxNormal ? v : Format::kMaxNormal;
            uint32_t power = to_bits(v) & kInfinityBits;
            power = power > kSmallest ? power : kSmallest;
            const float anchor = from_bits(power + ((uint32_t)(23 - Format::kMantissa) << 23));
            v = ((v + anchor) - anchor) * grow;
            y[at + i] = from_bits(to_bits(v) | (to_bits(x[at + i]) & 0x80000000u));
        }
    }
}

}  // namespace

void mxfp4_values(const float *x, float *y, long n, int32_t increment) { values<E2M1>(x, y, n, increment); }

void mxfp8_values(const float *x, float *y, long n, int32_t increment) { values<E4M3>(x, y, n, increment); }
