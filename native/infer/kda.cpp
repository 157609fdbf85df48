#include "infer/kda.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "infer/simd.h"
#include "train/vmath.h"

namespace {

using simd::F;
using simd::kLanes;

// Tokens whose inputs are prepared at a time.  No part of the arithmetic: any number gives the same bits.
constexpr long kChunk = 32;

// y_t = SiLU(sum_j taps[:, j] x_{t-W+1+j}) for one token's K channels.
void convolve(const KdaHead &h, const float *x, const float *tail, const float *taps, long t, float *y) {
    for (int c = 0; c < h.width; ++c) y[c] = 0.0f;
    for (int j = 0; j < h.taps; ++j) {
        const long at = t - h.taps + 1 + j;
        const float *past = at >= 0 ? x + at * h.channels : tail + (at + h.taps - 1) * h.tail_stride;
        for (int c = 0; c < h.width; ++c) y[c] += taps[j * h.channels + c] * past[c];
    }
    for (int c = 0; c < h.width; ++c) y[c] *= fast_sigmoid(y[c]);
}

void keep_tail(const KdaHead &h, const float *x, float *tail) {
    // Rows move towards the past, so the oldest is written first and nothing is overwritten that is still read.
    for (int j = 0; j < h.taps - 1; ++j) {
        const long at = h.tokens - (h.taps - 1) + j;
        const float *past = at >= 0 ? x + at * h.channels : tail + (at + h.taps - 1) * h.tail_stride;
        for (int c = 0; c < h.width; ++c) tail[j * h.tail_stride + c] = past[c];
    }
}

void normalise(float *x, int n, float eps, float scale) {
    const float inverse = scale / std::sqrt(simd::squares(x, n) + eps);
    for (int i = 0; i < n; ++i) x[i] *= inverse;
}

void decay(const KdaHead &h, const float *z, float *a) {
    const float rate = std::exp(h.a_log);
    if (h.bounded) {
        for (int i = 0; i < h.width; ++i)
            a[i] = fast_exp(h.lower_bound * fast_sigmoid(rate * (z[i] + h.dt_bias[i])));
        return;
    }
    for (int i = 0; i < h.width; ++i) {
        const float s = z[i] + h.dt_bias[i];
        // ln(1 + e^s), which is s itself far out.
        const float softplus = s > 20.0f ? s : fast_log(1.0f + fast_exp(s));
        a[i] = fast_exp(-rate * softplus);
    }
}

// What the recurrence needs of some tokens, [T, K] each but for beta [T].
struct Tokens {
    long count;
    float *q, *k, *v, *a, *ak, *o, *beta;  // ak is a * k
};

// One row of the state after a token: s = a s + k w, read by that token's q and, with `more`, by the next one's a k.
// With `half` BF16 is what the next token finds, wherever a pass ends.
template <bool more, bool half>
inline void update(float *place, F a, F k, F w, F q, F ak, F &out, F &read) {
    const F s = simd::fma(k, w, simd::mul(a, simd::load(place)));
    const F kept = half ? simd::rounded(s) : s;
    simd::store(place, kept);
    out = simd::fma(q, s, out);
    if (more) read = simd::fma(ak, kept, read);
}

// V vectors of value channels, token by token: S = a S + k beta (v - k^T (a S))^T, o = S^T q.  What the decayed state
// says about a token's k is summed while the token before writes, so each token passes over the state once.
// state [K, V lanes], rows lds apart; v and o are those of the same channels.
template <int V, bool half>
void steps(float *state, long lds, int width, const Tokens &x, const float *v, float *o) {
    F read[V], out[V], write[V];
    for (int i = 0; i < V; ++i) read[i] = simd::zero();
    for (int row = 0; row < width; ++row) {
        const F ak = simd::all(x.ak[row]);
        for (int i = 0; i < V; ++i) read[i] = simd::fma(ak, simd::load(state + row * lds + i * kLanes), read[i]);
    }
    for (long t = 0; t < x.count; ++t) {
        const float *a = x.a + t * width, *k = x.k + t * width, *q = x.q + t * width, *next = x.ak + (t + 1) * width;
        const F beta = simd::all(x.beta[t]);
        for (int i = 0; i < V; ++i) {
            write[i] = simd::mul(beta, simd::fma(simd::all(-1.0f), read[i], simd::load(v + t * width + i * kLanes)));
            read[i] = out[i] = simd::zero();
        }
        if (t + 1 < x.count)
            for (int row = 0; row < width; ++row)
                for (int i = 0; i < V; ++i)
                    update<true, half>(state + row * lds + i * kLanes, simd::all(a[row]), simd::all(k[row]), write[i],
                                 simd::all(q[row]), simd::all(next[row]), out[i], read[i]);
        else
            for (int row = 0; row < width; ++row)
                for (int i = 0; i < V; ++i)
                    update<false, half>(state + row * lds + i * kLanes, simd::all(a[row]), simd::all(k[row]), write[i],
                                  simd::all(q[row]), simd::zero(), out[i], read[i]);
        for (int i = 0; i < V; ++i) simd::store(o + t * width + i * kLanes, out[i]);
    }
}

// The same where several tokens come: the channels' part of the state, whose rows lie far apart, is copied together so
// that it stays in the first cache level.
template <int V, bool half>
void packed_steps(float *state, int width, const Tokens &x, int first, float *room) {
    constexpr int n = V * kLanes;
    if (x.count < 4) return steps<V, half>(state + first, width, width, x, x.v + first, x.o + first);
    for (int row = 0; row < width; ++row) std::memcpy(room + row * n, state + row * width + first, n * sizeof(float));
    steps<V, half>(room, n, width, x, x.v + first, x.o + first);
    for (int row = 0; row < width; ++row) std::memcpy(state + row * width + first, room + row * n, n * sizeof(float));
}

// The channels from `begin` on, which fill no vector.
template <bool half>
void rest(float *state, int width, int begin, const Tokens &x) {
    for (long t = 0; t < x.count; ++t) {
        const float *a = x.a + t * width, *k = x.k + t * width, *q = x.q + t * width, *ak = x.ak + t * width;
        for (int c = begin; c < width; ++c) {
            float read = 0, out = 0;
            for (int row = 0; row < width; ++row) read += ak[row] * state[row * width + c];
            const float write = x.beta[t] * (x.v[t * width + c] - read);
            for (int row = 0; row < width; ++row) {
                float &kept = state[row * width + c];
                const float s = a[row] * kept + k[row] * write;
                kept = half ? simd::value(simd::to_bf16(s)) : s;
                out += q[row] * s;
            }
            x.o[t * width + c] = out;
        }
    }
}

// One token's inputs of the recurrence.
void prepare(const KdaHead &h, long t, const Tokens &x, long at) {
    const int width = h.width;
    float *q = x.q + at * width, *k = x.k + at * width, *a = x.a + at * width, *ak = x.ak + at * width;
    convolve(h, h.q, h.q_tail, h.q_taps, t, q);
    convolve(h, h.k, h.k_tail, h.k_taps, t, k);
    convolve(h, h.v, h.v_tail, h.v_taps, t, x.v + at * width);
    normalise(q, width, h.l2_eps, 1.0f / std::sqrt(static_cast<float>(width)));
    normalise(k, width, h.l2_eps, 1.0f);
    decay(h, h.z + t * h.z_stride, a);
    for (int i = 0; i < width; ++i) ak[i] = a[i] * k[i];
    x.beta[at] = fast_sigmoid(h.b[t * h.b_stride]);
}

template <bool half>
void recur(const KdaHead &h, const Tokens &x, float *room) {
    const int width = h.width;
    int c = 0;
    for (; c + 4 * kLanes <= width; c += 4 * kLanes) packed_steps<4, half>(h.state, width, x, c, room);
    for (; c + kLanes <= width; c += kLanes) packed_steps<1, half>(h.state, width, x, c, room);
    if (c < width) rest<half>(h.state, width, c, x);
}

void finish(const KdaHead &h, long t, const float *o) {
    const float inverse = 1.0f / std::sqrt(simd::squares(o, h.width) / static_cast<float>(h.width) + h.norm_eps);
    const float *gate = h.gate + t * h.z_stride;
    float *out = h.o + t * h.z_stride;
    for (int i = 0; i < h.width; ++i) out[i] = o[i] * inverse * h.norm[i] * fast_sigmoid(gate[i]);
}

}  // namespace

long kda_scratch(int width) { return kChunk * (6L * width + 1) + 4L * kLanes * width; }

void kda_head(const KdaHead &h, float *scratch) {
    const int width = h.width;
    const long rows = kChunk * static_cast<long>(width);
    Tokens x{0,
             scratch,
             scratch + rows,
             scratch + 2 * rows,
             scratch + 3 * rows,
             scratch + 4 * rows,
             scratch + 5 * rows,
             scratch + 6 * rows};
    float *room = x.beta + kChunk;
    for (long first = 0; first < h.tokens; first += kChunk) {
        x.count = std::min(kChunk, h.tokens - first);
        for (long t = 0; t < x.count; ++t) prepare(h, first + t, x, t);
        if (h.half_state) recur<true>(h, x, room);
        else recur<false>(h, x, room);
        for (long t = 0; t < x.count; ++t) finish(h, first + t, x.o + t * width);
    }
    keep_tail(h, h.q, h.q_tail);
    keep_tail(h, h.k, h.k_tail);
    keep_tail(h, h.v, h.v_tail);
}
