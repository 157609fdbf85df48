// Matrix products on small packed operands, for kernels that keep their blocks in cache.
//
// The right operand is packed into panels of NR columns: panel j holds columns j NR .. j NR + NR - 1, one row of
// NR floats after the other, padded with zeros.  The left operand and the result are plain row-major.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "train/lanes.h"

namespace panels {

constexpr int VW = kVectorLanes, MR = VW == 16 ? 12 : 6;
constexpr int NR = 2 * VW;

typedef float vec __attribute__((vector_size(4 * VW)));
typedef int32_t ivec __attribute__((vector_size(4 * VW)));
typedef float loose_vec __attribute__((vector_size(4 * VW), aligned(4), may_alias));
typedef int32_t loose_ivec __attribute__((vector_size(4 * VW), aligned(4), may_alias));

inline vec load(const float *p) { return *(const loose_vec *)p; }
inline void store(float *p, vec v) { *(loose_vec *)p = v; }

inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

inline float sum(vec v) {
    float total = 0.0f;
    for (int i = 0; i < VW; ++i) total += v[i];
    return total;
}

inline float largest(vec v) {
    float best = v[0];
    for (int i = 1; i < VW; ++i) best = std::max(best, v[i]);
    return best;
}

// e^x for x <= 0 (and up to about 80); below -87 the result is 0.  Relative error about 1e-7: the argument is
// reduced by multiples of ln 2 held in two parts, the rest is the Taylor polynomial of degree 7 on |r| <= ln 2 / 2.
inline vec exp(vec x) {
    const ivec alive = x > -87.0f;
    x = alive ? x : vec{} - 87.0f;
    const vec magic = vec{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const vec shifted = x * 1.44269504088896f + magic;
    const vec n = shifted - magic;
    vec r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vec y = vec{} + 1.0f / 5040.0f;
    y = y * r + 1.0f / 720.0f;
    y = y * r + 1.0f / 120.0f;
    y = y * r + 1.0f / 24.0f;
    y = y * r + 1.0f / 6.0f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    const ivec power = ((ivec)shifted << 23) + (ivec)(vec{} + 1.0f);  // the integer sits in the low mantissa bits
    y = y * (vec)power;
    return alive ? y : vec{};
}

// Bits j .. j + VW - 1 of a bit row (bit b of byte i is column 8 i + b), as all-ones or zero lanes.
inline ivec lanes(const uint8_t *row, int j) {
#if defined(GOSSAMER_AVX512)
    const int bits = row[j >> 3] | row[(j >> 3) + 1] << 8;
    const ivec bit = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
#elif defined(__AVX2__)
    const int bits = row[j >> 3];
    const ivec bit = {1, 2, 4, 8, 16, 32, 64, 128};
#else
    const int bits = row[j >> 3] >> (j & 4);
    const ivec bit = {1, 2, 4, 8};
#endif
    return ((ivec{} + bits) & bit) != 0;
}

// The inverse: writes the bits j .. j + VW - 1 of a bit row; with four lanes the lower half of a byte comes first.
inline void put_lanes(ivec chosen, uint8_t *row, int j) {
#if defined(GOSSAMER_AVX512)
    const uint32_t bits = _mm512_cmplt_epi32_mask((__m512i)chosen, _mm512_setzero_si512());
    row[j >> 3] = (uint8_t)bits;
    row[(j >> 3) + 1] = (uint8_t)(bits >> 8);
#elif defined(__AVX2__)
    row[j >> 3] = (uint8_t)_mm256_movemask_ps((__m256)chosen);
#else
    const int bits = (chosen[0] & 1) | (chosen[1] & 2) | (chosen[2] & 4) | (chosen[3] & 8);
    row[j >> 3] = (uint8_t)((j & 4) != 0 ? row[j >> 3] | bits << 4 : bits);
#endif
}

// Columns of src [rows, cols] (row stride ld) become columns at.. of a packed operand with `rows` rows.
inline void pack(int rows, int cols, const float *src, size_t ld, float scale, float *dst, int at) {
    for (int c = 0; c < cols;) {
        const int inside = (at + c) % NR, run = std::min(NR - inside, cols - c);
        float *panel = dst + (size_t)((at + c) / NR) * rows * NR + inside;
        for (int r = 0; r < rows; ++r) {
            const float *from = src + r * ld + c;
            for (int i = 0; i < run; ++i) panel[(size_t)r * NR + i] = from[i] * scale;
        }
        c += run;
    }
}

// Zeros in the columns cols.. of the last panel.
inline void pad_columns(int rows, int cols, float *dst) {
    const int inside = cols % NR;
    if (inside == 0) return;
    float *panel = dst + (size_t)(cols / NR) * rows * NR;
    for (int r = 0; r < rows; ++r) std::memset(panel + (size_t)r * NR + inside, 0, (NR - inside) * sizeof(float));
}

// src [rows, cols] transposed: its rows become the columns of a packed operand of `depth` rows, of which these
// are number at ..; the columns beyond `rows` are zero.
inline void pack_transposed(int rows, int cols, const float *src, size_t ld, float scale, float *dst, int depth,
                            int at) {
    for (int r0 = 0; r0 < rows; r0 += NR) {
        float *panel = dst + (size_t)r0 * depth + (size_t)at * NR;
        const int n = std::min(NR, rows - r0);
        for (int c = 0; c < cols; ++c) {
            const float *from = src + (size_t)r0 * ld + c;
            float *to = panel + (size_t)c * NR;
            for (int r = 0; r < n; ++r) to[r] = from[r * ld] * scale;
            for (int r = n; r < NR; ++r) to[r] = 0.0f;
        }
    }
}

template <int M, bool TransA>
inline void tile(int k, const float *a, size_t lda, const float *b, float *c, size_t ldc, bool accumulate) {
    vec sums[M][2];
#pragma GCC unroll 12
    for (int i = 0; i < M; ++i) sums[i][0] = sums[i][1] = vec{};
    for (int p = 0; p < k; ++p) {
        const vec left = *(const vec *)(b + (size_t)p * NR), right = *(const vec *)(b + (size_t)p * NR + VW);
#pragma GCC unroll 12
        for (int i = 0; i < M; ++i) {
            const float x = TransA ? a[p * lda + i] : a[i * lda + p];
            sums[i][0] += x * left;
            sums[i][1] += x * right;
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < M; ++i) {
        float *to = c + i * ldc;
        store(to, accumulate ? load(to) + sums[i][0] : sums[i][0]);
        store(to + VW, accumulate ? load(to + VW) + sums[i][1] : sums[i][1]);
    }
}

template <int M, bool TransA>
inline void any_tile(int m, int k, const float *a, size_t lda, const float *b, float *c, size_t ldc,
                     bool accumulate) {
    if (m == M) {
        tile<M, TransA>(k, a, lda, b, c, ldc, accumulate);
    } else if constexpr (M > 1) {
        any_tile<M - 1, TransA>(m, k, a, lda, b, c, ldc, accumulate);
    }
}

// What a causal block leaves out.  With query number i + shift on the same scale as key number j, key j is seen
// by query i when j <= i + shift.
enum class Cut {
    none,
    columns,  // rows are queries, columns are keys: tiles wholly in the future are not written
    end,      // rows are queries, the sum runs over keys: it stops at the tile's last query
    begin,    // rows are keys, the sum runs over queries: it starts at the tile's first key
};

// C[m, n up to NR] (+)= A B, B packed with panels `stride` floats apart.  A is [m, k], or [k, m] when TransA.
// C needs room for n rounded up to NR columns.
template <bool TransA, Cut cut = Cut::none>
inline void product(int m, int n, int k, const float *a, size_t lda, const float *b, size_t stride, float *c,
                    size_t ldc, bool accumulate, int shift = 0) {
    for (int j = 0; j < n; j += NR) {
        const float *panel = b + (size_t)(j / NR) * stride;
        for (int i = 0; i < m; i += MR) {
            const int rows = std::min(MR, m - i);
            int from = 0, to = k;
            if (cut == Cut::columns && j > i + rows - 1 + shift) continue;
            if (cut == Cut::end) to = std::max(0, std::min(k, i + rows + shift));
            if (cut == Cut::begin) from = std::min(k, std::max(0, i - shift));
            const float *left = TransA ? a + (size_t)from * lda + i : a + (size_t)i * lda + from;
            any_tile<MR, TransA>(rows, to - from, left, lda, panel + (size_t)from * NR, c + (size_t)i * ldc + j,
                                 ldc, accumulate);
        }
    }
}

// Scratch memory that only grows, aligned to 64 bytes; keep one per thread.
class Scratch {
  public:
    ~Scratch() { ::operator delete(data_, std::align_val_t(64)); }
    float *get(size_t floats) {
        if (floats > size_) {
            ::operator delete(data_, std::align_val_t(64));
            data_ = nullptr;
            size_ = 0;
            data_ = (float *)::operator new(floats * sizeof(float), std::align_val_t(64));
            size_ = floats;
        }
        return data_;
    }

  private:
    float *data_ = nullptr;
    size_t size_ = 0;
};

// Hands out 64-byte aligned pieces of one allocation.
class Pieces {
  public:
    explicit Pieces(float *base) : next_(base) {}
    float *take(size_t floats) {
        float *piece = next_;
        next_ += round_up(floats, 16);
        return piece;
    }

  private:
    float *next_;
};

}  // namespace panels
