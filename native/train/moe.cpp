#include "train/moe.h"

#include <cstring>
#include <vector>

#include "train/gemm.h"
#include "train/pointwise.h"

void sort_pairs(const int64_t *indices, const ExpertShape &s, int32_t *order, int32_t *starts) {
    const long pairs = s.tokens * s.per_token;
    std::memset(starts, 0, sizeof(int32_t) * (s.experts + 1));
    for (long i = 0; i < pairs; ++i) ++starts[indices[i] + 1];
    for (int e = 0; e < s.experts; ++e) starts[e + 1] += starts[e];
    std::vector<int32_t> next(starts, starts + s.experts);
    for (long i = 0; i < pairs; ++i) order[next[indices[i]]++] = (int32_t)i;
}

static float *scratch(size_t size, int which) {
    static thread_local std::vector<float> buffers[6];
    if (buffers[which].size() < size) buffers[which].resize(size);
    return buffers[which].data();
}

static void gather(const float *from, const int32_t *order, long rows, const ExpertShape &s, float *to) {
    for (long r = 0; r < rows; ++r)
        std::memcpy(to + r * s.width, from + (long)(order[r] / s.per_token) * s.width, sizeof(float) * s.width);
}

void experts_forward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                     const int32_t *order, const int32_t *starts, float *gate, float *up, float *y,
                     const ExpertShape &s, float beta, float linear_beta) {
    std::memset(y, 0, sizeof(float) * s.tokens * s.width);
    const int zw = s.width, in = s.inner;
    for (int e = 0; e < s.experts; ++e) {
        const long rows = starts[e + 1] - starts[e];
        if (rows == 0) continue;
        const int32_t *own = order + starts[e];
        const size_t at = (size_t)e * in * zw;
        float *x = scratch(rows * zw, 0), *hidden = scratch(rows * in, 1), *out = scratch(rows * zw, 2);
        float *g = gate + (long)starts[e] * in, *u = up + (long)starts[e] * in;
        gather(z, own, rows, s, x);
        sgemm(false, true, (int)rows, in, zw, x, zw, w1 + at, zw, g, in, false);
        sgemm(false, true, (int)rows, in, zw, x, zw, w3 + at, zw, u, in, false);
        situ_forward(rows, in, in, g, u, beta, linear_beta, hidden);
        sgemm(false, true, (int)rows, zw, in, hidden, in, w2 + at, in, out, zw, false);
        for (long r = 0; r < rows; ++r) {
            const float weight = weights[own[r]];
            float *target = y + (long)(own[r] / s.per_token) * zw;
            for (int i = 0; i < zw; ++i) target[i] += weight * out[r * zw + i];
        }
    }
}

// With G the gathered dy, A the activation and D = G w2: dweight = A . D, and the rest follows from weight * D.
void experts_backward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                      const int32_t *order, const int32_t *starts, const float *gate, const float *up,
                      const float *dy, float *dz, float *dweights, float *dw1, float *dw3, float *dw2,
                      const ExpertShape &s, float beta, float linear_beta) {
    std::memset(dz, 0, sizeof(float) * s.tokens * s.width);
    const int zw = s.width, in = s.inner;
    for (int e = 0; e < s.experts; ++e) {
        const long rows = starts[e + 1] - starts[e];
        const size_t at = (size_t)e * in * zw, size = sizeof(float) * in * zw;
        if (rows == 0) {
            std::memset(dw1 + at, 0, size);
            std::memset(dw3 + at, 0, size);
            std::memset(dw2 + at, 0, size);
            continue;
        }
        const int32_t *own = order + starts[e];
        const float *g = gate + (long)starts[e] * in, *u = up + (long)starts[e] * in;
        float *x = scratch(rows * zw, 0), *hidden = scratch(rows * in, 1), *gy = scratch(rows * zw, 2);
        float *d = scratch(rows * in, 3), *dg = scratch(rows * in, 4), *du = scratch(rows * in, 5);
        gather(z, own, rows, s, x);
        gather(dy, own, rows, s, gy);
        situ_forward(rows, in, in, g, u, beta, linear_beta, hidden);
        sgemm(false, false, (int)rows, in, zw, gy, zw, w2 + at, in, d, in, false);
        for (long r = 0; r < rows; ++r) {
            const float weight = weights[own[r]];
            float parts[8] = {0}, sum = 0.0f;
            float *row = d + r * in;
            const float *h = hidden + r * in;
            int i = 0;
            for (; i + 8 <= in; i += 8)
                for (int j = 0; j < 8; ++j) parts[j] += row[i + j] * h[i + j];
            for (; i < in; ++i) sum += row[i] * h[i];
            for (int j = 0; j < 8; ++j) sum += parts[j];
            dweights[own[r]] = sum;
            for (int k = 0; k < in; ++k) row[k] *= weight;
            for (int k = 0; k < zw; ++k) gy[r * zw + k] *= weight;
        }
        sgemm(true, false, zw, in, (int)rows, gy, zw, hidden, in, dw2 + at, in, false);
        situ_backward(rows, in, in, d, g, u, beta, linear_beta, dg, du);
        sgemm(true, false, in, zw, (int)rows, dg, in, x, zw, dw1 + at, zw, false);
        sgemm(true, false, in, zw, (int)rows, du, in, x, zw, dw3 + at, zw, false);
        float *dx = gy;
        sgemm(false, false, (int)rows, zw, in, dg, in, w1 + at, zw, dx, zw, false);
        sgemm(false, false, (int)rows, zw, in, du, in, w3 + at, zw, dx, zw, true);
        for (long r = 0; r < rows; ++r) {
            float *target = dz + (long)(own[r] / s.per_token) * zw;
            for (int i = 0; i < zw; ++i) target[i] += dx[r * zw + i];
        }
    }
}
