// Products of matrices that fit the first-level cache, for the KDA kernel.
#pragma once
#include <cstddef>

#include "train/lanes.h"

namespace kda {

constexpr int LANES = kVectorLanes, ROWS = LANES == 16 ? 16 : LANES / 2;
constexpr int VECTORS = 16 / LANES;  // a register tile is ROWS x 16
typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// C[m,n] = A B, or FROM + A B when from, laid out as C, is given (it may be C itself).  A's element (i, p) is
// a[i * row + p * column]; m and n are multiples of 16.
template <bool ADD>
inline void product(int m, int n, int k, const float *a, ptrdiff_t row, ptrdiff_t column, const float *b,
                    ptrdiff_t ldb, float *c, ptrdiff_t ldc, const float *from) {
    for (int j = 0; j < n; j += 16) {
        for (int i = 0; i < m; i += ROWS) {
            Vector sum[ROWS][VECTORS];
            for (int r = 0; r < ROWS; ++r) {
                for (int v = 0; v < VECTORS; ++v) {
                    sum[r][v] = ADD ? *(const Vector *)(from + (i + r) * ldc + j + v * LANES) : Vector{};
                }
            }
            const float *ai = a + i * row, *bj = b + j;
            for (int p = 0; p < k; ++p) {
                Vector y[VECTORS];
                for (int v = 0; v < VECTORS; ++v) y[v] = *(const Vector *)(bj + v * LANES);
                for (int r = 0; r < ROWS; ++r) {
                    const float x = ai[r * row];
                    for (int v = 0; v < VECTORS; ++v) sum[r][v] += x * y[v];
                }
                ai += column;
                bj += ldb;
            }
            for (int r = 0; r < ROWS; ++r) {
                for (int v = 0; v < VECTORS; ++v) *(Vector *)(c + (i + r) * ldc + j + v * LANES) = sum[r][v];
            }
        }
    }
}

// to [n, m] = from [m, n] transposed; m and n are multiples of 16.
inline void transpose(int m, int n, const float *from, ptrdiff_t ldf, float *to, ptrdiff_t ldt) {
    for (int i = 0; i < m; i += 8) {
        for (int j = 0; j < n; j += 8) {
            const float *f = from + i * ldf + j;
            float *t = to + j * ldt + i;
#if defined(__AVX2__)
            __m256 half[8], pair[8];
            for (int r = 0; r < 4; ++r) {
                // Rows r and r + 4 side by side, first for columns 0..3, then for columns 4..7.
                half[r] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(f + r * ldf)),
                                               _mm_loadu_ps(f + (r + 4) * ldf), 1);
                half[r + 4] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(f + r * ldf + 4)),
                                                   _mm_loadu_ps(f + (r + 4) * ldf + 4), 1);
            }
            for (int h = 0; h < 8; h += 4) {
                pair[h] = _mm256_unpacklo_ps(half[h], half[h + 2]);
                pair[h + 1] = _mm256_unpackhi_ps(half[h], half[h + 2]);
                pair[h + 2] = _mm256_unpacklo_ps(half[h + 1], half[h + 3]);
                pair[h + 3] = _mm256_unpackhi_ps(half[h + 1], half[h + 3]);
                _mm256_storeu_ps(t + h * ldt, _mm256_unpacklo_ps(pair[h], pair[h + 2]));
                _mm256_storeu_ps(t + (h + 1) * ldt, _mm256_unpackhi_ps(pair[h], pair[h + 2]));
                _mm256_storeu_ps(t + (h + 2) * ldt, _mm256_unpacklo_ps(pair[h + 1], pair[h + 3]));
                _mm256_storeu_ps(t + (h + 3) * ldt, _mm256_unpackhi_ps(pair[h + 1], pair[h + 3]));
            }
#else
            for (int p = 0; p < 8; ++p) {
                for (int r = 0; r < 8; ++r) t[p * ldt + r] = f[r * ldf + p];
            }
#endif
        }
    }
}

// Sum of n products (n a multiple of 16) in 16 interleaved partial sums.
inline float dot(int n, const float *x, const float *y) {
    float part[16] = {};
    for (int i = 0; i < n; i += 16) {
        for (int j = 0; j < 16; ++j) part[j] += x[i + j] * y[i + j];
    }
    for (int half = 8; half > 0; half /= 2) {
        for (int j = 0; j < half; ++j) part[j] += part[j + half];
    }
    return part[0];
}

}  // namespace kda
