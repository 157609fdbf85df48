// What MXFP4 and MXFP8 (E4M3) store for float32 values.
#pragma once
#include <cstdint>

// y = the values that blocks of 32 of x [n] keep; n is a multiple of 32.  `increment` is the scale rule, see
// gossamer.mx.formats.scale_increment.  A block with NaN or Inf becomes NaN.
void mxfp4_values(const float *x, float *y, long n, int32_t increment);
void mxfp8_values(const float *x, float *y, long n, int32_t increment);
