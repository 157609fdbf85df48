#include "train/head.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "train/gemm.h"

namespace {

// Logits of so many rows at a time: enough rows to make packing w pay, few enough to stay in the last-level cache.
constexpr int kBlock = 256;
constexpr int kSums = 32;

// exp of x <= 0 by 2^n p(r), |r| <= ln 2 / 2, Taylor to r^7; the order of operations is fixed, so loops vectorise.
inline float exp_below(float x) {
    x = x < -87.0f ? -87.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = x - n * 0.693145752f - n * 1.42860677e-6f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits;
    std::memcpy(&bits, &shifted, 4);
    int32_t power = (bits - 0x4b400000 + 127) << 23;
    float scale;
    std::memcpy(&scale, &power, 4);
    return p * scale;
}

float largest(const float *x, int n) {
    float best[kSums];
    std::fill_n(best, kSums, x[0]);
    int j = 0;
    for (; j + kSums <= n; j += kSums) {
        for (int i = 0; i < kSums; ++i) best[i] = best[i] < x[j + i] ? x[j + i] : best[i];
    }
    float top = *std::max_element(best, best + kSums);
    for (; j < n; ++j) top = std::max(top, x[j]);
    return top;
}

// x := exp(x - top); the sum of the results.
float exponentials(float *x, int n, float top) {
    float sum[kSums] = {};
    int j = 0;
    for (; j + kSums <= n; j += kSums) {
        for (int i = 0; i < kSums; ++i) x[j + i] = exp_below(x[j + i] - top);
        for (int i = 0; i < kSums; ++i) sum[i] += x[j + i];
    }
    for (; j < n; ++j) sum[0] += x[j] = exp_below(x[j] - top);
    float total = 0.0f;
    for (float s : sum) total += s;
    return total;
}

// Turns a row of logits into the gradient softmax - one_hot(target); the row's cross entropy.
double row_loss(float *x, int n, int target) {
    const float own = x[target], top = largest(x, n);
    const float total = exponentials(x, n, top);
    const float scale = 1.0f / total;
    for (int j = 0; j < n; ++j) x[j] *= scale;
    x[target] -= 1.0f;
    return std::log((double)total) + top - own;
}

}  // namespace

double head_loss(int rows, int width, int vocab, const float *h, const float *w, const int64_t *targets, float *dh,
                 float *dw) {
    thread_local std::vector<float> logits, own, gradient;
    logits.resize((size_t)kBlock * vocab);
    own.resize((size_t)kBlock * width);
    gradient.resize((size_t)kBlock * width);
    std::vector<int> asked;
    for (int i = 0; i < rows; ++i) {
        if (targets[i] >= 0) asked.push_back(i);
    }
    if (dh) std::fill_n(dh, (size_t)rows * width, 0.0f);
    if (dw && asked.empty()) std::fill_n(dw, (size_t)vocab * width, 0.0f);
    double loss = 0.0;
    const int count = (int)asked.size(), blocks = (count + kBlock - 1) / kBlock;
    for (int block = 0, start = 0; block < blocks; ++block) {
        const int n = (count - start) / (blocks - block);
        const int *rows_of = asked.data() + start;
        for (int i = 0; i < n; ++i) std::copy_n(h + (size_t)rows_of[i] * width, width, own.data() + (size_t)i * width);
        sgemm(false, true, n, vocab, width, own.data(), width, w, width, logits.data(), vocab, false);
        for (int i = 0; i < n; ++i) {
            loss += row_loss(logits.data() + (size_t)i * vocab, vocab, (int)targets[rows_of[i]]);
        }
        if (dh) {
            sgemm(false, false, n, width, vocab, logits.data(), vocab, w, width, gradient.data(), width, false);
            for (int i = 0; i < n; ++i) {
                std::copy_n(gradient.data() + (size_t)i * width, width, dh + (size_t)rows_of[i] * width);
            }
        }
        if (dw) sgemm(true, false, vocab, width, n, logits.data(), vocab, own.data(), width, dw, width, start > 0);
        start += n;
    }
    return loss;
}
