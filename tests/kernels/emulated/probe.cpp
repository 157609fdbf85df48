// Each intrinsic as a function of memory, for tests/kernels/test_emulated.py: registers in, one register out.
#if defined(GOSSAMER_EMULATE)
#include "avx512.h"
#else
#include <immintrin.h>
#endif
#include <cstring>

namespace {

template <class V>
V at(const void *p) {
    V out;
    std::memcpy(&out, p, sizeof out);
    return out;
}

template <class V>
void put(void *p, V x) {
    std::memcpy(p, &x, sizeof x);
}

}  // namespace

#define PROBE(name, value) \
    extern "C" void name([[maybe_unused]] const char *a, [[maybe_unused]] const char *b, \
                         [[maybe_unused]] const char *c, [[maybe_unused]] unsigned n, void *out) { \
        put(out, value); \
    }
#define F(p) at<__m512>(p)
#define I(p) at<__m512i>(p)

PROBE(loadu_ps, _mm512_loadu_ps(reinterpret_cast<const float *>(a)))
PROBE(loadu_si512, _mm512_loadu_si512(a))
PROBE(maskz_loadu_epi16, _mm512_maskz_loadu_epi16(n, a))
PROBE(castsi512_ps, _mm512_castsi512_ps(I(a)))
PROBE(castps_pd, _mm512_castps_pd(F(a)))
PROBE(castps512_ps256, _mm512_castps512_ps256(F(a)))
PROBE(extractf64x4_pd, _mm512_extractf64x4_pd(at<__m512d>(a), 1))
PROBE(setzero_ps, _mm512_setzero_ps())
PROBE(setzero_si512, _mm512_setzero_si512())
PROBE(set1_ps, _mm512_set1_ps(at<float>(a)))
PROBE(set1_epi8, _mm512_set1_epi8(at<char>(a)))
PROBE(set1_epi16, _mm512_set1_epi16(at<short>(a)))
PROBE(broadcast_i32x4, _mm512_broadcast_i32x4(at<__m128i>(a)))
PROBE(mul_ps, _mm512_mul_ps(F(a), F(b)))
PROBE(fmadd_ps, _mm512_fmadd_ps(F(a), F(b), F(c)))
PROBE(cvtepi32_ps, _mm512_cvtepi32_ps(I(a)))
PROBE(sub_epi32, _mm512_sub_epi32(I(a), I(b)))
PROBE(mask_add_epi16, _mm512_mask_add_epi16(I(c), n, I(a), I(b)))
PROBE(and_si512, _mm512_and_si512(I(a), I(b)))
PROBE(xor_si512, _mm512_xor_si512(I(a), I(b)))
PROBE(slli_epi32, _mm512_slli_epi32(I(a), 16))
PROBE(srlv_epi64, _mm512_srlv_epi64(I(a), I(b)))
PROBE(cmplt_epi32_mask, _mm512_cmplt_epi32_mask(I(a), I(b)))
PROBE(cvtepu8_epi16, _mm512_cvtepu8_epi16(at<__m256i>(a)))
PROBE(cvtepu16_epi32, _mm512_cvtepu16_epi32(at<__m256i>(a)))
PROBE(permutexvar_epi16, _mm512_permutexvar_epi16(I(a), I(b)))
PROBE(permutexvar_epi32, _mm512_permutexvar_epi32(I(a), I(b)))
PROBE(permutexvar_epi64, _mm512_permutexvar_epi64(I(a), I(b)))
PROBE(shuffle_epi8, _mm512_shuffle_epi8(I(a), I(b)))
PROBE(dpbusd_epi32, _mm512_dpbusd_epi32(I(c), I(a), I(b)))

#if defined(GOSSAMER_EMULATE)
PROBE(dpbf16_ps, _mm512_dpbf16_ps(F(c), I(a), I(b)))
#else
PROBE(dpbf16_ps, _mm512_dpbf16_ps(F(c), at<__m512bh>(a), at<__m512bh>(b)))
#endif

extern "C" void storeu_ps(const char *a, const char *, const char *, unsigned, void *out) {
    _mm512_storeu_ps(static_cast<float *>(out), at<__m512>(a));
}
