#include "infer/matrix.h"

#include <algorithm>

#include "infer/bf16.h"
#include "infer/simd.h"
#include "infer/tiles.h"
#include "mx/bits.h"

namespace {

using simd::F;
using simd::kLanes;

constexpr int kBlock = 32;
// Tokens that stay in the second cache level while all rows of a task pass over them.
constexpr long kTileTokens = 96;
// Rows that are decoded at a time; a multiple of 8.
constexpr long kTileRows = 8;
// From so many tokens on rows are worth decoding into memory first.
constexpr long kMany = 25;

using tiles::rows_of;
using tiles::tile;

template <class W>
void some_dots(const W *rows, long ldw, long count, const float *x, long tokens, long ldx, long k, float *y,
               long ldy) {
    long r = 0;
    for (; r + 4 <= count; r += 4) rows_of<4>(rows + r * ldw, ldw, x, tokens, ldx, k, y + r, ldy);
    for (; r < count; ++r) rows_of<1>(rows + r * ldw, ldw, x, tokens, ldx, k, y + r, ldy);
}

// V vectors of columns of M tokens at once.
template <int V, int M, class W>
inline void transposed_tile(const W *w, long ldw, long rows, const float *x, long ldx, float *y, long ldy) {
    F acc[M][V];
    GOSSAMER_UNROLL
    for (int m = 0; m < M; ++m)
        GOSSAMER_UNROLL
        for (int v = 0; v < V; ++v) acc[m][v] = simd::zero();
    for (long n = 0; n < rows; ++n) {
        F ws[V];
        GOSSAMER_UNROLL
        for (int v = 0; v < V; ++v) ws[v] = simd::load(w + n * ldw + v * kLanes);
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) {
            const F xs = simd::all(x[m * ldx + n]);
            GOSSAMER_UNROLL
            for (int v = 0; v < V; ++v) acc[m][v] = simd::fma(xs, ws[v], acc[m][v]);
        }
    }
    GOSSAMER_UNROLL
    for (int m = 0; m < M; ++m)
        GOSSAMER_UNROLL
        for (int v = 0; v < V; ++v) simd::store(y + m * ldy + v * kLanes, acc[m][v]);
}

template <int M, class W>
void transposed_tokens(const W *w, long k, long rows, const float *x, long ldx, float *y, long ldy) {
    long c = 0;
    for (; c + 4 * kLanes <= k; c += 4 * kLanes) transposed_tile<4, M>(w + c, k, rows, x, ldx, y + c, ldy);
    for (; c + kLanes <= k; c += kLanes) transposed_tile<1, M>(w + c, k, rows, x, ldx, y + c, ldy);
    for (; c < k; ++c)
        for (int m = 0; m < M; ++m) {
            float total = 0;
            for (long n = 0; n < rows; ++n) total = __builtin_fmaf(x[m * ldx + n], simd::value(w[n * k + c]), total);
            y[m * ldy + c] = total;
        }
}

template <class W>
void transposed(const W *w, long k, long rows, const float *x, long tokens, long ldx, float *y, long ldy) {
    long m = 0;
    for (; m + 2 <= tokens; m += 2) transposed_tokens<2>(w, k, rows, x + m * ldx, ldx, y + m * ldy, ldy);
    if (m < tokens) transposed_tokens<1>(w, k, rows, x + m * ldx, ldx, y + m * ldy, ldy);
}

// Few tokens: the rows are read as they are stored.
template <class W>
void few(const W *w, long k, const float *x, long tokens, long ldx, float *y, long ldy, long begin, long end) {
    long r = begin;
    if (tokens == 1)
        for (; r + 8 <= end; r += 8) tile<8, 1>(w + r * k, k, x, ldx, k, y + r, ldy);
    for (; r + 4 <= end; r += 4) rows_of<4>(w + r * k, k, x, tokens, ldx, k, y + r, ldy);
    for (; r < end; ++r) rows_of<1>(w + r * k, k, x, tokens, ldx, k, y + r, ldy);
}

// The next place on a cache line; there are 15 floats to spare.
inline float *aligned(float *p) {
    return reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(p) + 63) & ~static_cast<uintptr_t>(63));
}

#if defined(__AVX2__)

// The 32 values of one block as vectors, in MX order.
struct Decoded {
    __m256 v[4];
};

inline Decoded decode_block(const uint8_t *codes, float scale) {
    // The upper and the lower byte of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives in BF16.
    const __m128i upper16 = _mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, (char)0x80, (char)0xbf,
                                          (char)0xbf, (char)0xbf, (char)0xc0, (char)0xc0, (char)0xc0, (char)0xc0);
    const __m128i lower16 = _mm_setr_epi8(0, 0, (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0, 0, 0,
                                          (char)0x80, (char)0xc0, 0, 0x40, (char)0x80, (char)0xc0);
    const __m256i upper_table = _mm256_broadcastsi128_si256(upper16);
    const __m256i lower_table = _mm256_broadcastsi128_si256(lower16);
    const __m256i index = mx::unpacked(codes);
    const __m256i upper = _mm256_shuffle_epi8(upper_table, index);
    const __m256i lower = _mm256_shuffle_epi8(lower_table, index);
    const __m256i first = _mm256_unpacklo_epi8(lower, upper), second = _mm256_unpackhi_epi8(lower, upper);
    const __m256i zero = _mm256_setzero_si256();
    const __m256 s = _mm256_set1_ps(scale);
    Decoded out;
    out.v[0] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, first)), s);
    out.v[1] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, first)), s);
    out.v[2] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, second)), s);
    out.v[3] = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, second)), s);
    return out;
}

inline void decode_to(const uint8_t *codes, float scale, float *out) {
    const Decoded d = decode_block(codes, scale);
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(out + 8 * i, d.v[i]);
}

#else

inline void decode_to(const uint8_t *codes, float scale, float *out) {
    static const float values[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
    for (int group = 0; group < kBlock; group += 8)
        for (int i = 0; i < 4; ++i) {
            const uint8_t byte = codes[group / 2 + i];
            out[group + i] = values[byte & 15] * scale;
            out[group + 4 + i] = values[byte >> 4] * scale;
        }
}

#endif

#if defined(__AVX2__) && !defined(GOSSAMER_AVX512)

// Decoded values go straight into the sums: R rows and M tokens at once.
template <int R, int M>
inline void fused(const uint8_t *codes, const uint8_t *scales, long k, const float *x, long ldx, float *y, long ldy) {
    __m256 acc[R][M];
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) acc[r][m] = _mm256_setzero_ps();
    for (long b = 0; b < k / kBlock; ++b)
        GOSSAMER_UNROLL
        for (int r = 0; r < R; ++r) {
            const Decoded d =
                decode_block(codes + r * (k / 2) + b * (kBlock / 2), mx::e8m0(scales[r * (k / kBlock) + b]));
            GOSSAMER_UNROLL
            for (int m = 0; m < M; ++m)
                GOSSAMER_UNROLL
                for (int i = 0; i < 4; ++i)
                    acc[r][m] = _mm256_fmadd_ps(d.v[i], _mm256_loadu_ps(x + m * ldx + b * kBlock + 8 * i), acc[r][m]);
        }
    GOSSAMER_UNROLL
    for (int r = 0; r < R; ++r)
        GOSSAMER_UNROLL
        for (int m = 0; m < M; ++m) y[m * ldy + r] = simd::sum(acc[r][m]);
}

template <int R>
void fused_rows(const uint8_t *codes, const uint8_t *scales, long k, const float *x, long tokens, long ldx, float *y,
                long ldy) {
    long m = 0;
    for (; m + 2 <= tokens; m += 2) fused<R, 2>(codes, scales, k, x + m * ldx, ldx, y + m * ldy, ldy);
    if (m < tokens) fused<R, 1>(codes, scales, k, x + m * ldx, ldx, y + m * ldy, ldy);
}

// As many tokens as are cheaper with rows decoded once for each two of them than with rows decoded into memory.
constexpr long kFusedTokens = 2;

void packed_few(const Matrix &w, const float *x, long tokens, long ldx, float *y, long ldy, long begin, long end) {
    const long k = w.cols, code = k / 2, scale = k / kBlock;
    const uint8_t *codes = static_cast<const uint8_t *>(w.data), *scales = static_cast<const uint8_t *>(w.scales);
    long r = begin;
    for (; r + 4 <= end; r += 4)
        fused_rows<4>(codes + r * code, scales + r * scale, k, x, tokens, ldx, y + r, ldy);
    for (; r < end; ++r) fused_rows<1>(codes + r * code, scales + r * scale, k, x, tokens, ldx, y + r, ldy);
}

#else

constexpr long kFusedTokens = 0;

void packed_few(const Matrix &, const float *, long, long, float *, long, long, long) {}

#endif

// Many tokens: eight rows at a time become float32 and all tokens pass over them.
void many(const Matrix &w, const float *x, long tokens, long ldx, float *y, long ldy, long begin, long end,
          std::vector<float> &scratch) {
    const long k = w.cols, stride = (k + 15) / 16 * 16, acc = kTileRows * kLanes * std::min(tokens, kTileTokens);
    if (scratch.size() < static_cast<size_t>(kTileRows * stride + acc + 16))
        scratch.resize(kTileRows * stride + acc + 16);
    float *sums = aligned(scratch.data()), *rows = sums + acc;
    for (long first = 0; first < tokens; first += kTileTokens) {
        const long some = std::min(kTileTokens, tokens - first);
        const float *xs = x + first * ldx;
        float *ys = y + first * ldy;
        for (long r = begin; r < end; r += kTileRows) {
            const long count = std::min(kTileRows, end - r);
            for (long i = 0; i < count; ++i) decode(w, r + i, r + i + 1, rows + i * stride);
            if (count == kTileRows) {
                tiles::panel<2, 4>(rows, stride, xs, some, ldx, k, ys + r, ldy, sums);
                continue;
            }
            for (long i = 0; i < count; ++i)
                tiles::panel<1, 1>(rows + i * stride, stride, xs, some, ldx, k, ys + r + i, ldy, sums);
        }
    }
}

}  // namespace

void to_mx_order(const float *x, float *y, long tokens, long cols) {
    for (long at = 0; at < tokens * cols; at += 8) {
        float group[8];
        std::memcpy(group, x + at, sizeof group);
        for (int i = 0; i < 4; ++i) {
            y[at + i] = group[2 * i];
            y[at + 4 + i] = group[2 * i + 1];
        }
    }
}

void decode(const Matrix &w, long begin, long end, float *out) {
    for (long r = begin; r < end; ++r) {
        float *row = out + (r - begin) * w.cols;
        if (w.kind == Kind::kF32) {
            std::memcpy(row, static_cast<const float *>(w.data) + r * w.cols, w.cols * sizeof(float));
        } else if (w.kind == Kind::kBF16) {
            const uint16_t *from = static_cast<const uint16_t *>(w.data) + r * w.cols;
            for (long i = 0; i < w.cols; ++i) row[i] = simd::value(from[i]);
        } else {
            const uint8_t *codes = static_cast<const uint8_t *>(w.data) + r * (w.cols / 2);
            const uint8_t *scales = static_cast<const uint8_t *>(w.scales) + r * (w.cols / kBlock);
            for (long b = 0; b < w.cols / kBlock; ++b)
                decode_to(codes + b * (kBlock / 2), mx::e8m0(scales[b]), row + b * kBlock);
        }
    }
}

void multiply(const Matrix &w, const Rows &x, long tokens, float *y, long ldy, long begin, long end,
              std::vector<float> &scratch) {
    if (x.int8.codes && w.kind == Kind::kMXFP4)
        return multiply_mxfp4_int8(static_cast<const uint8_t *>(w.data), static_cast<const uint8_t *>(w.scales),
                                   w.cols, x.int8, tokens, y, ldy, begin, end, scratch);
    if (w.kind == Kind::kInt8)
        return multiply_int8(static_cast<const int8_t *>(w.data), static_cast<const uint16_t *>(w.scales), w.cols,
                             x.int8, tokens, y, ldy, begin, end, scratch);
    if (x.half && w.half_inputs && w.kind == Kind::kBF16)
        return multiply_bf16(static_cast<const uint16_t *>(w.data), w.cols, x.half, tokens, y, ldy, begin, end);
    if (x.half && w.half_inputs && w.kind == Kind::kMXFP4)
        return multiply_mxfp4_bf16(static_cast<const uint8_t *>(w.data), static_cast<const uint8_t *>(w.scales),
                                   w.cols, x.half, tokens, y, ldy, begin, end, scratch);
    const long own = w.kind == Kind::kMXFP4 ? kFusedTokens : kMany - 1;
    if (tokens > own) return many(w, x.values, tokens, x.ld, y, ldy, begin, end, scratch);
    if (w.kind == Kind::kMXFP4) return packed_few(w, x.values, tokens, x.ld, y, ldy, begin, end);
    if (w.kind == Kind::kBF16)
        return few(static_cast<const uint16_t *>(w.data), w.cols, x.values, tokens, x.ld, y, ldy, begin, end);
    few(static_cast<const float *>(w.data), w.cols, x.values, tokens, x.ld, y, ldy, begin, end);
}

void dots(const uint16_t *rows, long ldw, long count, const float *x, long tokens, long ldx, long k, float *y,
          long ldy) {
    some_dots(rows, ldw, count, x, tokens, ldx, k, y, ldy);
}

void dots(const float *rows, long ldw, long count, const float *x, long tokens, long ldx, long k, float *y,
          long ldy) {
    some_dots(rows, ldw, count, x, tokens, ldx, k, y, ldy);
}

void multiply_transposed(const Matrix &w, const float *x, long tokens, long ldx, float *y, long ldy, long begin,
                         long end) {
    const long k = w.cols, rows = end - begin;
    if (w.kind == Kind::kBF16)
        transposed(static_cast<const uint16_t *>(w.data) + begin * k, k, rows, x, tokens, ldx, y, ldy);
    else
        transposed(static_cast<const float *>(w.data) + begin * k, k, rows, x, tokens, ldx, y, ldy);
}
