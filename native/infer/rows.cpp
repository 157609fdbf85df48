#include "infer/rows.h"

#include <cmath>
#include <cstring>

#include "infer/simd.h"
#include "train/vmath.h"

void rms_norm(const float *x, const float *weight, float eps, long n, float *y) {
    const float inverse = 1.0f / std::sqrt(simd::squares(x, n) / static_cast<float>(n) + eps);
    for (long i = 0; i < n; ++i) y[i] = (x[i] * inverse) * weight[i];
}

void layer_norm(const float *x, const float *weight, const float *bias, float eps, long n, float *y) {
    float mean = 0, variance = 0;
    for (long i = 0; i < n; ++i) mean += x[i];
    mean /= static_cast<float>(n);
    for (long i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float inverse = 1.0f / std::sqrt(variance / static_cast<float>(n) + eps);
    for (long i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * weight[i] + (bias ? bias[i] : 0.0f);
}

void activate(const Activation &a, float *gate, const float *up, long n) {
    if (!a.situ) {
        for (long i = 0; i < n; ++i) gate[i] = gate[i] * fast_sigmoid(gate[i]) * up[i];
        return;
    }
    const float inverse = 1.0f / a.beta;
    if (a.linear_beta == 0.0f) {
        for (long i = 0; i < n; ++i)
            gate[i] = a.beta * fast_tanh(gate[i] * inverse) * fast_sigmoid(gate[i]) * up[i];
        return;
    }
    const float scale = a.beta * a.linear_beta, up_inverse = 1.0f / a.linear_beta;
    for (long i = 0; i < n; ++i)
        gate[i] = scale * fast_tanh(gate[i] * inverse) * fast_sigmoid(gate[i]) * fast_tanh(up[i] * up_inverse);
}

void gate_by_sigmoid(float *x, const float *gate, long n) {
    for (long i = 0; i < n; ++i) x[i] *= fast_sigmoid(gate[i]);
}

void residual_mix(const float *const *candidates, int count, const float *weight, float eps, long n, float *y) {
    if (count == 1) {
        if (y != candidates[0]) std::memcpy(y, candidates[0], n * sizeof(float));
        return;
    }
    float p[256], peak = -INFINITY, total = 0;
    for (int c = 0; c < count; ++c) {
        const float inverse = 1.0f / std::sqrt(simd::squares(candidates[c], n) / static_cast<float>(n) + eps);
        p[c] = simd::dot(candidates[c], weight, n) * inverse;
        peak = p[c] > peak ? p[c] : peak;
    }
    for (int c = 0; c < count; ++c) total += p[c] = fast_exp(p[c] - peak);
    const float inverse = 1.0f / total;
    for (int c = 0; c < count; ++c) p[c] *= inverse;
    for (long i = 0; i < n; ++i) y[i] = p[0] * candidates[0][i];
    for (int c = 1; c < count; ++c)
        for (long i = 0; i < n; ++i) y[i] += p[c] * candidates[c][i];
}
