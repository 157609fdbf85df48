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
constexpr float kLeast = -60.0f;  // below, exp is nothing beside the sum's 1, and denormal numbers are slow

// exp of x <= 0 by 2^n p(r), |r| <= ln 2 / 2, Taylor to r^7; the order of operations is fixed, so loops vectorise.
inline float exp_below(float x) {
    x = x < kLeast ? kLeast : x;
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

// The thread's memory for one block, kept between calls, each array on a cache line: rows that straddle lines cost
// the products a fifth.
struct Scratch {
    float *logits, *own, *gradient;

    Scratch(int vocab, int width) {
        thread_local std::vector<float> memory;
        const size_t wide = (size_t)kBlock * vocab, narrow = (size_t)kBlock * width;
        memory.resize(wide + 2 * narrow + 16);
        logits = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / 4;
        own = logits + wide;
        gradient = own + narrow;
    }
};

}  // namespace

double head_loss(int rows, int width, int vocab, const float *h, const float *w, const int64_t *targets, float *dh,
                 float *dw) {
    const Scratch memory(vocab, width);
    float *const logits = memory.logits, *const own = memory.own, *const gradient = memory.gradient;
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
        for (int i = 0; i < n; ++i) std::copy_n(h + (size_t)rows_of[i] * width, width, own + (size_t)i * width);
        sgemm(false, true, n, vocab, width, own, width, w, width, logits, vocab, false);
        for (int i = 0; i < n; ++i) {
            loss += row_loss(logits + (size_t)i * vocab, vocab, (int)targets[rows_of[i]]);
        }
        if (dh) {
            sgemm(false, false, n, width, vocab, logits, vocab, w, width, gradient, width, false);
            for (int i = 0; i < n; ++i) {
                std::copy_n(gradient + (size_t)i * width, width, dh + (size_t)rows_of[i] * width);
            }
        }
        if (dw) sgemm(true, false, vocab, width, n, logits, vocab, own, width, dw, width, start > 0);
        start += n;
    }
    return loss;
}
