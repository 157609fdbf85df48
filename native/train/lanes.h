// How many floats a vector register of this build holds, and which families of instructions it may use.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(GOSSAMER_EMULATE)
#include "avx512.h"  // of tests/kernels/emulated: the AVX-512 sources on a machine without
#endif

#if defined(__AVX512F__) || defined(GOSSAMER_EMULATE)
#define GOSSAMER_AVX512
#endif
#if defined(__AVX512VNNI__) || defined(GOSSAMER_EMULATE_BF16)
#define GOSSAMER_VNNI
#endif
#if defined(__AVX512BF16__) || defined(GOSSAMER_EMULATE_BF16)
#define GOSSAMER_BF16
#endif

#if defined(GOSSAMER_AVX512)
constexpr int kVectorLanes = 16;
#elif defined(__AVX2__)
constexpr int kVectorLanes = 8;
#else
constexpr int kVectorLanes = 4;
#endif
