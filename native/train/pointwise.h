// Norms, mixes, gates and table look-ups of training, forward and backward, one pass over memory, one thread.
//
// All arrays are row-major float32.  What a backward kernel writes is overwritten, not added to.
#pragma once
#include <cstddef>
#include <cstdint>

// y = x r w with r = rsqrt(mean(x^2) + eps); x and y [rows, width], weight [width], inverse [rows] receives r.
void rms_norm_forward(int64_t rows, int width, const float *x, const float *weight, float eps, float *y,
                      float *inverse);
// dx = r (h - n mean(h n)) and dw = sum(dy n) with n = x r, h = dy w.
void rms_norm_backward(int64_t rows, int width, const float *dy, const float *x, const float *weight,
                       const float *inverse, float *dx, float *dweight);

constexpr int kMaxCandidates = 64;

// The attention-residual mix of `num` candidates [rows, width], see gossamer/ops/attn_residual.py; with `gain`
// [width] its RMS norm follows in the same pass, without (nullptr) the mix itself is the result.
struct Mix {
    int64_t rows;
    int width, num;
    const float *const *candidates;
    const float *norm_weight, *proj_weight;
    float eps;
    const float *gain;
    float gain_eps;
};
// y [rows, width]; state [rows, 3 num + 1] is what the backward pass needs.
void mix_forward(const Mix &mix, float *y, float *state);
// dcandidates: num pointers to [rows, width]; dnorm, dproj and, with a gain, dgain [width].
void mix_backward(const Mix &mix, const float *dy, const float *state, float *const *dcandidates, float *dnorm,
                  float *dproj, float *dgain);

// y = a sigmoid(gate).
void gated_forward(int64_t size, const float *a, const float *gate, float *y);
void gated_backward(int64_t size, const float *dy, const float *a, const float *gate, float *da, float *dgate);

// y[i] = weight[ids[i]], and the rows of dy added up per id; 0 <= ids < vocab is the caller's duty.
void embedding_forward(int64_t tokens, int width, const int64_t *ids, const float *weight, float *y);
void embedding_backward(int64_t tokens, int width, int64_t vocab, const int64_t *ids, const float *dy,
                        float *dweight);
