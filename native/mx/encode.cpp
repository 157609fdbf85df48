#include <algorithm>

#include "mx/bits.h"
#include "mx/codec.h"
#include "train/lanes.h"

namespace mx {

namespace {

constexpr uint32_t kAbs = 0x7fffffffu, kInfinity = 0x7f800000u;
constexpr int kExponent = 23;  // where a float32's exponent begins

// What a format and a rule come to in the bits of float32.
struct Plan {
    explicit Plan(const Element &element, uint32_t rule)
        : e(element), increment(rule), max_scale(127 + 127 - element.emax), drop(kExponent - element.mantissa),
          low((uint32_t)(1 - element.bias + 127) << kExponent) {}
    Element e;
    uint32_t increment;
    int max_scale;
    int drop;      // mantissa bits of a float32 that an element lacks
    uint32_t low;  // bits of the smallest normal element
};

int scale_of(uint32_t amax, const Plan &p) {
    const int byte = (int)((amax + p.increment) >> kExponent) - p.e.emax;
    return byte < 0 ? 0 : byte > p.max_scale ? p.max_scale : byte;
}

// One block as loops that a compiler turns into whatever vectors there are.
//
// Adding 2^(23 - m + e), e the exponent of y but at least the format's smallest, makes the adder round y to nearest
// even at the element's last bit, and leaves the significand as an integer in the low bits of the sum.
void encode_block(const float *x, uint8_t *codes, uint8_t *scale, const Plan &p) {
    uint32_t magnitude[kBlock];
    int32_t amax = 0;
    for (int i = 0; i < kBlock; ++i) magnitude[i] = to_bits(x[i]) & kAbs;
    for (int i = 0; i < kBlock; ++i) amax = std::max(amax, (int32_t)magnitude[i]);
    if ((uint32_t)amax >= kInfinity) {
        *scale = kNaNScale;
        std::memset(codes, 0, kBlock);
        return;
    }
    const int byte = scale_of((uint32_t)amax, p);
    *scale = (uint8_t)byte;
    const float inverse = from_bits((uint32_t)(254 - byte) << kExponent);
    const int32_t low = (int32_t)p.low, max_code = p.e.max_code;
    const int drop = p.drop, sign_at = p.e.bits - 1;
    int32_t code[kBlock];
    for (int i = 0; i < kBlock; ++i) {
        const float y = from_bits(magnitude[i]) * inverse;
        const int32_t power = std::max((int32_t)(to_bits(y) & kInfinity), low);
        const int32_t anchor = power + (drop << kExponent);
        const int32_t sum = (int32_t)to_bits(y + from_bits((uint32_t)anchor));
        // Saturation after rounding: y is below twice the largest power of two, so its code is at most one above.
        code[i] = std::min(sum - anchor + ((power - low) >> drop), max_code);
    }
    for (int i = 0; i < kBlock; ++i) codes[i] = (uint8_t)((uint32_t)code[i] | (to_bits(x[i]) >> 31 << sign_at));
}

void pack_block(const uint8_t *codes, uint8_t *packed) {
    for (int j = 0; j < kBlock / 2; ++j) packed[j] = (uint8_t)(codes[2 * j] | codes[2 * j + 1] << 4);
}

void encode_few(const float *x, uint8_t *codes, uint8_t *scales, long blocks, const Plan &p, bool packed) {
    for (long b = 0; b < blocks; ++b, x += kBlock) {
        if (packed) {
            uint8_t loose[kBlock];
            encode_block(x, loose, scales + b, p);
            pack_block(loose, codes + b * (kBlock / 2));
        } else {
            encode_block(x, codes + b * kBlock, scales + b, p);
        }
    }
}

#if defined(__AVX2__)

// Eight blocks at a time: their scales are found together, lane b for block b.  Builds for AVX-512 take this path too.
constexpr int kGroup = 8;

__m256i load(const float *x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x)); }

__m256i max_of_block(const float *x, __m256i magnitude) {
    const __m256i a = _mm256_max_epi32(_mm256_and_si256(load(x), magnitude), _mm256_and_si256(load(x + 8), magnitude));
    const __m256i b =
        _mm256_max_epi32(_mm256_and_si256(load(x + 16), magnitude), _mm256_and_si256(load(x + 24), magnitude));
    return _mm256_max_epi32(a, b);
}

__m256i fold32(__m256i a, __m256i b) {
    return _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}

__m256i fold64(__m256i a, __m256i b) {
    return _mm256_max_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

__m256i amax_of_group(const float *x) {
    const __m256i magnitude = _mm256_set1_epi32((int)kAbs);
    __m256i m[kGroup];
    for (int b = 0; b < kGroup; ++b) m[b] = max_of_block(x + b * kBlock, magnitude);
    const __m256i lower = fold64(fold32(m[0], m[1]), fold32(m[2], m[3]));
    const __m256i upper = fold64(fold32(m[4], m[5]), fold32(m[6], m[7]));
    return _mm256_max_epi32(_mm256_permute2x128_si256(lower, upper, 0x20),
                            _mm256_permute2x128_si256(lower, upper, 0x31));
}

class Lanes {
  public:
    explicit Lanes(const Plan &p)
        : plan_(p), low_(_mm256_set1_epi32((int)p.low + (p.drop << kExponent))),
          join_(_mm256_set1_epi32(1 << 16 | 1 << (7 - p.e.mantissa))),
          base_(_mm256_set1_epi16((short)(((int)(p.low >> kExponent) + p.drop) << 7))),
          spare_(_mm_cvtsi32_si128(7 - p.e.mantissa)), sign_at_(_mm_cvtsi32_si128(8 - p.e.bits)),
          most_(_mm256_set1_epi8((char)p.e.max_code)) {}

    // A block whose elements are normal float32 or too small to matter; returns its codes.
    //
    // The sum is that of encode_block, with the power of two found from the exponent of x and the product left to the
    // fused adder.  Its upper half holds the exponent 7 bits up and its lower half the significand, so that one
    // multiplication of halves puts both together as they stand in a code, 7 - m bits up.
    __m256i codes(const float *x, float inverse, int32_t shift) const {
        const __m256 by = _mm256_set1_ps(inverse);
        const __m256i move = _mm256_set1_epi32(shift);
        __m256i v[4];
        for (int i = 0; i < 4; ++i) v[i] = load(x + 8 * i);
        const __m256i first = _mm256_packus_epi32(joined(v[0], by, move), joined(v[1], by, move));
        const __m256i second = _mm256_packus_epi32(joined(v[2], by, move), joined(v[3], by, move));
        const __m256i code = _mm256_min_epu8(_mm256_packus_epi16(placed(first), placed(second)), most_);
        // Saturation keeps the sign.
        const __m256i sign = _mm256_and_si256(
            _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3])),
            _mm256_set1_epi8((char)0x80));
        const __m256i all = _mm256_or_si256(code, _mm256_srl_epi16(sign, sign_at_));
        return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    }

  private:
    __m256i joined(__m256i x, __m256 inverse, __m256i shift) const {
        const __m256i power =
            _mm256_add_epi32(_mm256_and_si256(x, _mm256_set1_epi32((int)kInfinity)), shift);
        const __m256i anchor = _mm256_max_epi32(power, low_);
        const __m256 magnitude = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)kAbs)));
        const __m256 sum = _mm256_fmadd_ps(magnitude, inverse, _mm256_castsi256_ps(anchor));
        return _mm256_madd_epi16(_mm256_castps_si256(sum), join_);
    }
    __m256i placed(__m256i joined) const { return _mm256_srl_epi16(_mm256_sub_epi16(joined, base_), spare_); }

    const Plan &plan_;
    __m256i low_, join_, base_;
    __m128i spare_, sign_at_;
    __m256i most_;
};

// Two blocks of 4-bit codes as 32 bytes.
__m256i packed_pair(__m256i first, __m256i second) {
    const __m256i halves = _mm256_set1_epi16(16 << 8 | 1);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_maddubs_epi16(first, halves), _mm256_maddubs_epi16(second, halves));
    return _mm256_permute4x64_epi64(bytes, 0xd8);
}

// The bytes in the lanes of v, which hold 0..255.
void store_bytes(uint8_t *to, __m256i v) {
    const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i *>(to), _mm_packus_epi16(words, words));
}

// How the blocks of a chunk are scaled.
constexpr int kChunk = 32;  // 4 KiB of values: they are still in the first-level cache when they are encoded
struct Scaling {
    alignas(32) float inverse[kChunk];
    alignas(32) int32_t shift[kChunk];
    bool odd[kChunk / kGroup];  // the group holds a block that Lanes::codes must not see
};

// Scale bytes of `count` blocks, whole groups.
void find_scales(const float *x, uint8_t *scales, long count, const Plan &p, Scaling &out) {
    const __m256i increment = _mm256_set1_epi32((int)p.increment), emax = _mm256_set1_epi32(p.e.emax);
    const __m256i zero = _mm256_setzero_si256(), most = _mm256_set1_epi32(p.max_scale);
    // The exponent of a subnormal float32 cannot be read from its bits.  From this scale on, all of them are below
    // half the smallest element.
    const __m256i least = _mm256_set1_epi32(p.e.bias + p.e.mantissa + 2);
    const __m256i finite = _mm256_set1_epi32((int)kInfinity - 1);
    for (long b = 0; b < count; b += kGroup) {
        const __m256i amax = amax_of_group(x + b * kBlock);
        __m256i byte = _mm256_sub_epi32(_mm256_srli_epi32(_mm256_add_epi32(amax, increment), kExponent), emax);
        byte = _mm256_min_epi32(_mm256_max_epi32(byte, zero), most);
        const __m256i odd = _mm256_or_si256(_mm256_cmpgt_epi32(amax, finite), _mm256_cmpgt_epi32(least, byte));
        out.odd[b / kGroup] = !_mm256_testz_si256(odd, odd);
        store_bytes(scales + b, byte);
        const __m256i up = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), byte), kExponent);
        const __m256i move = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(127 + p.drop), byte), kExponent);
        _mm256_store_ps(out.inverse + b, _mm256_castsi256_ps(up));
        _mm256_store_si256(reinterpret_cast<__m256i *>(out.shift + b), move);
    }
}

// Whole groups; how many blocks that were.
long encode_groups(const float *x, uint8_t *codes, uint8_t *scales, long blocks, const Plan &p, bool packed) {
    const Lanes lanes(p);
    const long whole = blocks / kGroup * kGroup, bytes = packed ? kBlock / 2 : kBlock;
    Scaling s;
    for (long done = 0; done < whole; done += kChunk) {
        const long count = std::min<long>(kChunk, whole - done);
        const float *from = x + done * kBlock;
        find_scales(from, scales + done, count, p, s);
        for (long b = 0; b < count; b += 2) {
            __m256i *to = reinterpret_cast<__m256i *>(codes + (done + b) * bytes);
            // The next chunk comes from memory while this one keeps the arithmetic busy.
            for (int line = 0; line < 4; ++line)
                _mm_prefetch(reinterpret_cast<const char *>(from + (kChunk + b) * kBlock + 16 * line), _MM_HINT_T0);
            if (s.odd[b / kGroup]) {
                encode_few(from + b * kBlock, codes + (done + b) * bytes, scales + done + b, 2, p, packed);
                continue;
            }
            const __m256i first = lanes.codes(from + b * kBlock, s.inverse[b], s.shift[b]);
            const __m256i second = lanes.codes(from + (b + 1) * kBlock, s.inverse[b + 1], s.shift[b + 1]);
            if (packed) {
                _mm256_storeu_si256(to, packed_pair(first, second));
            } else {
                _mm256_storeu_si256(to, first);
                _mm256_storeu_si256(to + 1, second);
            }
        }
    }
    return whole;
}

#else

long encode_groups(const float *, uint8_t *, uint8_t *, long, const Plan &, bool) { return 0; }

#endif

}  // namespace

void encode(const float *x, uint8_t *codes, uint8_t *scales, long blocks, const Element &e, uint32_t increment,
            bool packed) {
    const Plan plan(e, increment);
    const long done = encode_groups(x, codes, scales, blocks, plan, packed);
    encode_few(x + done * kBlock, codes + done * (packed ? kBlock / 2 : kBlock), scales + done, blocks - done, plan,
               packed);
}

}  // namespace mx
