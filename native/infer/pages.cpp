#include "infer/pages.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "infer/simd.h"
#include "mx/e4m3.h"

namespace {

constexpr long kScaled = 128;
// Scales below would not divide; what is that small becomes zero.
constexpr float kSmallest = 0x1p-100f;

// The step of E4M3 codes that reaches the largest of n values; NaN where one is no finite number.
float scale_of(const float *x, long n, bool power) {
    float peak = 0.0f;
    bool finite = true;
    for (long i = 0; i < n; ++i) {
        const float size = std::fabs(x[i]);
        finite &= size <= 3.40282347e38f;
        peak = peak >= size ? peak : size;
    }
    if (!finite) return NAN;
    const float scale = std::max(peak / mx::kLargestE4M3, kSmallest);
    if (!power) return scale;
    // The next power of two.
    return vmath::from_bits((vmath::to_bits(scale) + 0x7fffffu) & 0x7f800000u);
}

}  // namespace

Pages::Pages(Stored stored, long width, long block_size, long coded, bool powers)
    : stored(stored), width(width), block_size(block_size), coded(stored == Stored::kFP8 ? coded : 0), powers(powers) {
    row_bytes = stored == Stored::kF32
                    ? 4 * width
                    : this->coded + 4 * ((this->coded + kScaled - 1) / kScaled) + 2 * (width - this->coded);
}

void Pages::keep(const float *from, uint8_t *to) const {
    if (stored == Stored::kF32) {
        std::memcpy(to, from, width * sizeof(float));
        return;
    }
    uint8_t *scales = to + coded;
    for (long at = 0; at < coded; at += kScaled, scales += 4) {
        const long some = std::min(kScaled, coded - at);
        const float scale = scale_of(from + at, some, powers);
        std::memcpy(scales, &scale, 4);
        if (scale != scale) std::memset(to + at, 0, some);
        else
            for (long i = at; i < at + some; ++i) to[i] = mx::to_e4m3(from[i] / scale);
    }
    for (long i = coded; i < width; ++i) {
        const uint16_t half = simd::to_bf16(from[i]);
        std::memcpy(scales + 2 * (i - coded), &half, 2);
    }
}

void Pages::values(const uint8_t *from, float *out) const {
    if (stored == Stored::kF32) {
        std::memcpy(out, from, width * sizeof(float));
        return;
    }
    if (stored == Stored::kBF16) {
        const uint16_t *halves = reinterpret_cast<const uint16_t *>(from);
        for (long i = 0; i < width; ++i) out[i] = simd::value(halves[i]);
        return;
    }
    const uint8_t *scales = from + coded;
    for (long at = 0; at < coded; at += kScaled, scales += 4) {
        float scale;
        std::memcpy(&scale, scales, 4);
        for (long i = at; i < std::min(at + kScaled, coded); ++i) out[i] = mx::from_e4m3(from[i]) * scale;
    }
    for (long i = coded; i < width; ++i) {
        uint16_t half;
        std::memcpy(&half, scales + 2 * (i - coded), 2);
        out[i] = simd::value(half);
    }
}

void Pages::write(const int32_t *blocks, long position, const float *values) const {
    keep(values, row(blocks, position));
}

void Pages::read(const int32_t *blocks, const int32_t *positions, long first, long count, float *out) const {
    for (long g = 0; g < count; ++g) values(row(blocks, positions ? positions[first + g] : first + g), out + g * width);
}
