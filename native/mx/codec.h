// MX encode and decode on one thread, bit for bit what gossamer.mx.naive defines.
//
// A block is 32 values that share one E8M0 scale byte s, worth 2^(s - 127); 255 is NaN.  Codes lie one to a byte, or,
// packed, two 4-bit codes to a byte with the even column in the low half.
#pragma once
#include <cstdint>

namespace mx {

constexpr int kBlock = 32;
constexpr uint8_t kNaNScale = 255;

// An element format: sign, exponent, mantissa.
struct Element {
    int bits;       // of a code, the sign included
    int mantissa;   // bits of it
    int bias;       // of the exponent
    int emax;       // exponent of the largest normal value
    int max_code;   // code of the largest normal value
};

// codes [blocks, 32], or [blocks, 16] if packed, and scales [blocks] of x [blocks, 32].  `increment` is the scale rule,
// see gossamer.mx.formats.scale_increment.  A block with NaN or Inf gets scale 255 and codes 0.
void encode(const float *x, uint8_t *codes, uint8_t *scales, long blocks, const Element &e, uint32_t increment,
            bool packed);

// y [blocks, 32] of codes and scales.  `table` holds the value of every code of the format, [2^bits]; a code may not
// exceed it (see `largest`).  Where a NaN comes out, it is the positive quiet one.
void decode(const uint8_t *codes, const uint8_t *scales, float *y, long blocks, const Element &e, const float *table);

// The same of packed codes; `table` holds the 16 values of a 4-bit format.
void decode_packed(const uint8_t *packed, const uint8_t *scales, float *y, long blocks, const float *table);

// The largest of n codes; 0 of none.
uint8_t largest(const uint8_t *codes, long n);

}  // namespace mx
