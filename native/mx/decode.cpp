#include <algorithm>

#include "mx/bits.h"
#include "mx/codec.h"
#include "train/lanes.h"

namespace mx {

namespace {

constexpr uint32_t kNaN = 0x7fc00000u;

float scale_value(uint8_t byte) {
    if (byte == kNaNScale) return from_bits(kNaN);
    return e8m0(byte);
}

void decode_block(const uint8_t *codes, float scale, float *y, const float *table) {
    for (int i = 0; i < kBlock; ++i) y[i] = table[codes[i]] * scale;
}

#if defined(__AVX2__)

// A code moved to the top of a half-precision float is its value times 2^(bias - 15), subnormals included; the
// converter reads those at full speed.
class Halves {
  public:
    explicit Halves(const Element &e)
        : shift_(15 - e.bias), up_(_mm_cvtsi32_si128(10 - e.mantissa)), sign_up_(_mm_cvtsi32_si128(16 - e.bits)),
          sign_(_mm256_set1_epi16((short)(1 << (e.bits - 1)))),
          magnitude_(_mm256_set1_epi8((char)((1 << (e.bits - 1)) - 1))),
          most_(_mm256_set1_epi8((char)e.max_code)) {}

    // Whether every code is a finite number and the scale can carry the factor along.
    bool is_plain(__m256i codes, uint8_t scale) const {
        const __m256i magnitude = _mm256_and_si256(codes, magnitude_);
        const __m256i above = _mm256_cmpgt_epi8(magnitude, most_);
        return scale + shift_ < kNaNScale && _mm256_testz_si256(above, above);
    }
    void block(__m256i codes, uint8_t scale, float *y) const {
        const __m256 by = _mm256_set1_ps(scale_value((uint8_t)(scale + shift_)));
        half(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(codes)), by, y);
        half(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(codes, 1)), by, y + 16);
    }

  private:
    void half(__m256i code, __m256 by, float *y) const {
        const __m256i sign = _mm256_and_si256(code, sign_);
        const __m256i magnitude = _mm256_sll_epi16(_mm256_xor_si256(code, sign), up_);
        const __m256i all = _mm256_or_si256(magnitude, _mm256_sll_epi16(sign, sign_up_));
        _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(all)), by));
        _mm256_storeu_ps(y + 8, _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(all, 1)), by));
    }

    int shift_;
    __m128i up_, sign_up_;
    __m256i sign_, magnitude_, most_;
};

// Four bytes hold the codes of eight values; a shuffle of registers looks their magnitudes up, scaled already.
void decode_packed_block(const uint8_t *packed, __m256 magnitudes, float *y) {
    const __m256i down = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i up = _mm256_setr_epi32(28, 24, 20, 16, 12, 8, 4, 0);
    const __m256 sign = _mm256_castsi256_ps(_mm256_set1_epi32(INT32_MIN));
    for (int i = 0; i < kBlock / 8; ++i) {
        int32_t word;
        std::memcpy(&word, packed + 4 * i, 4);
        const __m256i codes = _mm256_set1_epi32(word);
        const __m256 value = _mm256_permutevar8x32_ps(magnitudes, _mm256_srlv_epi32(codes, down));
        const __m256 top = _mm256_castsi256_ps(_mm256_sllv_epi32(codes, up));
        _mm256_storeu_ps(y + 8 * i, _mm256_or_ps(value, _mm256_and_ps(top, sign)));
    }
}

#endif

}  // namespace

void decode(const uint8_t *codes, const uint8_t *scales, float *y, long blocks, const Element &e, const float *table) {
#if defined(__AVX2__)
    const Halves halves(e);
    for (long b = 0; b < blocks; ++b, codes += kBlock, y += kBlock) {
        const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(codes));
        if (halves.is_plain(c, scales[b])) {
            halves.block(c, scales[b], y);
        } else {
            decode_block(codes, scale_value(scales[b]), y, table);
        }
    }
#else
    (void)e;
    for (long b = 0; b < blocks; ++b) decode_block(codes + b * kBlock, scale_value(scales[b]), y + b * kBlock, table);
#endif
}

void decode_packed(const uint8_t *packed, const uint8_t *scales, float *y, long blocks, const float *table) {
    for (long b = 0; b < blocks; ++b, packed += kBlock / 2, y += kBlock) {
        const float scale = scale_value(scales[b]);
#if defined(__AVX2__)
        if (scales[b] != kNaNScale) {
            decode_packed_block(packed, _mm256_mul_ps(_mm256_loadu_ps(table), _mm256_set1_ps(scale)), y);
            continue;
        }
#endif
        float scaled[16];
        for (int i = 0; i < 16; ++i) scaled[i] = table[i] * scale;
        for (int j = 0; j < kBlock / 2; ++j) {
            y[2 * j] = scaled[packed[j] & 15];
            y[2 * j + 1] = scaled[packed[j] >> 4];
        }
    }
}

uint8_t largest(const uint8_t *codes, long n) {
    uint8_t found = 0;
    for (long i = 0; i < n; ++i) found = std::max(found, codes[i]);
    return found;
}

}  // namespace mx
