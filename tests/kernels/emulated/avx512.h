// The AVX-512 intrinsics that native/ uses, as loops over lanes, for machines without them.
//
// Written from the operations in Intel's manual; tests/kernels/test_emulated.py holds each against them.  With
// GOSSAMER_EMULATE the build compiles the sources of the AVX-512 backends with this in place of the processor's own.
// Types are the compiler's; values go through memory, so that its idea of a lane does not matter.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulated {

template <class To, class From>
inline To same_bits(const From &from) {
    static_assert(sizeof(To) <= sizeof(From), "a cast that widens leaves lanes undefined");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// A register as N lanes of T.
template <class T, int N>
struct Lanes {
    T v[N];
    template <class V>
    static Lanes of(V x) {
        static_assert(sizeof(V) == sizeof(Lanes), "a register of another width");
        return same_bits<Lanes>(x);
    }
    template <class V>
    V as() const {
        return same_bits<V>(*this);
    }
};
using F32 = Lanes<float, 16>;
using I32 = Lanes<int32_t, 16>;
using U32 = Lanes<uint32_t, 16>;
using U64 = Lanes<uint64_t, 8>;
using U16 = Lanes<uint16_t, 32>;
using U8 = Lanes<uint8_t, 64>;
using I8 = Lanes<int8_t, 64>;

// Loads and stores of any alignment; a masked lane is neither read nor anything but zero.
inline __m512 loadu_ps(const void *p) {
    F32 out;
    std::memcpy(&out, p, 64);
    return out.as<__m512>();
}
inline void storeu_ps(void *p, __m512 x) { std::memcpy(p, &x, 64); }
inline __m512i loadu_si512(const void *p) {
    U8 out;
    std::memcpy(&out, p, 64);
    return out.as<__m512i>();
}
inline __m512i maskz_loadu_epi16(uint32_t mask, const void *p) {
    U16 out = {};
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1) std::memcpy(out.v + i, static_cast<const char *>(p) + 2 * i, 2);
    return out.as<__m512i>();
}

// The same bits under another type; of a wider register the lower lanes.
inline __m512 castsi512_ps(__m512i x) { return same_bits<__m512>(x); }
inline __m512d castps_pd(__m512 x) { return same_bits<__m512d>(x); }
inline __m256 castps512_ps256(__m512 x) { return same_bits<__m256>(x); }
inline __m256d extractf64x4_pd(__m512d x, int half) {
    __m256d out;
    std::memcpy(&out, reinterpret_cast<const char *>(&x) + 32 * (half & 1), 32);
    return out;
}

template <class L, class T>
inline L all(T value) {
    L out;
    for (auto &lane : out.v) lane = value;
    return out;
}
inline __m512 setzero_ps() { return all<F32>(0.0f).as<__m512>(); }
inline __m512i setzero_si512() { return all<U8>(uint8_t(0)).as<__m512i>(); }
inline __m512 set1_ps(float x) { return all<F32>(x).as<__m512>(); }
inline __m512i set1_epi8(char x) { return all<I8>(static_cast<int8_t>(x)).as<__m512i>(); }
inline __m512i set1_epi16(short x) { return all<U16>(static_cast<uint16_t>(x)).as<__m512i>(); }
inline __m512i broadcast_i32x4(__m128i x) {
    U8 out;
    for (int i = 0; i < 4; ++i) std::memcpy(out.v + 16 * i, &x, 16);
    return out.as<__m512i>();
}

// Arithmetic of floats, rounded once.
inline __m512 mul_ps(__m512 a, __m512 b) {
    F32 x = F32::of(a), y = F32::of(b);
    for (int i = 0; i < 16; ++i) x.v[i] *= y.v[i];
    return x.as<__m512>();
}
inline __m512 fmadd_ps(__m512 a, __m512 b, __m512 c) {
    F32 x = F32::of(a), y = F32::of(b), z = F32::of(c);
    for (int i = 0; i < 16; ++i) z.v[i] = std::fma(x.v[i], y.v[i], z.v[i]);
    return z.as<__m512>();
}
inline __m512 cvtepi32_ps(__m512i a) {
    const I32 x = I32::of(a);
    F32 out;
    for (int i = 0; i < 16; ++i) out.v[i] = static_cast<float>(x.v[i]);
    return out.as<__m512>();
}

// Integers; sums and differences wrap, a shift by more than a lane has leaves zero.
inline __m512i sub_epi32(__m512i a, __m512i b) {
    U32 x = U32::of(a), y = U32::of(b);
    for (int i = 0; i < 16; ++i) x.v[i] -= y.v[i];
    return x.as<__m512i>();
}
inline __m512i mask_add_epi16(__m512i other, uint32_t mask, __m512i a, __m512i b) {
    U16 out = U16::of(other), x = U16::of(a), y = U16::of(b);
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1) out.v[i] = static_cast<uint16_t>(x.v[i] + y.v[i]);
    return out.as<__m512i>();
}
inline __m512i and_si512(__m512i a, __m512i b) {
    U64 x = U64::of(a), y = U64::of(b);
    for (int i = 0; i < 8; ++i) x.v[i] &= y.v[i];
    return x.as<__m512i>();
}
inline __m512i xor_si512(__m512i a, __m512i b) {
    U64 x = U64::of(a), y = U64::of(b);
    for (int i = 0; i < 8; ++i) x.v[i] ^= y.v[i];
    return x.as<__m512i>();
}
inline __m512i slli_epi32(__m512i a, unsigned count) {
    U32 x = U32::of(a);
    for (int i = 0; i < 16; ++i) x.v[i] = count > 31 ? 0 : x.v[i] << count;
    return x.as<__m512i>();
}
inline __m512i srlv_epi64(__m512i a, __m512i counts) {
    U64 x = U64::of(a), n = U64::of(counts);
    for (int i = 0; i < 8; ++i) x.v[i] = n.v[i] > 63 ? 0 : x.v[i] >> n.v[i];
    return x.as<__m512i>();
}
inline uint16_t cmplt_epi32_mask(__m512i a, __m512i b) {
    const I32 x = I32::of(a), y = I32::of(b);
    unsigned out = 0;
    for (int i = 0; i < 16; ++i) out |= static_cast<unsigned>(x.v[i] < y.v[i]) << i;
    return static_cast<uint16_t>(out);
}
inline __m512i cvtepu8_epi16(__m256i a) {
    const auto x = Lanes<uint8_t, 32>::of(a);
    U16 out;
    for (int i = 0; i < 32; ++i) out.v[i] = x.v[i];
    return out.as<__m512i>();
}
inline __m512i cvtepu16_epi32(__m256i a) {
    const auto x = Lanes<uint16_t, 16>::of(a);
    U32 out;
    for (int i = 0; i < 16; ++i) out.v[i] = x.v[i];
    return out.as<__m512i>();
}

// Lanes by number; what a number has beyond the lanes does not count.
inline __m512i permutexvar_epi16(__m512i numbers, __m512i a) {
    const U16 n = U16::of(numbers), x = U16::of(a);
    U16 out;
    for (int i = 0; i < 32; ++i) out.v[i] = x.v[n.v[i] & 31];
    return out.as<__m512i>();
}
inline __m512i permutexvar_epi32(__m512i numbers, __m512i a) {
    const U32 n = U32::of(numbers), x = U32::of(a);
    U32 out;
    for (int i = 0; i < 16; ++i) out.v[i] = x.v[n.v[i] & 15];
    return out.as<__m512i>();
}
inline __m512i permutexvar_epi64(__m512i numbers, __m512i a) {
    const U64 n = U64::of(numbers), x = U64::of(a);
    U64 out;
    for (int i = 0; i < 8; ++i) out.v[i] = x.v[n.v[i] & 7];
    return out.as<__m512i>();
}
// Bytes of the same quarter; zero where the number's top bit is set.
inline __m512i shuffle_epi8(__m512i a, __m512i numbers) {
    const U8 x = U8::of(a), n = U8::of(numbers);
    U8 out;
    for (int i = 0; i < 64; ++i) out.v[i] = n.v[i] & 0x80 ? 0 : x.v[(i & 0x30) | (n.v[i] & 15)];
    return out.as<__m512i>();
}

// VNNI: four products of an unsigned and a signed byte join each sum, which wraps.
inline __m512i dpbusd_epi32(__m512i sums, __m512i a, __m512i b) {
    U32 out = U32::of(sums);
    const U8 x = U8::of(a);
    const I8 y = I8::of(b);
    for (int i = 0; i < 16; ++i)
        for (int j = 4 * i; j < 4 * i + 4; ++j) out.v[i] += static_cast<uint32_t>(x.v[j] * y.v[j]);
    return out.as<__m512i>();
}

// BF16: a subnormal counts as a zero of its sign, in what goes in and in what comes out.
inline float flushed(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }
inline float of_bf16(uint16_t x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    return flushed(same_bits<float>(bits));
}
// The pair's upper product joins first, then the lower one; each sum is rounded once, to nearest even.
template <class Pairs>
inline __m512 dpbf16_ps(__m512 sums, Pairs a, Pairs b) {
    F32 out = F32::of(sums);
    const U16 x = U16::of(a), y = U16::of(b);
    for (int i = 0; i < 16; ++i) {
        float sum = flushed(out.v[i]);
        for (int j = 2 * i + 1; j >= 2 * i; --j) sum = flushed(std::fma(of_bf16(x.v[j]), of_bf16(y.v[j]), sum));
        out.v[i] = sum;
    }
    return out.as<__m512>();
}

}  // namespace emulated

// Some of these are macros in a build without optimisation.
#undef _mm512_extractf64x4_pd
#undef _mm512_slli_epi32
#undef _mm512_cmplt_epi32_mask

#define _mm512_loadu_ps emulated::loadu_ps
#define _mm512_storeu_ps emulated::storeu_ps
#define _mm512_loadu_si512 emulated::loadu_si512
#define _mm512_maskz_loadu_epi16 emulated::maskz_loadu_epi16
#define _mm512_castsi512_ps emulated::castsi512_ps
#define _mm512_castps_pd emulated::castps_pd
#define _mm512_castps512_ps256 emulated::castps512_ps256
#define _mm512_extractf64x4_pd emulated::extractf64x4_pd
#define _mm512_setzero_ps emulated::setzero_ps
#define _mm512_setzero_si512 emulated::setzero_si512
#define _mm512_set1_ps emulated::set1_ps
#define _mm512_set1_epi8 emulated::set1_epi8
#define _mm512_set1_epi16 emulated::set1_epi16
#define _mm512_broadcast_i32x4 emulated::broadcast_i32x4
#define _mm512_mul_ps emulated::mul_ps
#define _mm512_fmadd_ps emulated::fmadd_ps
#define _mm512_cvtepi32_ps emulated::cvtepi32_ps
#define _mm512_sub_epi32 emulated::sub_epi32
#define _mm512_mask_add_epi16 emulated::mask_add_epi16
#define _mm512_and_si512 emulated::and_si512
#define _mm512_xor_si512 emulated::xor_si512
#define _mm512_slli_epi32 emulated::slli_epi32
#define _mm512_srlv_epi64 emulated::srlv_epi64
#define _mm512_cmplt_epi32_mask emulated::cmplt_epi32_mask
#define _mm512_cvtepu8_epi16 emulated::cvtepu8_epi16
#define _mm512_cvtepu16_epi32 emulated::cvtepu16_epi32
#define _mm512_permutexvar_epi16 emulated::permutexvar_epi16
#define _mm512_permutexvar_epi32 emulated::permutexvar_epi32
#define _mm512_permutexvar_epi64 emulated::permutexvar_epi64
#define _mm512_shuffle_epi8 emulated::shuffle_epi8
#define _mm512_dpbusd_epi32 emulated::dpbusd_epi32
#define _mm512_dpbf16_ps emulated::dpbf16_ps
