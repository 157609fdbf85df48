// Weights as they are stored, and their products with a few rows of activations.
//
// Shapes: N rows of a matrix, K columns, M tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "infer/int8.h"

enum class Kind { kNone, kF32, kBF16, kMXFP4, kInt8 };

// Row-major [N, K]; MXFP4 as two codes per byte, the even column in the low half, with one E8M0 scale per 32; int8 with
// one BF16 scale per 32.
struct Matrix {
    Kind kind = Kind::kNone;
    const void *data = nullptr;
    const void *scales = nullptr;
    long rows = 0, cols = 0;
    bool half_inputs = false;  // its products want inputs rounded to BF16

    explicit operator bool() const { return kind != Kind::kNone; }
};

// The order in which an MXFP4 product wants the columns of its activations: a permutation within each 8.
// x and y are [M, K]; they may be the same.
void to_mx_order(const float *x, float *y, long tokens, long cols);

// Activations [M, K], `ld` apart, and the same as int8 or BF16 [M, K] where a product wants that.
struct Rows {
    const float *values = nullptr;
    long ld = 0;
    Int8Rows int8 = {};
    const uint16_t *half = nullptr;
};

// y[m, n] = w[n, :] . x[m, :] for n from row_begin to row_end.
//
// The bits of each value depend on its own row and token alone.  An int8 matrix reads the int8 form of x; an MXFP4
// matrix reads it where there is one, else the BF16 form or the values in MX order; others read the BF16 form where
// they want it and there is one, else the values.  y is [M, ldy] with column
// 0 for row 0 of the matrix.  `scratch` grows to what one call needs.
void multiply(const Matrix &w, const Rows &x, long tokens, float *y, long ldy, long row_begin, long row_end,
              std::vector<float> &scratch);

// The values of rows row_begin to row_end, [rows, K]; MXFP4 in MX order.
void decode(const Matrix &w, long row_begin, long row_end, float *out);

// y[m, n] = rows[n, :] . x[m, :] for `count` rows of K values that lie ldw apart.
void dots(const uint16_t *rows, long ldw, long count, const float *x, long tokens, long ldx, long k, float *y,
          long ldy);
void dots(const float *rows, long ldw, long count, const float *x, long tokens, long ldx, long k, float *y,
          long ldy);

// y[m, :] = sum over n of x[m, n] w[row_begin + n, :], n rising: y [M, ldy] gets K columns, x is [M, ldx].
void multiply_transposed(const Matrix &w, const float *x, long tokens, long ldx, float *y, long ldy,
                         long row_begin, long row_end);
