#include "train/mxfp4.h"

#include "train/vmath.h"

namespace {

constexpr int kBlock = 32, kMaxExponent = 2, kMaxScale = 127 + 127 - kMaxExponent;
constexpr float kMaxNormal = 6.0f;
constexpr uint32_t kInfinityBits = 0x7f800000u;

}  // namespace

// An element is rounded by adding and taking away 2^22 times its power of two (1 for subnormals), whose last bit
// is half of that power: one mantissa bit stays, rounded to even.
void mxfp4_values(const float *x, float *y, long n, int32_t increment) {
    using namespace vmath;
    for (long at = 0; at < n; at += kBlock) {
        uint32_t magnitude[kBlock], largest = 0;
        for (int i = 0; i < kBlock; ++i) magnitude[i] = to_bits(x[at + i]) & 0x7fffffffu;
        for (int i = 0; i < kBlock; ++i) largest = magnitude[i] > largest ? magnitude[i] : largest;
        if (largest >= kInfinityBits) {
            for (int i = 0; i < kBlock; ++i) y[at + i] = __builtin_nanf("");
            continue;
        }
        int32_t scale = (int32_t)((largest + (uint32_t)increment) >> 23) - kMaxExponent;
        scale = scale < 0 ? 0 : scale > kMaxScale ? kMaxScale : scale;
        const float shrink = from_bits((uint32_t)(254 - scale) << 23);
        const float grow = scale == 0 ? from_bits(1u << 22) : from_bits((uint32_t)scale << 23);
        for (int i = 0; i < kBlock; ++i) {
            float v = from_bits(magnitude[i]) * shrink;
            v = v < kMaxNormal ? v : kMaxNormal;
            uint32_t power = to_bits(v) & kInfinityBits;
            power = power > (127u << 23) ? power : 127u << 23;
            const float anchor = from_bits(power + (22u << 23));
            v = ((v + anchor) - anchor) * grow;
            y[at + i] = from_bits(to_bits(v) | (to_bits(x[at + i]) & 0x80000000u));
        }
    }
}
