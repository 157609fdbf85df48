// One chunk of one head: its buffers, and what can be computed before the state is known.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "train/kda.h"
#include "train/kda_tile.h"
#include "train/vmath.h"

namespace kda {

constexpr int C = KDA_CHUNK;

// Floats between two buffers: without them buffers would start whole pages apart and share cache sets.
constexpr size_t GAP = 80;

// What belongs to one head and lasts from chunk to chunk.
struct Head {
    const float *x[3], *z, *b, *gate;  // first token of this row of the batch, this head's channels
    ptrdiff_t x_row[3], z_row, b_row, gate_row;
    float a;                              // exp(A_log)
    float *taps_of[3], *bias;             // [taps, Kp], [Kp]
    float *state;                         // [Kp, Kp]
    float *enter, *leave;                 // decay from before the chunk to its middle, and on to its end [Kp]
    // Backward only; d_state is dL/d(state), and so on.
    float *d_state, *d_last, *d_bias, *d_norm, *d_a;  // [Kp, Kp], [Kp]
    float *carry[3], *d_taps[3];                      // [taps, Kp]
};

// One head's chunk: the head in turn and the buffers that heads share.  Rows are Kp wide; padding channels hold
// zeros, and so do padding tokens in what enters a product.
struct Work : Head {
    int k, kp, taps;
    std::vector<Head> heads;
    float *norm_weight, *zeros, *sum, *pending;   // [Kp]
    float *y[3], *y_slope[3];                     // SiLU of the convolution and its derivative [C, Kp]
    float *g, *slope, *per_a, *grow, *shrink;     // log decay, its derivatives, exp(G), exp(-G) [C, Kp]
    float *left, *right, *right_t;                // [q; k] exp(G) [2C, Kp], k exp(-G) [C, Kp] and transposed
    float *pairs;                                 // decayed products of q and k rows with k [2C, C], lower
    float *read, *spare;                          // [2C, Kp], one chunk as it is kept
    float *d_pre[3], *state_t, *d_out, *d_left, *d_right, *d_pairs, *written_t, *d_written;
    float beta[C], inverse_norm[2][C], d_same[C];
    std::vector<float> store;

    Work(int width, int num_taps, int num_heads);
    void turn_to(int head) { static_cast<Head &>(*this) = heads[head]; }
    void enter_row(const KdaInputs &in, int row);
};

inline Work::Work(int width, int num_taps, int num_heads)
    : k(width), kp(kda_padded(width)), taps(num_taps), heads(num_heads) {
    const size_t row = kp, chunk = (size_t)C * kp, square = (size_t)kp * kp, ahead = (size_t)taps * kp;
    std::vector<std::pair<float **, size_t>> parts;
    for (int i = 0; i < 3; ++i) {
        for (float **p : {&y[i], &y_slope[i]}) parts.emplace_back(p, chunk);
        parts.emplace_back(&d_pre[i], chunk + ahead);
    }
    for (float **p : {&norm_weight, &zeros, &sum, &pending}) parts.emplace_back(p, row);
    for (float **p : {&g, &slope, &per_a, &grow, &shrink, &right, &right_t, &written_t, &d_right, &d_written}) {
        parts.emplace_back(p, chunk);
    }
    for (float **p : {&left, &read, &d_left, &d_out}) parts.emplace_back(p, 2 * chunk);
    for (float **p : {&pairs, &d_pairs}) parts.emplace_back(p, (size_t)2 * C * C);
    parts.emplace_back(&state_t, square);
    parts.emplace_back(&spare, kda_kept(width));
    for (Head &h : heads) {
        for (float **p : {&h.state, &h.d_state}) parts.emplace_back(p, square);
        for (float **p : {&h.bias, &h.enter, &h.leave, &h.d_last, &h.d_bias, &h.d_norm, &h.d_a}) {
            parts.emplace_back(p, row);
        }
        for (int i = 0; i < 3; ++i) {
            for (float **p : {&h.taps_of[i], &h.carry[i], &h.d_taps[i]}) parts.emplace_back(p, ahead);
        }
    }
    size_t total = 16;
    for (auto &part : parts) total += part.second + GAP;
    store.assign(total, 0.0f);
    float *next = store.data();
    while ((uintptr_t)next % 64) ++next;
    for (auto &part : parts) {
        *part.first = next;
        next += part.second + GAP;
    }
}

inline void Work::enter_row(const KdaInputs &in, int row) {
    std::copy_n(in.norm_weight, k, norm_weight);
    for (size_t n = 0; n < heads.size(); ++n) {
        Head &h = heads[n];
        const size_t at = n * k;
        for (int i = 0; i < 3; ++i) {
            h.x[i] = in.x[i].data + row * in.x[i].batch + at;
            h.x_row[i] = in.x[i].row;
            for (int d = 0; d < k; ++d) {
                for (int j = 0; j < taps; ++j) h.taps_of[i][j * kp + d] = in.taps[i][(at + d) * taps + j];
            }
        }
        h.z = in.z.data + row * in.z.batch + at;
        h.gate = in.gate.data + row * in.gate.batch + at;
        h.b = in.b.data + row * in.b.batch + n;
        h.z_row = in.z.row, h.gate_row = in.gate.row, h.b_row = in.b.row;
        h.a = std::exp(in.a_log[n]);
        std::copy_n(in.dt_bias + at, k, h.bias);
    }
}

// One row of the convolution's sum; source[j] belongs to tap j, whose weights are weight + j * ldw.
inline void convolve_row(int n, int taps, const float *const *source, const float *weight, int ldw,
                         float *__restrict to) {
    if (taps == 4) {
        const float *x0 = source[0], *x1 = source[1], *x2 = source[2], *x3 = source[3];
        const float *w0 = weight, *w1 = w0 + ldw, *w2 = w1 + ldw, *w3 = w2 + ldw;
#pragma GCC ivdep
        for (int d = 0; d < n; ++d) to[d] = (w0[d] * x0[d] + w1[d] * x1[d]) + (w2[d] * x2[d] + w3[d] * x3[d]);
        return;
    }
    std::fill_n(to, n, 0.0f);
    for (int j = 0; j < taps; ++j) {
        const float *x = source[j], *by = weight + j * ldw;
#pragma GCC ivdep
        for (int d = 0; d < n; ++d) to[d] += by[d] * x[d];
    }
}

// Asks for rows that will be needed a chunk later; whole heads are too far apart for the processor to guess.
inline void prefetch(const float *from, ptrdiff_t row, int rows, int width) {
    for (int t = 0; t < rows; ++t) {
        for (int d = 0; d < width; d += 16) __builtin_prefetch(from + t * row + d, 0, 2);
    }
}

inline void prefetch_inputs(const Work &w, int start, int len) {
    for (int i = 0; i < 3; ++i) prefetch(w.x[i] + start * w.x_row[i], w.x_row[i], len, w.k);
    prefetch(w.z + start * w.z_row, w.z_row, len, w.k);
    prefetch(w.gate + start * w.gate_row, w.gate_row, len, w.k);
}

template <bool SLOPES>
void convolve(Work &w, int i, int start, int len) {
    const int n = w.k;
    const float *source[64];
    for (int t = 0; t < len; ++t) {
        for (int j = 0; j < w.taps; ++j) {
            const int token = start + t - w.taps + 1 + j;
            source[j] = token < 0 ? w.zeros : w.x[i] + token * w.x_row[i];
        }
        float *__restrict y = w.y[i] + t * w.kp, *__restrict slope = w.y_slope[i] + t * w.kp;
        convolve_row(n, w.taps, source, w.taps_of[i], w.kp, y);
#pragma GCC ivdep
        for (int d = 0; d < n; ++d) {
            const float pre = y[d], sg = fast_sigmoid(pre), silu = pre * sg;
            y[d] = silu;
            if (SLOPES) slope[d] = sg + silu * (1.0f - sg);
        }
    }
    std::fill(w.y[i] + len * w.kp, w.y[i] + C * w.kp, 0.0f);
}

// g of one token and its derivatives: by z, and by A_log.
inline void decay_row(const KdaShape &s, float a, int n, const float *z, const float *bias, float *__restrict g,
               float *__restrict slope, float *__restrict per_a) {
    if (s.bounded) {
        const float bound = s.bound;
#pragma GCC ivdep
        for (int d = 0; d < n; ++d) {
            // 1 - sigmoid as fading * sg: the difference itself would lose the digits of a saturated gate.
            // Kept below the overflow of exp: infinity times a gate of zero would be no number.
            const float zb = z[d] + bias[d], fading = fast_exp(std::min(-a * zb, 80.0f));
            const float sg = 1.0f / (1.0f + fading);
            const float by_z = bound * a * sg * (fading * sg);
            g[d] = bound * sg;
            slope[d] = by_z;
            per_a[d] = by_z * zb;
        }
        return;
    }
#pragma GCC ivdep
    for (int d = 0; d < n; ++d) {
        const float zb = z[d] + bias[d];
        g[d] = -a * (std::max(zb, 0.0f) + std::log1p(fast_exp(-std::fabs(zb))));
        slope[d] = -a * fast_sigmoid(zb);
        per_a[d] = g[d];
    }
}

// left and right of token t, whose G relative to the middle token is in w.sum.
template <bool SLOPES>
inline void factors(const KdaShape &s, Work &w, int t, float scale) {
    const int kp = w.kp;
    float *__restrict q = w.y[0] + t * kp, *__restrict k = w.y[1] + t * kp;
    float *__restrict left_q = w.left + t * kp, *__restrict left_k = w.left + (C + t) * kp;
    float *__restrict right = w.right + t * kp;
    float *__restrict grow = w.grow + t * kp, *__restrict shrink = w.shrink + t * kp;
    const float *sum = w.sum;
    const float by_q = w.inverse_norm[0][t] = 1.0f / std::sqrt(dot(kp, q, q) + s.l2_eps);
    const float by_k = w.inverse_norm[1][t] = 1.0f / std::sqrt(dot(kp, k, k) + s.l2_eps);
#pragma GCC ivdep
    for (int d = 0; d < kp; ++d) {
        const float up = fast_exp(sum[d]), down = 1.0f / up, unit_q = q[d] * by_q, unit_k = k[d] * by_k;
        grow[d] = up;
        if (SLOPES) {
            shrink[d] = down;
            q[d] = unit_q;
            k[d] = unit_k;
        }
        left_q[d] = unit_q * scale * up;
        left_k[d] = unit_k * up;
        right[d] = unit_k * down;
    }
}

// G is summed outwards from the middle token, so that neighbours differ by exactly their own decay.
template <bool SLOPES>
void decayed_factors(const KdaShape &s, Work &w, int len) {
    const int kp = w.kp, middle = len / 2;
    const float scale = 1.0f / std::sqrt((float)w.k);
    float *__restrict sum = w.sum, *__restrict enter = w.enter;
    std::fill_n(sum, kp, 0.0f);
    for (int t = middle; t < len; ++t) {
        const float *g = w.g + t * kp;
        if (t > middle) {
#pragma GCC ivdep
            for (int d = 0; d < kp; ++d) sum[d] += g[d];
        }
        factors<SLOPES>(s, w, t, scale);
    }
    std::copy_n(w.grow + (len - 1) * kp, kp, w.leave);
    std::fill_n(sum, kp, 0.0f);
    for (int t = middle - 1; t >= 0; --t) {
        const float *g = w.g + (t + 1) * kp;
#pragma GCC ivdep
        for (int d = 0; d < kp; ++d) sum[d] -= g[d];
        factors<SLOPES>(s, w, t, scale);
    }
#pragma GCC ivdep
    for (int d = 0; d < kp; ++d) enter[d] = fast_exp(w.g[d] - sum[d]);
    for (int half = 0; half < 2; ++half) {
        std::fill(w.left + (half * C + len) * kp, w.left + (half + 1) * C * kp, 0.0f);
    }
    std::fill(w.right + len * kp, w.right + C * kp, 0.0f);
}

// Clears what a [2C, C] matrix of pairs holds of later tokens, and its lower half's diagonal.
inline void keep_lower(float *pairs) {
    for (int i = 0; i < C; ++i) {
        std::fill(pairs + i * C + i + 1, pairs + i * C + C, 0.0f);
        std::fill(pairs + (C + i) * C + i, pairs + (C + i) * C + C, 0.0f);
    }
}

// Everything of a chunk that does not depend on the state; SLOPES adds what backward needs.
template <bool SLOPES>
void load(const KdaShape &s, Work &w, int start, int len) {
    const int kp = w.kp;
    for (int i = 0; i < 3; ++i) convolve<SLOPES>(w, i, start, len);
    for (int t = 0; t < len; ++t) {
        const int e = t * kp;
        decay_row(s, w.a, w.k, w.z + (start + t) * w.z_row, w.bias, w.g + e, w.slope + e, w.per_a + e);
        w.beta[t] = fast_sigmoid(w.b[(start + t) * w.b_row]);
    }
    std::fill(w.beta + len, w.beta + C, 0.0f);
    decayed_factors<SLOPES>(s, w, len);
    transpose(C, kp, w.right, kp, w.right_t, C);
    product<false>(2 * C, C, kp, w.left, kp, 1, w.right_t, C, w.pairs, C, nullptr);
    keep_lower(w.pairs);
}

}  // namespace kda
