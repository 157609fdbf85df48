// Floats and their bits.
#pragma once
#include <cstdint>
#include <cstring>

namespace mx {

inline uint32_t to_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

inline float from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

}  // namespace mx
