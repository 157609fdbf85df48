// Vectors of the build's width, with the few operations the inference kernels need.
//
// A dot product of this folder is always: lanes along the columns, one accumulator, columns in rising order, one
// fixed tree at the end.  Every kernel keeps that order whatever it does beside it (more rows, more tokens), so
// that a result does not depend on what else was computed with it.
#pragma once
#include <cstdint>
#include <cstring>

#include "train/lanes.h"

namespace simd {

constexpr int kLanes = kVectorLanes;

#if defined(__AVX2__)
inline float sum(__m256 v) {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
#endif

#if defined(GOSSAMER_AVX512)
using F = __m512;
inline F zero() { return _mm512_setzero_ps(); }
inline F load(const float *p) { return _mm512_loadu_ps(p); }
inline void store(float *p, F v) { _mm512_storeu_ps(p, v); }
inline F all(float v) { return _mm512_set1_ps(v); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F load(const uint16_t *p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline float sum(F v) {
    const __m256 lower = _mm512_castps512_ps256(v);
    const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return sum(_mm256_add_ps(lower, upper));
}
#elif defined(__AVX2__)
using F = __m256;
inline F zero() { return _mm256_setzero_ps(); }
inline F load(const float *p) { return _mm256_loadu_ps(p); }
inline void store(float *p, F v) { _mm256_storeu_ps(p, v); }
inline F all(float v) { return _mm256_set1_ps(v); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F load(const uint16_t *p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i *>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
// What BF16 keeps of each lane, as `to_bf16`; NaN stays NaN.
inline F rounded(F v) {
    const __m256i bits = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i kept = _mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
    return _mm256_blendv_ps(_mm256_castsi256_ps(kept), v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
#else
// Four lanes that any compiler turns into whatever the processor has.
struct F {
    float v[4];
};
inline F zero() { return {{0, 0, 0, 0}}; }
inline F load(const float *p) { return {{p[0], p[1], p[2], p[3]}}; }
inline void store(float *p, F a) { std::memcpy(p, a.v, sizeof a.v); }
inline F all(float x) { return {{x, x, x, x}}; }
inline F fma(F a, F b, F c) {
    for (int i = 0; i < 4; ++i) c.v[i] += a.v[i] * b.v[i];
    return c;
}
inline F mul(F a, F b) {
    for (int i = 0; i < 4; ++i) a.v[i] *= b.v[i];
    return a;
}
inline F load(const uint16_t *p) {
    F out;
    for (int i = 0; i < 4; ++i) {
        const uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
        std::memcpy(&out.v[i], &bits, 4);
    }
    return out;
}
inline float sum(F a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
#endif

// Before a loop over accumulators: one that is left a loop would keep all of them in memory (GCC stores them anew in
// every step).
#if defined(__clang__)
#define GOSSAMER_UNROLL _Pragma("unroll")
#elif defined(__GNUC__)
#define GOSSAMER_UNROLL _Pragma("GCC unroll 32")
#else
#define GOSSAMER_UNROLL
#endif

// Asks for a cache line; any address may be given.
inline void prefetch(const void *p) {
#if defined(__GNUC__)
    __builtin_prefetch(p);
#endif
}

inline float value(float x) { return x; }
inline float value(uint16_t x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

// What columns that fill no vector add, one by one; rounded the same way wherever it is compiled into.
template <class A>
inline float add_tail(const A *a, const float *b, long n, float total) {
    for (long i = 0; i < n; ++i) {
#if defined(__FMA__)
        total = __builtin_fmaf(value(a[i]), b[i], total);
#else
        total += value(a[i]) * b[i];
#endif
    }
    return total;
}

// To BF16, nearest even; NaN stays NaN.
inline uint16_t to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if defined(GOSSAMER_AVX512) || !defined(__AVX2__)
// What BF16 keeps of each lane, as `to_bf16`; the compiler finds the vectors.
inline F rounded(F a) {
    float lanes[kLanes];
    store(lanes, a);
    for (float &x : lanes) x = value(to_bf16(x));
    return load(lanes);
}
#endif

// a . b in the order described above.
template <class A>
inline float dot(const A *a, const float *b, long n) {
    F acc = zero();
    long i = 0;
    for (; i + kLanes <= n; i += kLanes) acc = fma(load(a + i), load(b + i), acc);
    return add_tail(a + i, b + i, n - i, sum(acc));
}

// The sum of the squares, in the same order.
inline float squares(const float *a, long n) { return dot(a, a, n); }

}  // namespace simd
