#include "train/kda.h"

#include <algorithm>
#include <cmath>
#include <memory>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "train/kda_chunk.h"

namespace {

using namespace kda;
constexpr float MAX_EXPONENT = 45.0f;  // of a factor exp(G_i - G_middle); a product of two stays finite

// Decays reach the denormal range, where arithmetic is slow and the values no longer matter.
class FlushDenormals {
  public:
#if defined(__SSE__)
    FlushDenormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before); }

  private:
    unsigned before;
#else
    FlushDenormals() {}
    ~FlushDenormals() {}
#endif
};

// The calling thread's buffers.  Padding stays zero from one use to the next.
Work &workplace(const KdaShape &s) {
    thread_local std::unique_ptr<Work> work;
    if (!work || work->k != s.width || work->taps != s.taps || (int)work->heads.size() != s.heads) {
        work = std::make_unique<Work>(s.width, s.taps, s.heads);
    }
    return *work;
}

// to = rows of from, each times its channel's factor.
inline void scale_rows(int kp, const float *from, const float *factor, float *to) {
    for (int d = 0; d < kp; ++d) {
        const float f = factor[d], *x = from + d * kp;
        float *y = to + d * kp;
#pragma GCC ivdep
        for (int v = 0; v < kp; ++v) y[v] = x[v] * f;
    }
}

// Head norm and gate of a chunk; mixed is [C, Kp].
void norm_out(const KdaShape &s, const Work &w, int start, int len, const float *mixed, float *out, ptrdiff_t row) {
    const float *by = w.norm_weight;
    for (int t = 0; t < len; ++t) {
        const float *o = mixed + t * w.kp, *gate = w.gate + (start + t) * w.gate_row;
        float *__restrict to = out + (start + t) * row;
        const float inverse = 1.0f / std::sqrt(dot(w.kp, o, o) / (float)w.k + s.norm_eps);
#pragma GCC ivdep
        for (int d = 0; d < w.k; ++d) to[d] = o[d] * inverse * by[d] * fast_sigmoid(gate[d]);
    }
}

// From the state before the chunk (w.state) to the one after it, still without the chunk's last decay, which is
// left in w.leave; kept as kda_kept describes it.
void forward_chunk(const KdaShape &s, Work &w, int start, int len, float *kept) {
    const int kp = w.kp;
    float *state = kept, *written = kept + kp * kp, *mixed = written + C * kp, *read = w.read;
    std::copy_n(w.leave, kp, w.pending);
    load<false>(s, w, start, len);
    for (int d = 0; d < kp; ++d) w.pending[d] *= w.enter[d];
    scale_rows(kp, w.state, w.pending, state);
    product<false>(C, kp, kp, w.left, kp, 1, state, kp, mixed, kp, nullptr);
    product<false>(C, kp, kp, w.left + C * kp, kp, 1, state, kp, read, kp, nullptr);
    // Forward substitution: row i of (I + diag(beta) kk) written = beta (v - k S).
    for (int i = 0; i < C; ++i) {
        float *__restrict to = written + i * kp;
        const float *v = w.y[2] + i * kp, *r = read + i * kp, *pairs = w.pairs + (C + i) * C, beta = w.beta[i];
        for (int d = 0; d < kp; d += 16) {
            Vector sum[VECTORS];
            for (int n = 0; n < VECTORS; ++n) {
                sum[n] = *(const Vector *)(v + d + n * LANES) - *(const Vector *)(r + d + n * LANES);
            }
            for (int j = 0; j < i; ++j) {
                for (int n = 0; n < VECTORS; ++n) {
                    sum[n] -= pairs[j] * *(const Vector *)(written + j * kp + d + n * LANES);
                }
            }
            for (int n = 0; n < VECTORS; ++n) *(Vector *)(to + d + n * LANES) = sum[n] * beta;
        }
    }
    product<true>(C, kp, C, w.pairs, C, 1, written, kp, mixed, kp, mixed);
    product<true>(kp, kp, C, w.right_t, C, 1, written, kp, w.state, kp, state);
}

// Gradient of the head norm: d_out's first C rows become dL/d(mixed).
void norm_backward(const KdaShape &s, Work &w, int start, int len, const float *grad, const float *mixed,
                   float *d_gate, ptrdiff_t row) {
    const int kp = w.kp, k = w.k;
    std::fill(w.d_out + len * kp, w.d_out + C * kp, 0.0f);
    for (int t = 0; t < len; ++t) {
        const ptrdiff_t at = (start + t) * row;
        const float *gate = w.gate + (start + t) * w.gate_row, *o = mixed + t * kp;
        const float *gradient = grad + at, *by = w.norm_weight;
        float *__restrict unit = w.d_right, *__restrict h = w.d_out + t * kp, *__restrict to = d_gate + at;
        float *__restrict d_norm = w.d_norm;
        const float inverse = 1.0f / std::sqrt(dot(kp, o, o) / (float)k + s.norm_eps);
#pragma GCC ivdep
        for (int d = 0; d < k; ++d) {
            const float sg = fast_sigmoid(gate[d]), gated = gradient[d] * sg, n = o[d] * inverse;
            unit[d] = n;
            h[d] = gated * by[d];
            to[d] = gated * by[d] * n * (1.0f - sg);
            d_norm[d] += gated * n;
        }
        std::fill(unit + k, unit + kp, 0.0f);
        const float along = dot(kp, h, unit) / (float)k;
#pragma GCC ivdep
        for (int d = 0; d < kp; ++d) h[d] = inverse * (h[d] - unit[d] * along);
    }
}

// Back substitution with the transposed triangular matrix; what reaches v is beta times the solution, stored
// negated in d_out's last C rows.
void substitute_back(Work &w, const float *written, int len, float *d_b, ptrdiff_t b_row) {
    const int kp = w.kp;
    float *down = w.d_out + C * kp;
    for (int i = C - 1; i >= 0; --i) {
        float *u = w.d_written + i * kp;
        const float *pairs = w.pairs + C * C + i, beta = w.beta[i];
        for (int d = 0; d < kp; d += 16) {
            Vector sum[VECTORS];
            for (int n = 0; n < VECTORS; ++n) sum[n] = *(const Vector *)(u + d + n * LANES);
            for (int j = i + 1; j < C; ++j) {
                for (int n = 0; n < VECTORS; ++n) {
                    sum[n] += pairs[j * C] * *(const Vector *)(down + j * kp + d + n * LANES);
                }
            }
            for (int n = 0; n < VECTORS; ++n) {
                *(Vector *)(u + d + n * LANES) = sum[n];
                *(Vector *)(down + i * kp + d + n * LANES) = sum[n] * -beta;
            }
        }
        if (i < len) d_b[i * b_row] = (1.0f - beta) * dot(kp, u, written + i * kp);
    }
}

// From dL/d(mixed) to the gradients of left, right, v (negated, in d_out's last C rows) and b, and of the state
// (at the middle token's decay).  On entry d_state is dL/d(state) at the chunk's last token.
void recurrence_backward(Work &w, const float *state, const float *written, int len, float *d_b, ptrdiff_t b_row) {
    const int kp = w.kp;
    product<false>(C, kp, kp, w.right, kp, 1, w.d_state, kp, w.d_written, kp, nullptr);
    product<true>(C, kp, C, w.pairs, 1, C, w.d_out, kp, w.d_written, kp, w.d_written);
    substitute_back(w, written, len, d_b, b_row);
    transpose(C, kp, written, kp, w.written_t, C);
    product<false>(2 * C, C, kp, w.d_out, kp, 1, w.written_t, C, w.d_pairs, C, nullptr);
    keep_lower(w.d_pairs);
    for (int i = 0; i < C; ++i) {
        w.d_same[i] = w.d_pairs[i * C + i];
        w.d_pairs[i * C + i] = 0.0f;
    }
    transpose(kp, kp, state, kp, w.state_t, kp);
    product<false>(2 * C, kp, kp, w.d_out, kp, 1, w.state_t, kp, w.d_left, kp, nullptr);
    product<true>(2 * C, kp, C, w.d_pairs, C, 1, w.right, kp, w.d_left, kp, w.d_left);
    transpose(kp, kp, w.d_state, kp, w.state_t, kp);
    product<false>(C, kp, kp, written, kp, 1, w.state_t, kp, w.d_right, kp, nullptr);
    product<true>(C, kp, 2 * C, w.d_pairs, 1, C, w.left, kp, w.d_right, kp, w.d_right);
    product<true>(kp, kp, 2 * C, w.left, 1, kp, w.d_out, kp, w.d_state, kp, w.d_state);
}

// From left, right and v to the decay's z and the convolution sums.
void factors_backward(Work &w, int len, float *d_z, ptrdiff_t row, float *d_a) {
    const int kp = w.kp;
    const float scale = 1.0f / std::sqrt((float)w.k);
    float *__restrict sum = w.d_last, *__restrict d_bias = w.d_bias;  // sum: dL/dG from the chunk's end, dL/dg
    for (int t = len - 1; t >= 0; --t) {
        const float *lq = w.left + t * kp, *lk = w.left + (C + t) * kp, *r = w.right + t * kp;
        const float *dq = w.d_left + t * kp, *dk = w.d_left + (C + t) * kp, *dr = w.d_right + t * kp;
        const float *grow = w.grow + t * kp, *shrink = w.shrink + t * kp;
        const float *slope = w.slope + t * kp, *per_a = w.per_a + t * kp;
        const float *q = w.y[0] + t * kp, *k = w.y[1] + t * kp, *down = w.d_out + (C + t) * kp;
        const float *slope_q = w.y_slope[0] + t * kp, *slope_k = w.y_slope[1] + t * kp;
        const float *slope_v = w.y_slope[2] + t * kp;
        float *__restrict to_q = w.d_pre[0] + t * kp, *__restrict to_k = w.d_pre[1] + t * kp;
        float *__restrict to_v = w.d_pre[2] + t * kp, *__restrict by_a = d_a, *__restrict to_z = d_z + t * row;
        // A token's product with itself knows no decay; through left and right it would only add noise to dL/dG.
        const float same = w.d_same[t] * scale;
#pragma GCC ivdep
        for (int d = 0; d < kp; ++d) {
            const float by_g = sum[d] + (lq[d] * dq[d] + lk[d] * dk[d] - r[d] * dr[d]);
            sum[d] = by_g;
            by_a[d] += by_g * per_a[d];
            to_q[d] = dq[d] * grow[d] * scale + same * k[d];
            to_k[d] = dk[d] * grow[d] + dr[d] * shrink[d] + same * q[d];
            to_v[d] = -down[d] * slope_v[d];
        }
#pragma GCC ivdep
        for (int d = 0; d < w.k; ++d) {
            const float by_z = sum[d] * slope[d];
            to_z[d] = by_z;
            d_bias[d] += by_z;
        }
        const float along_q = dot(kp, q, to_q), along_k = dot(kp, k, to_k);
        const float norm_q = w.inverse_norm[0][t], norm_k = w.inverse_norm[1][t];
#pragma GCC ivdep
        for (int d = 0; d < kp; ++d) {
            to_q[d] = norm_q * (to_q[d] - q[d] * along_q) * slope_q[d];
            to_k[d] = norm_k * (to_k[d] - k[d] * along_k) * slope_k[d];
        }
    }
}

// What one token's sum d adds to the gradient of the taps.
void taps_row(int n, int taps, const float *const *source, const float *d, int ldw, float *__restrict to) {
    if (taps == 4) {
        const float *x0 = source[0], *x1 = source[1], *x2 = source[2], *x3 = source[3];
        float *__restrict t0 = to, *__restrict t1 = t0 + ldw, *__restrict t2 = t1 + ldw, *__restrict t3 = t2 + ldw;
#pragma GCC ivdep
        for (int e = 0; e < n; ++e) {
            t0[e] += d[e] * x0[e];
            t1[e] += d[e] * x1[e];
            t2[e] += d[e] * x2[e];
            t3[e] += d[e] * x3[e];
        }
        return;
    }
    for (int j = 0; j < taps; ++j) {
        const float *x = source[j];
        float *__restrict sum = to + j * ldw;
#pragma GCC ivdep
        for (int e = 0; e < n; ++e) sum[e] += d[e] * x[e];
    }
}

// From the convolution sums to its input and taps.  A chunk's first sums also reach the tokens before it, so
// they are carried to the chunk that is processed next.
void convolve_backward(Work &w, int i, int start, int len, float *d_x, ptrdiff_t row) {
    const int kp = w.kp, taps = w.taps, behind = taps - 1;
    std::copy_n(w.carry[i], behind * kp, w.d_pre[i] + len * kp);
    const float *past[64], *ahead[64];
    for (int t = 0; t < len; ++t) {
        for (int j = 0; j < taps; ++j) {
            const int token = start + t - behind + j;
            past[j] = token < 0 ? w.zeros : w.x[i] + token * w.x_row[i];
            ahead[j] = w.d_pre[i] + (t + behind - j) * kp;
        }
        convolve_row(w.k, taps, ahead, w.taps_of[i], kp, d_x + t * row);
        taps_row(w.k, taps, past, w.d_pre[i] + t * kp, kp, w.d_taps[i]);
    }
    std::copy_n(w.d_pre[i], behind * kp, w.carry[i]);
}

void prefetch_backward(const KdaShape &s, const Work &w, int start, int len, const float *kept, const float *grad,
                       const KdaGradients &to) {
    const ptrdiff_t row = (ptrdiff_t)s.heads * s.width, at = start * row;
    prefetch_inputs(w, start, len);
    prefetch(kept, w.kp, (int)(kda_kept(s.width) / w.kp), w.kp);
    for (const float *p : {grad, (const float *)to.x[0], (const float *)to.x[1], (const float *)to.x[2],
                           (const float *)to.z, (const float *)to.gate}) {
        prefetch(p + at, row, len, w.k);
    }
}

// One chunk of the head in turn; the chunk after it has been processed.
void backward_chunk(const KdaShape &s, Work &w, int start, int len, const float *kept, const float *grad,
                    const KdaGradients &to) {
    const int kp = w.kp;
    const ptrdiff_t row = (ptrdiff_t)s.heads * s.width, at = start * row;
    const float *state = kept, *written = state + kp * kp, *mixed = written + C * kp;
    std::copy_n(w.enter, kp, w.pending);
    load<true>(s, w, start, len);
    for (int d = 0; d < kp; ++d) w.pending[d] *= w.leave[d];
    scale_rows(kp, w.d_state, w.pending, w.d_state);
    norm_backward(s, w, start, len, grad, mixed, to.gate, row);
    recurrence_backward(w, state, written, len, to.b + (ptrdiff_t)start * s.heads, s.heads);
    factors_backward(w, len, to.z + at, row, w.d_a);
    for (int i = 0; i < 3; ++i) convolve_backward(w, i, start, len, to.x[i] + at, row);
    // The decay that ends the chunk before acts on the whole state: dL/dG = rows of S dS.
    for (int d = 0; d < kp; ++d) w.d_last[d] = dot(kp, state + d * kp, w.d_state + d * kp);
}

void start_backward(Work &w) {
    for (const Head &h : w.heads) {
        for (float *p : {h.d_last, h.d_bias, h.d_norm, h.enter, h.d_a}) std::fill_n(p, w.kp, 0.0f);
        for (int i = 0; i < 3; ++i) {
            std::fill_n(h.carry[i], w.taps * w.kp, 0.0f);
            std::fill_n(h.d_taps[i], w.taps * w.kp, 0.0f);
        }
        std::fill_n(h.d_state, (size_t)w.kp * w.kp, 0.0f);
    }
}

// Adds what a row of the batch gathered for the parameters.
void finish_backward(const Work &w, const KdaGradients &to) {
    for (size_t n = 0; n < w.heads.size(); ++n) {
        const Head &h = w.heads[n];
        for (int d = 0; d < w.k; ++d) {
            const size_t channel = n * w.k + d;
            to.a_log[n] += h.d_a[d];
            to.dt_bias[channel] += h.d_bias[d];
            to.norm_weight[d] += h.d_norm[d];
            for (int i = 0; i < 3; ++i) {
                for (int j = 0; j < w.taps; ++j) to.taps[i][channel * w.taps + j] += h.d_taps[i][j * w.kp + d];
            }
        }
    }
}

// The gradients as head `head` of row `row` sees them.
KdaGradients of_head(const KdaShape &s, KdaGradients to, int row, int head) {
    const ptrdiff_t at = (ptrdiff_t)row * s.tokens * s.heads * s.width + head * s.width;
    for (int i = 0; i < 3; ++i) to.x[i] += at;
    to.z += at, to.gate += at;
    to.b += (ptrdiff_t)row * s.tokens * s.heads + head;
    return to;
}

// The chunks of one row when decays have no useful bound: as long as every channel of every head allows.
int plan_row(const KdaShape &s, Work &w, int32_t *starts) {
    int count = 0, len = 0;
    for (const Head &h : w.heads) std::fill_n(h.enter, w.kp, 0.0f);
    for (int t = 0; t < s.tokens; ++t) {
        float lowest = 0.0f;
        for (const Head &h : w.heads) {
            decay_row(s, h.a, w.k, h.z + t * h.z_row, h.bias, w.g, w.slope, w.per_a);
            for (int d = 0; d < w.k; ++d) {
                h.enter[d] += w.g[d];
                lowest = std::min(lowest, h.enter[d]);
            }
        }
        if (len == 0 || len == C || lowest < -MAX_EXPONENT) {
            starts[count++] = t;
            len = 0;
            for (const Head &h : w.heads) std::fill_n(h.enter, w.kp, 0.0f);
        }
        ++len;
    }
    return count;
}

}  // namespace

int64_t kda_plan(const KdaShape &s, const KdaInputs &in, KdaChunks chunks) {
    const bool even = s.bounded && -s.bound * (C / 2) <= MAX_EXPONENT;
    int64_t total = 0;
    for (int row = 0; row < s.batch; ++row) {
        int32_t *starts = chunks.starts + (size_t)row * (s.tokens + 1);
        int count = 0;
        if (even) {
            for (int t = 0; t < s.tokens; t += C) starts[count++] = t;
        } else {
            Work &w = workplace(s);
            w.enter_row(in, row);
            count = plan_row(s, w, starts);
        }
        starts[count] = s.tokens;
        chunks.counts[row] = count;
        total += count;
    }
    return total * s.heads;
}

void kda_forward(const KdaShape &s, const KdaInputs &in, KdaChunks chunks, float *kept, float *out) {
    FlushDenormals flush;
    Work &w = workplace(s);
    const ptrdiff_t stride = (ptrdiff_t)s.heads * s.width;
    for (int row = 0; row < s.batch; ++row) {
        const int32_t *starts = chunks.starts + (size_t)row * (s.tokens + 1);
        const int count = chunks.counts[row];
        w.enter_row(in, row);
        for (const Head &h : w.heads) {
            std::fill_n(h.state, (size_t)w.kp * w.kp, 0.0f);
            std::fill_n(h.leave, w.kp, 0.0f);
        }
        for (int n = 0; n < count; ++n) {
            const int start = starts[n], end = starts[n + 1], ahead = n + 1 < count ? starts[n + 2] - end : 0;
            for (int head = 0; head < s.heads; ++head) {
                float *to = out + (ptrdiff_t)row * s.tokens * stride + head * s.width;
                float *chunk = kept ? kept : w.spare;
                w.turn_to(head);
                prefetch_inputs(w, end, ahead);
                prefetch(to + end * stride, stride, ahead, s.width);
                forward_chunk(s, w, start, end - start, chunk);
                norm_out(s, w, start, end - start, chunk + (w.kp + C) * w.kp, to, stride);
                if (kept) kept += kda_kept(s.width);
            }
        }
    }
}

void kda_backward(const KdaShape &s, const KdaInputs &in, KdaChunks chunks, const float *kept,
                  const float *grad_out, KdaGradients to) {
    FlushDenormals flush;
    Work &w = workplace(s);
    const size_t of_chunk = kda_kept(s.width);
    for (int row = 0; row < s.batch; ++row) {
        const int32_t *starts = chunks.starts + (size_t)row * (s.tokens + 1);
        w.enter_row(in, row);
        start_backward(w);
        for (int n = chunks.counts[row] - 1; n >= 0; --n) {
            const int start = starts[n], before = n > 0 ? starts[n - 1] : 0;
            for (int head = 0; head < s.heads; ++head) {
                const float *chunk = kept + ((size_t)n * s.heads + head) * of_chunk;
                const float *grad = grad_out + ((ptrdiff_t)row * s.tokens * s.heads + head) * s.width;
                const KdaGradients mine = of_head(s, to, row, head);
                w.turn_to(head);
                if (n > 0) prefetch_backward(s, w, before, start - before, chunk - s.heads * of_chunk, grad, mine);
                backward_chunk(s, w, start, starts[n + 1] - start, chunk, grad, mine);
            }
        }
        finish_backward(w, to);
        kept += (size_t)chunks.counts[row] * s.heads * of_chunk;
    }
}
