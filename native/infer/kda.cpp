#include "infer/kda.h"

#include <cmath>

#include "infer/simd.h"
#include "train/vmath.h"

namespace {

using simd::F;
using simd::kLanes;

// y_t = SiLU(sum_j taps[:, j] x_{t-W+1+j}) for one token's K channels.
void convolve(const KdaHead &h, const float *x, const float *tail, const float *taps, long t, float *y) {
    for (int c = 0; c < h.width; ++c) y[c] = 0.0f;
    for (int j = 0; j < h.taps; ++j) {
        const long at = t - h.taps + 1 + j;
        const float *past = at >= 0 ? x + at * h.channels : tail + (at + h.taps - 1) * h.channels;
        for (int c = 0; c < h.width; ++c) y[c] += taps[j * h.channels + c] * past[c];
    }
    for (int c = 0; c < h.width; ++c) y[c] *= fast_sigmoid(y[c]);
}

void keep_tail(const KdaHead &h, const float *x, float *tail) {
    // Rows move towards the past, so the oldest is written first and nothing is overwritten that is still read.
    for (int j = 0; j < h.taps - 1; ++j) {
        const long at = h.tokens - (h.taps - 1) + j;
        const float *past = at >= 0 ? x + at * h.channels : tail + (at + h.taps - 1) * h.channels;
        for (int c = 0; c < h.width; ++c) tail[j * h.channels + c] = past[c];
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

// V vectors of value channels: S = a S + k beta (v - k^T (a S))^T, o = S^T q.
template <int V>
void step(float *state, int width, const float *a, const float *k, const float *q, const float *v, float beta,
          float *o) {
    F read[V], out[V];
    for (int i = 0; i < V; ++i) read[i] = out[i] = simd::zero();
    for (int row = 0; row < width; ++row) {
        // What the decayed state says about k, without storing it.
        const F ak = simd::all(a[row] * k[row]);
        for (int i = 0; i < V; ++i) read[i] = simd::fma(ak, simd::load(state + row * width + i * kLanes), read[i]);
    }
    F write[V];
    for (int i = 0; i < V; ++i)
        write[i] = simd::mul(simd::all(beta), simd::fma(simd::all(-1.0f), read[i], simd::load(v + i * kLanes)));
    for (int row = 0; row < width; ++row) {
        const F ar = simd::all(a[row]), kr = simd::all(k[row]), qr = simd::all(q[row]);
        for (int i = 0; i < V; ++i) {
            float *place = state + row * width + i * kLanes;
            const F s = simd::fma(kr, write[i], simd::mul(ar, simd::load(place)));
            simd::store(place, s);
            out[i] = simd::fma(qr, s, out[i]);
        }
    }
    for (int i = 0; i < V; ++i) simd::store(o + i * kLanes, out[i]);
}

void step_columns(float *state, int width, int begin, const float *a, const float *k, const float *q,
                  const float *v, float beta, float *o) {
    for (int c = begin; c < width; ++c) {
        float read = 0, out = 0;
        for (int row = 0; row < width; ++row) read += a[row] * k[row] * state[row * width + c];
        const float write = beta * (v[c] - read);
        for (int row = 0; row < width; ++row) {
            float &s = state[row * width + c];
            s = a[row] * s + k[row] * write;
            out += q[row] * s;
        }
        o[c] = out;
    }
}

}  // namespace

void kda_head(const KdaHead &h, float *scratch) {
    const int width = h.width;
    float *q = scratch, *k = q + width, *v = k + width, *a = v + width, *o = a + width;
    for (long t = 0; t < h.tokens; ++t) {
        convolve(h, h.q, h.q_tail, h.q_taps, t, q);
        convolve(h, h.k, h.k_tail, h.k_taps, t, k);
        convolve(h, h.v, h.v_tail, h.v_taps, t, v);
        normalise(q, width, h.l2_eps, 1.0f / std::sqrt(static_cast<float>(width)));
        normalise(k, width, h.l2_eps, 1.0f);
        decay(h, h.z + t * h.z_stride, a);
        const float beta = fast_sigmoid(h.b[t * h.b_stride]);
        int c = 0;
        for (; c + 4 * kLanes <= width; c += 4 * kLanes) step<4>(h.state + c, width, a, k, q, v + c, beta, o + c);
        for (; c + kLanes <= width; c += kLanes) step<1>(h.state + c, width, a, k, q, v + c, beta, o + c);
        step_columns(h.state, width, c, a, k, q, v, beta, o);
        const float inverse = 1.0f / std::sqrt(simd::squares(o, width) / static_cast<float>(width) + h.norm_eps);
        const float *gate = h.gate + t * h.z_stride;
        float *out = h.o + t * h.z_stride;
        for (int i = 0; i < width; ++i) out[i] = o[i] * inverse * h.norm[i] * fast_sigmoid(gate[i]);
    }
    keep_tail(h, h.q, h.q_tail);
    keep_tail(h, h.k, h.k_tail);
    keep_tail(h, h.v, h.v_tail);
}
