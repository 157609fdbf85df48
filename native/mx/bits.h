// What scale bytes are worth, and how packed codes lie.
#pragma once
#include <cstdint>

#include "train/lanes.h"
#include "train/vmath.h"

namespace mx {

using vmath::from_bits;
using vmath::to_bits;

// 2^(byte - 127); 255 stands for NaN and is the caller's to see.
inline float e8m0(uint8_t byte) { return from_bits(byte == 0 ? 1u << 22 : static_cast<uint32_t>(byte) << 23); }

#if defined(__AVX2__)
// The 32 codes of 16 bytes, one to a byte: even columns in the lower half, odd ones in the upper.
inline __m256i unpacked(const uint8_t *codes) {
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes)));
    return _mm256_and_si256(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}
#endif

}  // namespace mx
