// Single-precision matrix product on row-major data, one thread.
#pragma once
#include <cstddef>

// C[M,N] = A * B, or C += A * B with accumulate.  A is [M,K] with row stride lda, or stored [K,M] and read
// transposed when trans_a; B is [K,N] with row stride ldb, or stored [N,K] when trans_b.  Any size, any stride.
void sgemm(bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
           float *c, int ldc, bool accumulate);

// C[N,N] = A * B where that is known to be symmetric: what lies below the diagonal is computed and mirrored.
void symmetric_product(bool trans_a, bool trans_b, int n, int k, const float *a, int lda, const float *b, int ldb,
                       float *c, int ldc);
