// Products whose inputs are rounded to BF16, with sums in float32.
//
// A float32 below 2^-126 counts as a zero of its sign, anything else goes to the nearest BF16, even at ties: what
// VCVTNEPS2BF16 does, done the same way everywhere.  Where the build has VDPBF16PS, weights meet such inputs as BF16,
// 32 columns at a time: each of 16 lanes adds the products of two neighbouring columns to its sum, columns rising, then
// one tree; subnormal weights, products and sums are zero.  Elsewhere the rounded inputs are float32 values and the
// products are the ones of matrix.h.
//
// Shapes: N rows of a matrix, K columns, M tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "train/lanes.h"

#if defined(GOSSAMER_BF16)
constexpr bool kHalfProducts = true;
#else
constexpr bool kHalfProducts = false;
#endif

// x [M, K], ldx apart, to BF16 or to the values that it keeps, [M, K].
void round_to_bf16(const float *x, long tokens, long ldx, long cols, uint16_t *out);
void round_to_bf16(const float *x, long tokens, long ldx, long cols, float *out);

// y[m, n] of rows begin to end (column 0 of y for row 0 of the matrix); only where kHalfProducts.  The bits of each
// value depend on its own row and token alone.  Inputs of MXFP4 are in MX order.
void multiply_bf16(const uint16_t *w, long cols, const uint16_t *x, long tokens, float *y, long ldy, long begin,
                   long end);
void multiply_mxfp4_bf16(const uint8_t *codes, const uint8_t *scales, long cols, const uint16_t *x, long tokens,
                         float *y, long ldy, long begin, long end, std::vector<float> &scratch);
