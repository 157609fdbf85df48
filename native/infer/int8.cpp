#include "infer/int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "infer/simd.h"
#include "mx/bits.h"

namespace {

constexpr long kBlock = kInt8Block;
// Peaks within these have a finite reciprocal; a block below counts as zeros.
constexpr float kSmallest = 1e-30f, kLargest = 3.40282347e38f;
// Rows whose scales are decoded at a time.
constexpr int kRows = 4;

// The largest magnitude of a block, or NaN where a value is no number.
inline float largest(const float *x) {
    float best = 0.0f;
    for (int i = 0; i < kBlock; ++i) {
        const float magnitude = std::fabs(x[i]);
        // Keeps a NaN once there is one: no comparison with it holds.
        best = best >= magnitude || best != best ? best : magnitude;
    }
    return best;
}

// The integer nearest to x * factor, even at ties, of the product before any rounding.
inline int8_t nearest(float x, float factor) {
    // Adding 1.5 * 2^23 (2^52) leaves the integer in the last bits of the mantissa.
#if defined(__FMA__)
    const float shifted = __builtin_fmaf(x, factor, 12582912.0f);
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    const int32_t whole = bits - 0x4b400000;
#else
    const double shifted = static_cast<double>(x) * factor + 6755399441055744.0;
    int64_t bits;
    std::memcpy(&bits, &shifted, 8);
    const int64_t whole = bits - 0x4338000000000000;
#endif
    return static_cast<int8_t>(whole < -127 ? -127 : whole > 127 ? 127 : whole);
}

#if defined(GOSSAMER_VNNI)

// The first or both of two blocks, as a mask of 16-bit lanes; what is not there reads as zeros.
inline uint32_t lanes_of(bool both, int bytes) { return both ? 0xffffffffu >> (32 - bytes) : (1u << bytes / 2) - 1; }

// Codes of two blocks, a block to a half, all plus kOffset: a product of bytes wants one side unsigned.  What the
// offset adds is taken away as an integer, before anything is scaled.
struct Packed {
    static constexpr long kBytes = kBlock / 2;
    static constexpr char kOffset = 12;
    using Code = uint8_t;
    static inline __m512i load(const uint8_t *codes, bool both) {
        alignas(64) static const int64_t quarter[8] = {0, 1, 0, 1, 2, 3, 2, 3}, down[8] = {0, 0, 4, 4, 0, 0, 4, 4};
        const __m128i values = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
        const __m512i bytes = _mm512_maskz_loadu_epi16(lanes_of(both, kBytes), codes);
        const __m512i spread = _mm512_permutexvar_epi64(_mm512_loadu_si512(quarter), bytes);
        const __m512i index = _mm512_srlv_epi64(spread, _mm512_loadu_si512(down));
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), _mm512_and_si512(index, _mm512_set1_epi8(15)));
    }
};

struct Whole {
    static constexpr long kBytes = kBlock;
    static constexpr char kOffset = (char)128;
    using Code = int8_t;
    static inline __m512i load(const int8_t *codes, bool both) {
        return _mm512_xor_si512(_mm512_maskz_loadu_epi16(lanes_of(both, kBytes), codes), _mm512_set1_epi8(kOffset));
    }
};

// The scales of two blocks, one to a half.
inline __m512 scales_of(const float *scales, bool both) {
    alignas(64) static const int32_t half[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
    const __m512i two = _mm512_maskz_loadu_epi16(both ? 15 : 3, scales);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi32(_mm512_loadu_si512(half), two));
}

// As below, with even blocks in the lower and odd ones in the upper half of the sums.
template <class Weights, int R, int M, bool Ready = false>
inline void tile(const typename Weights::Code *w, const float *scales, long blocks, const Int8Rows &x, float *y,
                 long ldy) {
    const long k = blocks * kBlock;
    const __m512i zero = _mm512_setzero_si512(), offset = _mm512_set1_epi8(Weights::kOffset);
    __m512 acc[R][M];
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) acc[r][m] = _mm512_setzero_ps();
    for (long b = 0; b < blocks; b += 2) {
        const bool both = b + 1 < blocks;
        __m512i xs[M], added[M];
        __m512 x_scales[M];
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) {
            xs[m] = _mm512_maskz_loadu_epi16(lanes_of(both, kBlock), x.codes + m * k + b * kBlock);
            added[m] = _mm512_sub_epi32(zero, _mm512_dpbusd_epi32(zero, offset, xs[m]));
            if (!Ready) x_scales[m] = scales_of(x.scales + m * blocks + b, both);
        }
        GOSSAMER_UNROLL
        for (int r = 0; r < R; ++r) {
            const typename Weights::Code *place = w + (r * blocks + b) * Weights::kBytes;
            const __m512i codes = Weights::load(place, both);
            if (Ready) simd::prefetch(place + R * blocks * Weights::kBytes);
            const __m512 row_scale = scales_of(scales + r * blocks + b, both);
            GOSSAMER_UNROLL
            for (int m = 0; m < M; ++m) {
                const __m512 sum = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(added[m], codes, xs[m]));
                const __m512 scale = Ready ? row_scale : _mm512_mul_ps(row_scale, x_scales[m]);
                acc[r][m] = _mm512_fmadd_ps(sum, scale, acc[r][m]);
            }
        }
    }
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) y[m * ldy + r] = simd::sum(acc[r][m]);
}

#elif defined(__AVX2__)

using Codes = __m256i;

inline __m256i load_bytes(const void *p) { return _mm256_loadu_si256(static_cast<const __m256i *>(p)); }

inline __m256i dot(Codes w, const int8_t *x) {
    // A product of bytes wants one side unsigned: the weights' signs go to the activations.
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(load_bytes(x), w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// MXFP4: twice the value of each code; the factor two is in the scale.
struct Packed {
    static constexpr long kBytes = kBlock / 2;
    using Code = uint8_t;
    static inline Codes load(const uint8_t *codes) {
        const __m128i values16 = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values16), mx::unpacked(codes));
    }
};

struct Whole {
    static constexpr long kBytes = kBlock;
    using Code = int8_t;
    static inline Codes load(const int8_t *codes) { return load_bytes(codes); }
};

// R rows and M tokens at once; `scales` [R, blocks] of the rows, or of their products with the one token's.
template <class Weights, int R, int M, bool Ready = false>
inline void tile(const typename Weights::Code *w, const float *scales, long blocks, const Int8Rows &x, float *y,
                 long ldy) {
    const long k = blocks * kBlock;
    __m256 acc[R][M];
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) acc[r][m] = _mm256_setzero_ps();
    for (long b = 0; b < blocks; ++b)
        GOSSAMER_UNROLL
        for (int r = 0; r < R; ++r) {
            const typename Weights::Code *place = w + (r * blocks + b) * Weights::kBytes;
            const Codes codes = Weights::load(place);
            // One token is a matter of memory alone: the rows after these are called for while these are used.
            if (Ready) simd::prefetch(place + R * blocks * Weights::kBytes);
            const __m256 row_scale = _mm256_broadcast_ss(scales + r * blocks + b);
            GOSSAMER_UNROLL
            for (int m = 0; m < M; ++m) {
                const __m256i sum = dot(codes, x.codes + m * k + b * kBlock);
                const __m256 scale =
                    Ready ? row_scale : _mm256_mul_ps(row_scale, _mm256_broadcast_ss(x.scales + m * blocks + b));
                acc[r][m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), scale, acc[r][m]);
            }
        }
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) y[m * ldy + r] = simd::sum(acc[r][m]);
}

#else

struct Packed {
    static constexpr long kBytes = kBlock / 2;
    using Code = uint8_t;
    static inline int32_t dot(const uint8_t *w, const int8_t *x) {
        static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        int32_t sum = 0;
        for (int i = 0; i < kBlock / 2; ++i) sum += values[w[i] & 15] * x[i] + values[w[i] >> 4] * x[kBlock / 2 + i];
        return sum;
    }
};

struct Whole {
    static constexpr long kBytes = kBlock;
    using Code = int8_t;
    static inline int32_t dot(const int8_t *w, const int8_t *x) {
        int32_t sum = 0;
        for (int i = 0; i < kBlock; ++i) sum += w[i] * x[i];
        return sum;
    }
};

template <class Weights, int R, int M, bool Ready = false>
inline void tile(const typename Weights::Code *w, const float *scales, long blocks, const Int8Rows &x, float *y,
                 long ldy) {
    const long k = blocks * kBlock;
    for (int r = 0; r < R; ++r)
        for (int m = 0; m < M; ++m) {
            float total = 0.0f;
            for (long b = 0; b < blocks; ++b) {
                const int32_t sum = Weights::dot(w + (r * blocks + b) * Weights::kBytes, x.codes + m * k + b * kBlock);
                const float scale = scales[r * blocks + b] * (Ready ? 1.0f : x.scales[m * blocks + b]);
                total += static_cast<float>(sum) * scale;
            }
            y[m * ldy + r] = total;
        }
}

#endif

template <class Weights, int R, int M>
inline long tokens_of(const typename Weights::Code *w, const float *scales, long blocks, const Int8Rows &x,
                      long first, long tokens, float *y, long ldy) {
    const long k = blocks * kBlock;
    for (; first + M <= tokens; first += M)
        tile<Weights, R, M>(w, scales, blocks, {x.codes + first * k, x.scales + first * blocks}, y + first * ldy, ldy);
    return first;
}

template <class Weights, int R>
inline void rows_of(const typename Weights::Code *w, const float *scales, long blocks, const Int8Rows &x, long tokens,
                    float *y, long ldy) {
    // Two rows and four tokens fill the registers.
    const long code = blocks * Weights::kBytes;
    long m = 0;
    for (int r = 0; r < R && tokens >= 4; r += 2)
        m = tokens_of<Weights, 2, 4>(w + r * code, scales + r * blocks, blocks, x, 0, tokens, y + r, ldy);
    m = tokens_of<Weights, R, 2>(w, scales, blocks, x, m, tokens, y, ldy);
    tokens_of<Weights, R, 1>(w, scales, blocks, x, m, tokens, y, ldy);
}

template <class Weights, class Scale>
void multiply(const typename Weights::Code *codes, long cols, const Int8Rows &x, long tokens, float *y, long ldy,
              long begin, long end, std::vector<float> &scratch, const Scale &scale_at) {
    const long blocks = cols / kBlock;
    if (scratch.size() < static_cast<size_t>(kRows * blocks)) scratch.resize(kRows * blocks);
    for (long n = begin; n < end; n += kRows) {
        const long some = std::min<long>(kRows, end - n);
        for (long i = 0; i < some * blocks; ++i) scratch[i] = scale_at(n * blocks + i);
        const typename Weights::Code *w = codes + n * blocks * Weights::kBytes;
        if (tokens == 1 && some == kRows) {
            for (int r = 0; r < kRows; ++r)
                for (long b = 0; b < blocks; ++b) scratch[r * blocks + b] *= x.scales[b];
            tile<Weights, kRows, 1, true>(w, scratch.data(), blocks, x, y + n, ldy);
            continue;
        }
        if (some == kRows) {
            rows_of<Weights, kRows>(w, scratch.data(), blocks, x, tokens, y + n, ldy);
            continue;
        }
        for (long r = 0; r < some; ++r)
            tokens_of<Weights, 1, 1>(w + r * blocks * Weights::kBytes, scratch.data() + r * blocks, blocks, x, 0,
                                     tokens, y + n + r, ldy);
    }
}

}  // namespace

void to_int8(const float *x, long tokens, long ldx, long cols, int8_t *codes, float *scales, bool mx_order) {
    for (long m = 0; m < tokens; ++m)
        for (long at = 0; at < cols; at += kBlock) {
            const float *from = x + m * ldx + at, peak = largest(from);
            const float inverse = peak >= kSmallest && peak <= kLargest ? 127.0f / peak : 0.0f;
            int8_t *to = codes + m * cols + at;
            scales[(m * cols + at) / kBlock] = peak / 127.0f;
            if (!mx_order) {
                for (int i = 0; i < kBlock; ++i) to[i] = nearest(from[i], inverse);
                continue;
            }
            for (int i = 0; i < kBlock / 2; ++i) {
                to[i] = nearest(from[2 * i], inverse);
                to[kBlock / 2 + i] = nearest(from[2 * i + 1], inverse);
            }
        }
}

void weights_to_int8(const float *w, long cols, int8_t *codes, uint16_t *scales) {
    for (long at = 0; at < cols; at += kBlock) {
        const float peak = largest(w + at), scale = peak / 127.0f;
        uint16_t rounded = simd::to_bf16(scale);
        // Down would let the largest weight leave the range.
        if (simd::value(rounded) < scale) ++rounded;
        const float step = simd::value(rounded), inverse = step >= kSmallest && step <= kLargest ? 1.0f / step : 0.0f;
        for (int i = 0; i < kBlock; ++i) codes[at + i] = nearest(w[at + i], inverse);
        scales[at / kBlock] = rounded;
    }
}

void multiply_mxfp4_int8(const uint8_t *codes, const uint8_t *scales, long cols, const Int8Rows &x, long tokens,
                         float *y, long ldy, long row_begin, long row_end, std::vector<float> &scratch) {
    multiply<Packed>(codes, cols, x, tokens, y, ldy, row_begin, row_end, scratch,
                     [scales](long i) { return 0.5f * mx::e8m0(scales[i]); });
}

void multiply_int8(const int8_t *codes, const uint16_t *scales, long cols, const Int8Rows &x, long tokens, float *y,
                   long ldy, long row_begin, long row_end, std::vector<float> &scratch) {
    multiply<Whole>(codes, cols, x, tokens, y, ldy, row_begin, row_end, scratch,
                    [scales](long i) { return simd::value(scales[i]); });
}
