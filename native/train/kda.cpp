#include "train/kda.h"

#include <algorithm>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "train/kda_tile.h"

namespace {

using namespace kda;
constexpr int C = KDA_CHUNK;
constexpr float MAX_EXPONENT = 45.0f;  // of a factor exp(G_i - G_middle); a product of two stays finite

// Decays reach the denormal range, where arithmetic is slow and the values no longer matter.
class FlushDenormals {
  public:
#if defined(__SSE__)
    FlushDenormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before); }

  private:
    unsigned before;
#endif
};

// The buffers of one head and chunk; rows are Kp wide, padding channels and padding tokens hold zeros.
struct Work {
    int k, kp, taps, middle;
    const float *x[3], *z, *b, *gate;  // first token of this row of the batch, this head's channels
    ptrdiff_t x_row[3], z_row, b_row, gate_row;
    float a;                                   // exp(A_log)
    float *taps_of[3], *bias, *norm_weight;    // [taps, Kp], [Kp], [Kp]
    float *pre[3], *sig[3], *y[3];             // convolution's sum, its sigmoid, SiLU (then normalised) [C, Kp]
    float *g, *slope, *per_a, *grow, *shrink;  // log decay, its derivatives, exp(G), exp(-G) [C, Kp]
    float *enter, *leave;                      // decay to the middle from before the chunk, and on to its end [Kp]
    float *left, *right, *right_t;             // [q; k] exp(G) [2C, Kp], k exp(-G) [C, Kp] and transposed
    float *pairs;                              // decayed products of q and k rows with k [2C, C], lower
    float beta[C], inverse_norm[2][C], d_same[C];
    float *state, *read, *written, *zeros;     // [Kp, Kp], [2C, Kp], [C, Kp], [Kp]
    // Backward only.
    float *d_state, *state_t, *d_out, *d_left, *d_right, *d_pairs, *written_t, *d_last, *d_written;
    float *d_pre[3], *carry[3], *d_taps[3], *d_bias, *d_norm;
    std::vector<float> store;

    Work(int width, int num_taps);
    void enter_head(const KdaShape &s, const KdaInputs &in, int row, int head);
};

Work::Work(int width, int num_taps) : k(width), kp(kda_padded(width)), taps(num_taps) {
    const size_t row = kp, chunk = (size_t)C * kp, square = (size_t)kp * kp, ahead = (size_t)taps * kp;
    std::vector<std::pair<float **, size_t>> parts;
    for (int i = 0; i < 3; ++i) {
        for (float **p : {&pre[i], &sig[i], &y[i]}) parts.emplace_back(p, chunk);
        for (float **p : {&taps_of[i], &carry[i], &d_taps[i]}) parts.emplace_back(p, ahead);
        parts.emplace_back(&d_pre[i], chunk + ahead);
    }
    for (float **p : {&bias, &norm_weight, &enter, &leave, &zeros, &d_last, &d_bias, &d_norm}) {
        parts.emplace_back(p, row);
    }
    for (float **p : {&g, &slope, &per_a, &grow, &shrink, &right, &right_t, &written, &written_t, &d_right,
                      &d_written}) {
        parts.emplace_back(p, chunk);
    }
    for (float **p : {&left, &read, &d_left, &d_out}) parts.emplace_back(p, 2 * chunk);
    for (float **p : {&state, &d_state, &state_t}) parts.emplace_back(p, square);
    for (float **p : {&pairs, &d_pairs}) parts.emplace_back(p, (size_t)2 * C * C);
    size_t total = 16;
    for (auto &part : parts) total += part.second;
    store.assign(total, 0.0f);
    float *next = store.data();
    while ((uintptr_t)next % 64) ++next;
    for (auto &part : parts) {
        *part.first = next;
        next += part.second;
    }
}

void Work::enter_head(const KdaShape &s, const KdaInputs &in, int row, int head) {
    const size_t at = (size_t)head * k;
    for (int i = 0; i < 3; ++i) {
        x[i] = in.x[i].data + row * in.x[i].batch + at;
        x_row[i] = in.x[i].row;
        for (int d = 0; d < k; ++d) {
            for (int j = 0; j < taps; ++j) taps_of[i][j * kp + d] = in.taps[i][(at + d) * taps + j];
        }
    }
    z = in.z.data + row * in.z.batch + at;
    gate = in.gate.data + row * in.gate.batch + at;
    b = in.b.data + row * in.b.batch + head;
    z_row = in.z.row, gate_row = in.gate.row, b_row = in.b.row;
    a = std::exp(in.a_log[head]);
    std::copy_n(in.dt_bias + at, k, bias);
    std::copy_n(in.norm_weight, k, norm_weight);
    (void)s;
}

// One row of the convolution's sum; source[j] is the token taps - 1 - j before.
template <int FIXED>
inline void convolve_row(int n, int taps, const float *const *source, const float *weight, int ldw,
                         float *__restrict to) {
    const int count = FIXED ? FIXED : taps;
    for (int d = 0; d < n; ++d) {
        float sum = 0.0f;
        for (int j = 0; j < count; ++j) sum += weight[j * ldw + d] * source[j][d];
        to[d] = sum;
    }
}

void convolve(Work &w, int i, int start, int len) {
    const float *source[64];
    for (int t = 0; t < len; ++t) {
        for (int j = 0; j < w.taps; ++j) {
            const int token = start + t - w.taps + 1 + j;
            source[j] = token < 0 ? w.zeros : w.x[i] + token * w.x_row[i];
        }
        float *to = w.pre[i] + t * w.kp;
        if (w.taps == 4) {
            convolve_row<4>(w.k, 4, source, w.taps_of[i], w.kp, to);
        } else {
            convolve_row<0>(w.k, w.taps, source, w.taps_of[i], w.kp, to);
        }
    }
    std::fill(w.pre[i] + len * w.kp, w.pre[i] + C * w.kp, 0.0f);
    const float *__restrict pre = w.pre[i];
    float *__restrict sig = w.sig[i], *__restrict y = w.y[i];
    for (int e = 0; e < C * w.kp; ++e) {
        sig[e] = sigmoid(pre[e]);
        y[e] = pre[e] * sig[e];
    }
}

// g of one token and its derivatives: by z, and by A_log.
void decay_row(const KdaShape &s, float a, int n, const float *z, const float *bias, float *__restrict g,
               float *__restrict slope, float *__restrict per_a) {
    if (s.bounded) {
        const float bound = s.bound;
        for (int d = 0; d < n; ++d) {
            // 1 - sigmoid as fading * sg: the difference itself would lose the digits of a saturated gate.
            const float zb = z[d] + bias[d], fading = exponential(-a * zb), sg = 1.0f / (1.0f + fading);
            const float by_z = bound * a * sg * (fading * sg);
            g[d] = bound * sg;
            slope[d] = by_z;
            per_a[d] = by_z * zb;
        }
        return;
    }
    for (int d = 0; d < n; ++d) {
        const float zb = z[d] + bias[d];
        g[d] = -a * (std::max(zb, 0.0f) + std::log1p(exponential(-std::fabs(zb))));
        slope[d] = -a * sigmoid(zb);
        per_a[d] = g[d];
    }
}

// exp(+-G) with G relative to the middle token: summed outwards, so that neighbours differ by their own decay.
void decays(Work &w, int len) {
    const int kp = w.kp, middle = len / 2;
    float *__restrict grow = w.grow, *__restrict shrink = w.shrink;
    std::fill(w.g + len * kp, w.g + C * kp, 0.0f);
    std::fill_n(grow + middle * kp, kp, 0.0f);
    for (int t = middle + 1; t < C; ++t) {
        for (int d = 0; d < kp; ++d) grow[t * kp + d] = grow[(t - 1) * kp + d] + w.g[t * kp + d];
    }
    for (int t = middle - 1; t >= 0; --t) {
        for (int d = 0; d < kp; ++d) grow[t * kp + d] = grow[(t + 1) * kp + d] - w.g[(t + 1) * kp + d];
    }
    for (int d = 0; d < kp; ++d) w.enter[d] = exponential(w.g[d] - grow[d]);
    for (int e = 0; e < C * kp; ++e) {
        grow[e] = exponential(grow[e]);
        shrink[e] = 1.0f / grow[e];
    }
    std::copy_n(grow + (len - 1) * kp, kp, w.leave);
}

// Everything of a chunk that does not depend on the state.
void load(const KdaShape &s, Work &w, int start, int len) {
    const int kp = w.kp;
    for (int i = 0; i < 3; ++i) convolve(w, i, start, len);
    for (int t = 0; t < len; ++t) {
        const int e = t * kp;
        decay_row(s, w.a, w.k, w.z + (start + t) * w.z_row, w.bias, w.g + e, w.slope + e, w.per_a + e);
        w.beta[t] = sigmoid(w.b[(start + t) * w.b_row]);
    }
    std::fill(w.beta + len, w.beta + C, 0.0f);
    decays(w, len);
    const float scale = 1.0f / std::sqrt((float)w.k);
    for (int t = 0; t < C; ++t) {
        float *__restrict q = w.y[0] + t * kp, *__restrict k = w.y[1] + t * kp;
        float *__restrict left_q = w.left + t * kp, *__restrict left_k = w.left + (C + t) * kp;
        float *__restrict right = w.right + t * kp;
        const float *grow = w.grow + t * kp, *shrink = w.shrink + t * kp;
        const float by_q = w.inverse_norm[0][t] = 1.0f / std::sqrt(dot(kp, q, q) + s.l2_eps);
        const float by_k = w.inverse_norm[1][t] = 1.0f / std::sqrt(dot(kp, k, k) + s.l2_eps);
        for (int d = 0; d < kp; ++d) {
            q[d] *= by_q;
            k[d] *= by_k;
            left_q[d] = q[d] * scale * grow[d];
            left_k[d] = k[d] * grow[d];
            right[d] = k[d] * shrink[d];
        }
    }
    transpose(C, kp, w.right, kp, w.right_t, C);
    product<false>(2 * C, C, kp, w.left, kp, 1, w.right_t, C, w.pairs, C);
    for (int i = 0; i < C; ++i) {
        std::fill(w.pairs + i * C + i + 1, w.pairs + i * C + C, 0.0f);
        std::fill(w.pairs + (C + i) * C + i, w.pairs + (C + i) * C + C, 0.0f);
    }
}

// state = rows of from, each times its channel's factor.
inline void scale_rows(int kp, const float *from, const float *factor, float *to) {
    for (int d = 0; d < kp; ++d) {
        const float f = factor[d];
        for (int v = 0; v < kp; ++v) to[d * kp + v] = from[d * kp + v] * f;
    }
}

// Head norm and gate of a chunk; mixed rows are Kp wide.
void norm_out(const KdaShape &s, const Work &w, int start, int len, const float *mixed, float *out,
              ptrdiff_t out_row) {
    for (int t = 0; t < len; ++t) {
        const float *o = mixed + t * w.kp, *gate = w.gate + (start + t) * w.gate_row;
        float *__restrict to = out + (start + t) * out_row;
        const float inverse = 1.0f / std::sqrt(dot(w.kp, o, o) / (float)w.k + s.norm_eps);
        for (int d = 0; d < w.k; ++d) to[d] = o[d] * inverse * w.norm_weight[d] * sigmoid(gate[d]);
    }
}

void forward_chunk(const KdaShape &s, Work &w, int start, int len, float *kept) {
    const int kp = w.kp;
    load(s, w, start, len);
    scale_rows(kp, w.state, w.enter, w.state);
    if (kept) std::copy_n(w.state, (size_t)kp * kp, kept);
    product<false>(2 * C, kp, kp, w.left, kp, 1, w.state, kp, w.read, kp);
    // Forward substitution: row i of (I + diag(beta) kk) written = beta (v - k S).
    for (int i = 0; i < C; ++i) {
        float *__restrict to = w.written + i * kp;
        const float *v = w.y[2] + i * kp, *read = w.read + (C + i) * kp, *pairs = w.pairs + (C + i) * C;
        for (int d = 0; d < kp; ++d) to[d] = v[d] - read[d];
        for (int j = 0; j < i; ++j) {
            const float *from = w.written + j * kp, f = pairs[j];
            for (int d = 0; d < kp; ++d) to[d] -= f * from[d];
        }
        for (int d = 0; d < kp; ++d) to[d] *= w.beta[i];
    }
    product<true>(C, kp, C, w.pairs, C, 1, w.written, kp, w.read, kp);
    product<true>(kp, kp, C, w.right_t, C, 1, w.written, kp, w.state, kp);
    scale_rows(kp, w.state, w.leave, w.state);
}

// Gradient of the head norm: d_out's first C rows become dL/d(mixed).
void norm_backward(const KdaShape &s, Work &w, int start, int len, const float *grad, const float *mixed,
                   float *d_gate, ptrdiff_t row) {
    const int kp = w.kp;
    std::fill_n(w.d_out, C * kp, 0.0f);
    for (int t = 0; t < len; ++t) {
        const ptrdiff_t at = (start + t) * row;
        const float *gate = w.gate + (start + t) * w.gate_row;
        float *__restrict unit = w.d_right, *__restrict h = w.d_out + t * kp, *__restrict to = d_gate + at;
        std::fill_n(unit, kp, 0.0f);
        std::copy_n(mixed + at, w.k, unit);
        const float inverse = 1.0f / std::sqrt(dot(kp, unit, unit) / (float)w.k + s.norm_eps);
        for (int d = 0; d < w.k; ++d) {
            const float sg = sigmoid(gate[d]), gr = grad[at + d], weight = w.norm_weight[d];
            unit[d] *= inverse;
            h[d] = gr * weight * sg;
            to[d] = gr * unit[d] * weight * sg * (1.0f - sg);
            w.d_norm[d] += gr * unit[d] * sg;
        }
        const float along = dot(kp, h, unit) / (float)w.k;
        for (int d = 0; d < kp; ++d) h[d] = inverse * (h[d] - unit[d] * along);
    }
}

// From dL/d(mixed) to the gradients of left, right, v (in d_out's last C rows, negated) and b.
void recurrence_backward(Work &w, const float *state, int len, float *d_b, ptrdiff_t b_row) {
    const int kp = w.kp;
    scale_rows(kp, w.d_state, w.leave, w.d_state);
    product<false>(C, kp, kp, w.right, kp, 1, w.d_state, kp, w.d_written, kp);
    product<true>(C, kp, C, w.pairs, 1, C, w.d_out, kp, w.d_written, kp);
    // Back substitution with the transposed matrix; what reaches v is beta times the solution.
    for (int i = C - 1; i >= 0; --i) {
        float *__restrict u = w.d_written + i * kp, *__restrict down = w.d_out + (C + i) * kp;
        for (int j = i + 1; j < C; ++j) {
            const float f = w.pairs[(C + j) * C + i], *from = w.d_out + (C + j) * kp;
            for (int d = 0; d < kp; ++d) u[d] += f * from[d];
        }
        for (int d = 0; d < kp; ++d) down[d] = -w.beta[i] * u[d];
        if (i < len) d_b[i * b_row] = (1.0f - w.beta[i]) * dot(kp, u, w.written + i * kp);
    }
    transpose(C, kp, w.written, kp, w.written_t, C);
    product<false>(2 * C, C, kp, w.d_out, kp, 1, w.written_t, C, w.d_pairs, C);
    for (int i = 0; i < C; ++i) {
        w.d_same[i] = w.d_pairs[i * C + i];
        std::fill(w.d_pairs + i * C + i, w.d_pairs + i * C + C, 0.0f);
        std::fill(w.d_pairs + (C + i) * C + i, w.d_pairs + (C + i) * C + C, 0.0f);
    }
    transpose(kp, kp, state, kp, w.state_t, kp);
    product<false>(2 * C, kp, kp, w.d_out, kp, 1, w.state_t, kp, w.d_left, kp);
    product<true>(2 * C, kp, C, w.d_pairs, C, 1, w.right, kp, w.d_left, kp);
    transpose(kp, kp, w.d_state, kp, w.state_t, kp);
    product<false>(C, kp, kp, w.written, kp, 1, w.state_t, kp, w.d_right, kp);
    product<true>(C, kp, 2 * C, w.d_pairs, 1, C, w.left, kp, w.d_right, kp);
    product<true>(kp, kp, 2 * C, w.left, 1, kp, w.d_out, kp, w.d_state, kp);
}

// SiLU of a token's convolution sum: d becomes dL/d(sum).
inline void silu_backward(int n, const float *pre, const float *sig, float *__restrict d) {
    for (int e = 0; e < n; ++e) d[e] *= sig[e] * (1.0f + pre[e] * (1.0f - sig[e]));
}

// From left and right to the decay's z and the convolution sums.
void factors_backward(Work &w, int len, float *d_z, ptrdiff_t row, float &d_a) {
    const int kp = w.kp;
    const float scale = 1.0f / std::sqrt((float)w.k);
    float *__restrict sum = w.d_last;  // dL/dG summed from the chunk's end: dL/dg
    float part[16] = {};
    for (int t = len - 1; t >= 0; --t) {
        const float *lq = w.left + t * kp, *lk = w.left + (C + t) * kp, *r = w.right + t * kp;
        const float *dq = w.d_left + t * kp, *dk = w.d_left + (C + t) * kp, *dr = w.d_right + t * kp;
        const float *grow = w.grow + t * kp, *shrink = w.shrink + t * kp;
        const float *slope = w.slope + t * kp, *per_a = w.per_a + t * kp;
        float *__restrict to_q = w.d_pre[0] + t * kp, *__restrict to_k = w.d_pre[1] + t * kp;
        float *__restrict to_v = w.d_pre[2] + t * kp, *__restrict d_bias = w.d_bias;
        const float *down = w.d_out + (C + t) * kp, *q = w.y[0] + t * kp, *k = w.y[1] + t * kp;
        // A token's product with itself knows no decay; through left and right it would only add noise to dL/dG.
        const float same = w.d_same[t] * scale;
        for (int d = 0; d < kp; d += 16) {
            for (int e = d; e < d + 16; ++e) {
                sum[e] += lq[e] * dq[e] + lk[e] * dk[e] - r[e] * dr[e];
                part[e - d] += sum[e] * per_a[e];
                d_bias[e] += sum[e] * slope[e];
                to_q[e] = dq[e] * grow[e] * scale + same * k[e];
                to_k[e] = dk[e] * grow[e] + dr[e] * shrink[e] + same * q[e];
                to_v[e] = -down[e];
            }
        }
        float *__restrict to_z = d_z + t * row;
        for (int d = 0; d < w.k; ++d) to_z[d] = sum[d] * slope[d];
        for (int i = 0; i < 2; ++i) {
            const float *unit = w.y[i] + t * kp, by = w.inverse_norm[i][t];
            float *__restrict to = w.d_pre[i] + t * kp;
            const float along = dot(kp, unit, to);
            for (int d = 0; d < kp; ++d) to[d] = by * (to[d] - unit[d] * along);
        }
        for (int i = 0; i < 3; ++i) silu_backward(kp, w.pre[i] + t * kp, w.sig[i] + t * kp, w.d_pre[i] + t * kp);
    }
    for (int j = 0; j < 16; ++j) d_a += part[j];
}

template <int FIXED>
inline void taps_row(int n, int taps, const float *const *source, const float *d, int ldw, float *__restrict to) {
    const int count = FIXED ? FIXED : taps;
    for (int e = 0; e < n; ++e) {
        for (int j = 0; j < count; ++j) to[j * ldw + e] += d[e] * source[j][e];
    }
}

// From the convolution sums to its input and taps.  A chunk's first sums also reach the tokens before it, so
// they are carried to the chunk that is processed next.
void convolve_backward(Work &w, int i, int start, int len, float *d_x, ptrdiff_t row) {
    const int kp = w.kp, n = w.k, taps = w.taps, behind = taps - 1;
    std::copy_n(w.carry[i], behind * kp, w.d_pre[i] + len * kp);
    const float *past[64], *ahead[64];
    for (int t = 0; t < len; ++t) {
        for (int j = 0; j < taps; ++j) {
            const int token = start + t - behind + j;
            past[j] = token < 0 ? w.zeros : w.x[i] + token * w.x_row[i];
            ahead[j] = w.d_pre[i] + (t + behind - j) * kp;
        }
        const float *d = w.d_pre[i] + t * kp;
        if (taps == 4) {
            convolve_row<4>(n, 4, ahead, w.taps_of[i], kp, d_x + t * row);
            taps_row<4>(n, 4, past, d, kp, w.d_taps[i]);
        } else {
            convolve_row<0>(n, taps, ahead, w.taps_of[i], kp, d_x + t * row);
            taps_row<0>(n, taps, past, d, kp, w.d_taps[i]);
        }
    }
    std::copy_n(w.d_pre[i], behind * kp, w.carry[i]);
}

void backward_head(const KdaShape &s, Work &w, const int32_t *starts, int count, const float *states,
                   const float *written, const float *mixed, const float *grad, KdaGradients to, int head) {
    const int kp = w.kp;
    const ptrdiff_t row = (ptrdiff_t)s.heads * s.width;
    for (float *p : {w.d_last, w.d_bias, w.d_norm}) std::fill_n(p, kp, 0.0f);
    for (int i = 0; i < 3; ++i) {
        std::fill_n(w.carry[i], w.taps * kp, 0.0f);
        std::fill_n(w.d_taps[i], w.taps * kp, 0.0f);
    }
    std::fill_n(w.d_state, (size_t)kp * kp, 0.0f);
    float d_a = 0.0f;
    for (int n = count - 1; n >= 0; --n) {
        const int start = starts[n], len = starts[n + 1] - start;
        const ptrdiff_t at = start * row;
        const float *state = states + (size_t)n * kp * kp;
        load(s, w, start, len);
        std::fill_n(w.written, C * kp, 0.0f);
        for (int t = 0; t < len; ++t) std::copy_n(written + at + t * row, w.k, w.written + t * kp);
        norm_backward(s, w, start, len, grad, mixed, to.gate, row);
        recurrence_backward(w, state, len, to.b + (ptrdiff_t)start * s.heads, s.heads);
        factors_backward(w, len, to.z + at, row, d_a);
        for (int i = 0; i < 3; ++i) convolve_backward(w, i, start, len, to.x[i] + at, row);
        // The decay that ends the chunk before acts on the whole state: dL/dG = rows of S dS.
        for (int d = 0; d < kp; ++d) w.d_last[d] = dot(kp, state + d * kp, w.d_state + d * kp);
        scale_rows(kp, w.d_state, w.enter, w.d_state);
    }
    for (int d = 0; d < w.k; ++d) {
        const size_t channel = (size_t)head * w.k + d;
        to.dt_bias[channel] += w.d_bias[d];
        to.norm_weight[d] += w.d_norm[d];
        for (int i = 0; i < 3; ++i) {
            for (int j = 0; j < w.taps; ++j) to.taps[i][channel * w.taps + j] += w.d_taps[i][j * kp + d];
        }
    }
    to.a_log[head] += d_a;
}

// The chunks of one head when decays have no useful bound.
int plan_head(const KdaShape &s, Work &w, int32_t *starts) {
    int count = 0, len = 0;
    float *sum = w.enter;
    for (int t = 0; t < s.tokens; ++t) {
        decay_row(s, w.a, w.k, w.z + t * w.z_row, w.bias, w.g, w.slope, w.per_a);
        float lowest = 0.0f;
        for (int d = 0; d < w.k; ++d) {
            sum[d] += w.g[d];
            lowest = std::min(lowest, sum[d]);
        }
        if (len == 0 || len == C || lowest < -MAX_EXPONENT) {
            starts[count++] = t;
            len = 0;
            std::fill_n(sum, w.k, 0.0f);
        }
        ++len;
    }
    return count;
}

}  // namespace

int64_t kda_plan(const KdaShape &s, const KdaInputs &in, KdaChunks chunks) {
    const bool even = s.bounded && -s.bound * (C / 2) <= MAX_EXPONENT;
    Work w(s.width, s.taps);
    int64_t total = 0;
    for (int head = 0; head < s.batch * s.heads; ++head) {
        int32_t *starts = chunks.starts + (size_t)head * (s.tokens + 1);
        int count = 0;
        if (even) {
            for (int t = 0; t < s.tokens; t += C) starts[count++] = t;
        } else {
            w.enter_head(s, in, head / s.heads, head % s.heads);
            count = plan_head(s, w, starts);
        }
        starts[count] = s.tokens;
        chunks.counts[head] = count;
        total += count;
    }
    return total;
}

void kda_forward(const KdaShape &s, const KdaInputs &in, KdaChunks chunks, KdaSaved saved, float *out) {
    FlushDenormals flush;
    Work w(s.width, s.taps);
    const ptrdiff_t row = (ptrdiff_t)s.heads * s.width;
    const size_t square = (size_t)w.kp * w.kp;
    float *kept = saved.states;
    for (int index = 0; index < s.batch * s.heads; ++index) {
        const int32_t *starts = chunks.starts + (size_t)index * (s.tokens + 1);
        const ptrdiff_t at = (ptrdiff_t)(index / s.heads) * s.tokens * row + (index % s.heads) * s.width;
        w.enter_head(s, in, index / s.heads, index % s.heads);
        std::fill_n(w.state, square, 0.0f);
        for (int n = 0; n < chunks.counts[index]; ++n) {
            const int start = starts[n], len = starts[n + 1] - start;
            forward_chunk(s, w, start, len, kept);
            norm_out(s, w, start, len, w.read, out + at, row);
            if (!kept) continue;
            kept += square;
            for (int t = 0; t < len; ++t) {
                const ptrdiff_t to = at + (start + t) * row;
                std::copy_n(w.written + t * w.kp, w.k, saved.written + to);
                std::copy_n(w.read + t * w.kp, w.k, saved.mixed + to);
            }
        }
    }
}

void kda_backward(const KdaShape &s, const KdaInputs &in, KdaChunks chunks, KdaSaved saved,
                  const float *grad_out, KdaGradients to) {
    FlushDenormals flush;
    Work w(s.width, s.taps);
    const ptrdiff_t row = (ptrdiff_t)s.heads * s.width;
    const float *states = saved.states;
    for (int index = 0; index < s.batch * s.heads; ++index) {
        const int batch = index / s.heads, head = index % s.heads;
        const ptrdiff_t at = (ptrdiff_t)batch * s.tokens * row + head * s.width;
        KdaGradients mine = to;
        for (int i = 0; i < 3; ++i) mine.x[i] += at;
        mine.z += at, mine.gate += at;
        mine.b += (ptrdiff_t)batch * s.tokens * s.heads + head;
        w.enter_head(s, in, batch, head);
        backward_head(s, w, chunks.starts + (size_t)index * (s.tokens + 1), chunks.counts[index], states,
                      saved.written + at, saved.mixed + at, grad_out + at, mine, head);
        states += (size_t)chunks.counts[index] * w.kp * w.kp;
    }
}
