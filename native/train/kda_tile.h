// Products of matrices that fit the first-level cache, and the elementary functions of the KDA kernel.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kda {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 4;
#else
constexpr int LANES = 4, ROWS = 2;
#endif
constexpr int VECTORS = 16 / LANES;  // a register tile is ROWS x 16
typedef float Vector __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// C[m,n] = A B, or C += A B.  A's element (i, p) is a[i * row + p * column]; m and n are multiples of 16.
template <bool ACCUMULATE>
inline void product(int m, int n, int k, const float *a, ptrdiff_t row, ptrdiff_t column, const float *b,
                    ptrdiff_t ldb, float *c, ptrdiff_t ldc) {
    for (int j = 0; j < n; j += 16) {
        for (int i = 0; i < m; i += ROWS) {
            Vector sum[ROWS][VECTORS];
            for (int r = 0; r < ROWS; ++r) {
                for (int v = 0; v < VECTORS; ++v) {
                    sum[r][v] = ACCUMULATE ? *(const Vector *)(c + (i + r) * ldc + j + v * LANES) : Vector{};
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
            for (int p = 0; p < 8; ++p) {
                for (int r = 0; r < 8; ++r) to[(j + p) * ldt + i + r] = from[(i + r) * ldf + j + p];
            }
        }
    }
}

// exp with a relative error near 1e-7; arguments are clamped to float32's normal range.
inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the sum's last bits are the integer
    const float n = shifted - 12582912.0f;
    const float f = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * (f * f) + f + 1.0f;
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    const int32_t power = (int32_t)(((uint32_t)bits + (127u - 0x4b400000u)) << 23);
    float scale;
    std::memcpy(&scale, &power, 4);
    return p * scale;
}

inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

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
