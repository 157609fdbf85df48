// Products of eight-bit numbers: int8 or MXFP4 weights with activations rounded to int8 in blocks of 32.
//
// Within a block the sum is an integer and exact; a block counts with the product of its two scales, blocks add up in
// rising order in the lanes of one accumulator.  So, as in matrix.h, a result depends on its row and token alone.
//
// Shapes: N rows of a matrix, K columns (a multiple of 32), M tokens.
#pragma once
#include <cstdint>
#include <vector>

constexpr long kInt8Block = 32;

// Activations as int8.  In MX order a block holds its even columns first, then the odd ones.
struct Int8Rows {
    const int8_t *codes = nullptr;  // [M, K], -127 to 127
    const float *scales = nullptr;  // [M, K / 32]
};

// x [M, K] to int8: scale = largest magnitude / 127, codes to nearest, even at ties.  What is no finite number makes
// its block's scale one that is none either; a block whose largest is below 1e-30 counts as zeros.
void to_int8(const float *x, long tokens, long ldx, long cols, int8_t *codes, float *scales, bool mx_order);

// One row of K weights to int8 by the same rule, with scales rounded up to BF16.
void weights_to_int8(const float *w, long cols, int8_t *codes, uint16_t *scales);

// y[m, n] of rows row_begin to row_end (column 0 of y for row 0 of the matrix), M tokens.  Scales of the rows: E8M0
// bytes beside MXFP4 codes, BF16 beside int8.
void multiply_mxfp4_int8(const uint8_t *codes, const uint8_t *scales, long cols, const Int8Rows &x, long tokens,
                         float *y, long ldy, long row_begin, long row_end, std::vector<float> &scratch);
void multiply_int8(const int8_t *codes, const uint16_t *scales, long cols, const Int8Rows &x, long tokens, float *y,
                   long ldy, long row_begin, long row_end, std::vector<float> &scratch);
