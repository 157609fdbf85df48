// How many floats a vector register of this build holds.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int kVectorLanes = 16;
#elif defined(__AVX2__)
constexpr int kVectorLanes = 8;
#else
constexpr int kVectorLanes = 4;
#endif
