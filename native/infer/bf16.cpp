#include "infer/bf16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "infer/simd.h"
#include "mx/bits.h"

namespace {

inline uint16_t rounded(float x) {
    const uint16_t sign = static_cast<uint16_t>(mx::to_bits(x) >> 16 & 0x8000u);
    return std::fabs(x) < 1.17549435e-38f ? sign : simd::to_bf16(x);
}

}  // namespace

void round_to_bf16(const float *x, long tokens, long ldx, long cols, uint16_t *out) {
    for (long m = 0; m < tokens; ++m)
        for (long i = 0; i < cols; ++i) out[m * cols + i] = rounded(x[m * ldx + i]);
}

void round_to_bf16(const float *x, long tokens, long ldx, long cols, float *out) {
    for (long m = 0; m < tokens; ++m)
        for (long i = 0; i < cols; ++i) out[m * cols + i] = simd::value(rounded(x[m * ldx + i]));
}

#if defined(GOSSAMER_BF16)

namespace {

constexpr long kStep = 32;
// Rows of MXFP4 that are decoded at a time where many tokens share them.
constexpr long kRows = 8;
// From so many tokens on they are worth decoding into memory first.
constexpr long kMany = 6;

#if defined(GOSSAMER_EMULATE)
using Pairs = __m512i;
#else
using Pairs = __m512bh;
#endif
inline __m512 add_dots(__m512 sums, __m512i a, __m512i b) { return _mm512_dpbf16_ps(sums, (Pairs)a, (Pairs)b); }

// Rows of BF16, in memory.
struct Stored {
    const uint16_t *at;
    long ld;
    inline __m512i load(int r, long column, uint32_t mask) const {
        return _mm512_maskz_loadu_epi16(mask, at + r * ld + column);
    }
    inline __m512i load(int r, long column) const { return _mm512_loadu_si512(at + r * ld + column); }
    inline const void *next(int rows, int r, long column) const { return at + (r + rows) * ld + column; }
};

inline float value_of(int code) {
    static const float values[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
    return values[code];
}

// A block whose scale leads out of the normal numbers.  A value times its scale has two bits of mantissa at most, so
// that the upper half of its float32 is all of it.
void decode_far(const uint8_t *codes, float scale, uint16_t *out) {
    for (int group = 0; group < kStep; group += 8)
        for (int i = 0; i < 4; ++i) {
            const uint8_t byte = codes[group / 2 + i];
            out[group + i] = static_cast<uint16_t>(mx::to_bits(value_of(byte & 15) * scale) >> 16);
            out[group + 4 + i] = static_cast<uint16_t>(mx::to_bits(value_of(byte >> 4) * scale) >> 16);
        }
}

// A block of MXFP4 as BF16 in MX order: the codes choose from a table whose exponents are the scaled ones.
inline __m512i decode_block(const uint8_t *codes, uint8_t scale) {
    alignas(64) static const uint16_t values[32] = {
        0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
        0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0,      0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
        0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    alignas(64) static const int64_t down[8] = {0, 4, 0, 4, 0, 4, 0, 4};
    if (scale < 2 || scale > 252) {
        alignas(64) uint16_t out[kStep];
        decode_far(codes, mx::e8m0(scale), out);
        return _mm512_loadu_si512(out);
    }
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes)));
    const __m256i spread = _mm256_permutevar8x32_epi32(both, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
    // A number of a lane is five bits; the fifth, which belongs to another code, chooses the same value again.
    const __m512i index = _mm512_srlv_epi64(_mm512_cvtepu8_epi16(spread), _mm512_loadu_si512(down));
    const __m512i plain = _mm512_loadu_si512(values);
    const __m512i shift = _mm512_set1_epi16(static_cast<short>((scale - 127) * 128));
    return _mm512_permutexvar_epi16(index, _mm512_mask_add_epi16(plain, 0xfefefefeu, plain, shift));
}

// Rows of MXFP4, in memory; whole blocks.
struct Packed {
    const uint8_t *codes, *scales;
    long cols;
    inline __m512i load(int r, long column) const {
        return decode_block(codes + (r * cols + column) / 2, scales[(r * cols + column) / kStep]);
    }
    inline __m512i load(int r, long column, uint32_t) const { return load(r, column); }
    inline const void *next(int rows, int r, long column) const { return codes + ((r + rows) * cols + column) / 2; }
};

// R rows and M tokens at once.
template <int R, int M, class Weights>
inline void tile(const Weights &w, const uint16_t *x, long k, float *y, long ldy) {
    __m512 acc[R][M];
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) acc[r][m] = _mm512_setzero_ps();
    long i = 0;
    for (; i + kStep <= k; i += kStep) {
        __m512i xs[M];
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) xs[m] = _mm512_loadu_si512(x + m * k + i);
        GOSSAMER_UNROLL
        for (int r = 0; r < R; ++r) {
            const __m512i ws = w.load(r, i);
            // One token is a matter of memory alone: the rows after these are called for while these are used.
            if (M == 1) simd::prefetch(w.next(R, r, i));
            GOSSAMER_UNROLL
            for (int m = 0; m < M; ++m) acc[r][m] = add_dots(acc[r][m], ws, xs[m]);
        }
    }
    if (i < k) {
        const uint32_t mask = (1u << (k - i)) - 1;
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) {
            const __m512i xs = _mm512_maskz_loadu_epi16(mask, x + m * k + i);
            GOSSAMER_UNROLL
            for (int r = 0; r < R; ++r) acc[r][m] = add_dots(acc[r][m], w.load(r, i, mask), xs);
        }
    }
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) y[m * ldy + r] = simd::sum(acc[r][m]);
}

template <int R, class Weights>
inline void rows_of(const Weights &w, const uint16_t *x, long tokens, long k, float *y, long ldy) {
    long m = 0;
    // Four rows and six tokens fill the registers.
    for (; m + 6 <= tokens; m += 6) tile<R, 6>(w, x + m * k, k, y + m * ldy, ldy);
    for (; m + 2 <= tokens; m += 2) tile<R, 2>(w, x + m * k, k, y + m * ldy, ldy);
    if (m < tokens) tile<R, 1>(w, x + m * k, k, y + m * ldy, ldy);
}

// `at(r)` gives the rows from r on.
template <class At>
void multiply(const At &at, long k, const uint16_t *x, long tokens, float *y, long ldy, long begin, long end) {
    long r = begin;
    for (; r + 4 <= end; r += 4) rows_of<4>(at(r), x, tokens, k, y + r, ldy);
    for (; r < end; ++r) rows_of<1>(at(r), x, tokens, k, y + r, ldy);
}

}  // namespace

void multiply_bf16(const uint16_t *w, long cols, const uint16_t *x, long tokens, float *y, long ldy, long begin,
                   long end) {
    multiply([&](long r) { return Stored{w + r * cols, cols}; }, cols, x, tokens, y, ldy, begin, end);
}

void multiply_mxfp4_bf16(const uint8_t *codes, const uint8_t *scales, long cols, const uint16_t *x, long tokens,
                         float *y, long ldy, long begin, long end, std::vector<float> &scratch) {
    if (tokens < kMany) {
        const auto at = [&](long r) { return Packed{codes + r * (cols / 2), scales + r * (cols / kStep), cols}; };
        return multiply(at, cols, x, tokens, y, ldy, begin, end);
    }
    if (scratch.size() < static_cast<size_t>(kRows * cols / 2)) scratch.resize(kRows * cols / 2);
    for (long r = begin; r < end; r += kRows) {
        const long some = std::min(kRows, end - r);
        char *rows = reinterpret_cast<char *>(scratch.data());
        for (long at = 0; at < some * cols; at += kStep) {
            const __m512i block = decode_block(codes + (r * cols + at) / 2, scales[(r * cols + at) / kStep]);
            std::memcpy(rows + 2 * at, &block, sizeof block);
        }
        const auto at = [&](long i) { return Stored{reinterpret_cast<const uint16_t *>(rows) + i * cols, cols}; };
        multiply(at, cols, x, tokens, y + r, ldy, 0, some);
    }
}

#else

void multiply_bf16(const uint16_t *, long, const uint16_t *, long, float *, long, long, long) {
    throw std::logic_error("this build multiplies float32");
}

void multiply_mxfp4_bf16(const uint8_t *, const uint8_t *, long, const uint16_t *, long, float *, long, long, long,
                         std::vector<float> &) {
    throw std::logic_error("this build multiplies float32");
}

#endif
