#include "train/gemm.h"

void sgemm(bool trans_a, bool trans_b, int m, int n, int k, const float *a, int lda, const float *b, int ldb,
           float *c, int ldc, bool accumulate) {
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = accumulate ? c[(size_t)i * ldc + j] : 0.0f;
            for (int p = 0; p < k; ++p) {
                const float x = trans_a ? a[(size_t)p * lda + i] : a[(size_t)i * lda + p];
                const float y = trans_b ? b[(size_t)j * ldb + p] : b[(size_t)p * ldb + j];
                sum += x * y;
            }
            c[(size_t)i * ldc + j] = sum;
        }
    }
}
