#include "train/moe.h"

#include <vector>

#include "train/gemm.h"
#include "train/vmath.h"

using namespace panels;
using gated::odd_stride;

void sort_pairs(const int64_t *indices, const ExpertShape &s, int32_t *order, int32_t *starts) {
    const long pairs = s.tokens * s.per_token;
    std::memset(starts, 0, sizeof(int32_t) * (s.experts + 1));
    for (long i = 0; i < pairs; ++i) ++starts[indices[i] + 1];
    for (int e = 0; e < s.experts; ++e) starts[e + 1] += starts[e];
    std::vector<int32_t> next(starts, starts + s.experts);
    for (long i = 0; i < pairs; ++i) order[next[indices[i]]++] = (int32_t)i;
}

namespace {

struct ExpertMemory {
    Scratch packed, x, dy, out, weights, ragged;
};

void add(int n, const float *from, float weight, float *to) {
    for (int i = 0; i < n; ++i) to[i] += weight * from[i];
}

// Rows of z as a packed right operand.
void gather_panels(const float *z, const int32_t *pairs, int rows, const ExpertShape &s, float *to) {
    const int width = s.net.width, whole = width / NR * NR;
    for (int r = 0; r < rows; ++r) {
        const float *from = z + (size_t)(pairs[r] / s.per_token) * width;
        for (int j = 0; j < whole; j += NR) {
            float *panel = to + (size_t)j * rows + (size_t)r * NR;
            store(panel, load(from + j));
            store(panel + VW, load(from + j + VW));
        }
        for (int j = whole; j < width; ++j) to[(size_t)whole * rows + (size_t)r * NR + j - whole] = from[j];
    }
    pad_columns(rows, width, to);
}

void gather_rows(const float *z, const int32_t *pairs, int rows, const ExpertShape &s, float *to, int stride) {
    const int width = s.net.width;
    for (int r = 0; r < rows; ++r)
        std::memcpy(to + (size_t)r * stride, z + (size_t)(pairs[r] / s.per_token) * width, sizeof(float) * width);
}

}  // namespace

void experts_forward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                     const int32_t *order, const int32_t *starts, float *gate, float *up, float *y,
                     const ExpertShape &s) {
    static thread_local ExpertMemory memory;
    const int width = s.net.width, stride = odd_stride(width), room = gated::padded(width);
    const size_t kept = gated::padded(s.net.inner), matrix = (size_t)width * s.net.inner;
    std::memset(y, 0, sizeof(float) * s.tokens * width);
    float *packed = memory.packed.get(gated::packed_size(s.net));
    for (int e = 0; e < s.experts; ++e) {
        const int32_t begin = starts[e], end = starts[e + 1];
        if (begin == end) continue;
        gated::pack_forward(s.net, w1 + e * matrix, w3 + e * matrix, w2 + e * matrix, packed);
        const int block = gated::block_rows(end - begin);
        float *x = memory.x.get((size_t)block * stride), *out = memory.out.get((size_t)block * room);
        for (int32_t at = begin; at < end; at += block) {
            const int rows = std::min(block, end - at);
            gather_rows(z, order + at, rows, s, x, stride);
            gated::forward_block(s.net, packed, rows, x, stride, gate + at * kept, up + at * kept, out, room);
            for (int r = 0; r < rows; ++r) {
                const int32_t pair = order[at + r];
                add(width, out + (size_t)r * room, weights[pair], y + (size_t)(pair / s.per_token) * width);
            }
        }
    }
}

void experts_backward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                      const int32_t *order, const int32_t *starts, const float *gate, const float *up,
                      const float *dy, float *dz, float *dweights, float *dw1, float *dw3, float *dw2,
                      const ExpertShape &s) {
    static thread_local ExpertMemory memory;
    const int width = s.net.width, stride = odd_stride(width), room = gated::padded(width);
    const size_t kept = gated::padded(s.net.inner), matrix = (size_t)width * s.net.inner;
    std::memset(dz, 0, sizeof(float) * s.tokens * width);
    float *packed = memory.packed.get(gated::packed_size(s.net));
    const gated::Ragged ragged(s.net, memory.ragged);
    for (int e = 0; e < s.experts; ++e) {
        const int32_t begin = starts[e], end = starts[e + 1];
        float *own1 = dw1 + e * matrix, *own3 = dw3 + e * matrix, *own2 = dw2 + e * matrix;
        if (begin == end) {
            for (float *own : {own1, own3, own2}) std::memset(own, 0, sizeof(float) * matrix);
            continue;
        }
        gated::pack_backward(s.net, w1 + e * matrix, w3 + e * matrix, w2 + e * matrix, packed);
        const int block = gated::block_rows(end - begin);
        float *x = memory.x.get((size_t)block * room), *out = memory.out.get((size_t)block * room);
        float *own_dy = memory.dy.get((size_t)block * stride), *row_weights = memory.weights.get(2 * (size_t)block);
        float *row_gradients = row_weights + block;
        const gated::WeightGradients to = ragged.aim(own1, own3, own2);
        for (int32_t at = begin; at < end; at += block) {
            const int rows = std::min(block, end - at);
            const int32_t *pairs = order + at;
            gather_panels(z, pairs, rows, s, x);
            gather_rows(dy, pairs, rows, s, own_dy, stride);
            for (int r = 0; r < rows; ++r) row_weights[r] = weights[pairs[r]];
            gated::backward_block(s.net, packed, rows, x, own_dy, stride, gate + at * kept, up + at * kept,
                                  row_weights, row_gradients, out, room, to, at == begin);
            for (int r = 0; r < rows; ++r) {
                dweights[pairs[r]] = row_gradients[r];
                add(width, out + (size_t)r * room, 1.0f, dz + (size_t)(pairs[r] / s.per_token) * width);
            }
        }
        ragged.finish(to, own1, own3, own2);
    }
}

void route_forward(const float *x, const float *w, const float *bias, const RouteShape &s, int64_t *indices,
                   float *weights, float *picked) {
    static thread_local Scratch memory;
    const int experts = s.experts, per_token = s.per_token;
    float *scores = memory.get((size_t)s.tokens * experts + experts), *biased = scores + s.tokens * experts;
    sgemm(false, true, (int)s.tokens, experts, s.width, x, s.width, w, s.width, scores, experts, false);
    for (long i = 0; i < s.tokens * experts; ++i) scores[i] = fast_sigmoid(scores[i]);
    for (long m = 0; m < s.tokens; ++m) {
        const float *own = scores + m * experts;
        int64_t *chosen = indices + m * per_token;
        float *weight = weights + m * per_token, *score = picked + m * per_token, total = 0.0f;
        for (int e = 0; e < experts; ++e) biased[e] = own[e] + bias[e];
        for (int a = 0; a < per_token; ++a) {
            int best = 0;
            for (int e = 1; e < experts; ++e)
                if (biased[e] > biased[best]) best = e;
            biased[best] = -__builtin_inff();
            chosen[a] = best;
            total += score[a] = own[best];
        }
        const float factor = s.renormalize ? s.scaling / (total + 1e-20f) : s.scaling;
        for (int a = 0; a < per_token; ++a) weight[a] = score[a] * factor;
    }
}

// With c the scaling, p the picked scores and S their sum: weight = c p / S, so dp = c (dweight - mean) / S with
// mean = sum(dweight p) / S; the sigmoid's slope is p (1 - p).
void route_backward(const float *x, const float *w, const int64_t *indices, const float *picked,
                    const float *dweights, const RouteShape &s, float *dx, float *dw) {
    const size_t width = s.width;
    std::memset(dx, 0, sizeof(float) * s.tokens * width);
    std::memset(dw, 0, sizeof(float) * s.experts * width);
    for (long m = 0; m < s.tokens; ++m) {
        const float *p = picked + m * s.per_token, *d = dweights + m * s.per_token;
        float total = 0.0f, along = 0.0f;
        for (int a = 0; a < s.per_token; ++a) {
            total += p[a];
            along += p[a] * d[a];
        }
        total += 1e-20f;
        const float factor = s.renormalize ? s.scaling / total : s.scaling;
        const float mean = s.renormalize ? along / total : 0.0f;
        for (int a = 0; a < s.per_token; ++a) {
            const float slope = factor * (d[a] - mean) * p[a] * (1.0f - p[a]);
            const size_t e = (size_t)indices[m * s.per_token + a];
            add(s.width, w + e * width, slope, dx + m * width);
            add(s.width, x + m * width, slope, dw + e * width);
        }
    }
}
