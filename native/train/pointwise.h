// Norms, mixes and gates with their gradients, one pass over memory each.  Row-major, one thread.
#pragma once

// y = tanh-bounded gated activation; see gossamer.ops.situ.  linear_beta 0 leaves the up branch unbounded.
void situ_forward(const float *gate, const float *up, float *y, long n, float beta, float linear_beta);
void situ_backward(const float *gate, const float *up, const float *dy, float *dgate, float *dup, long n,
                   float beta, float linear_beta);

// y = a * sigmoid(g).
void gated_forward(const float *a, const float *g, float *y, long n);
void gated_backward(const float *a, const float *g, const float *dy, float *da, float *dg, long n);

// y = x / sqrt(mean(x^2) + eps) * w on rows of `width`; `inverse` [rows] is kept for the gradient.
void rms_forward(const float *x, const float *w, float *y, float *inverse, long rows, int width, float eps);
void rms_backward(const float *x, const float *w, const float *inverse, const float *dy, float *dx, float *dw,
                  long rows, int width);

// Attention-residual mix of n candidates followed by an RMS norm; see gossamer.ops.attn_residual.
// score = norm_weight * proj_weight [width].  `kept` holds per row: n probabilities, n scores, n inverse
// root mean squares of the candidates and one of the mix.  dscore and dw are added to.
void mix_norm_forward(const float *const *candidates, int n, const float *score, const float *w, float *y,
                      float *kept, long rows, int width, float eps, float norm_eps);
void mix_norm_backward(const float *const *candidates, int n, const float *score, const float *w,
                       const float *kept, const float *dy, float *const *dcandidates, float *dscore, float *dw,
                       long rows, int width);
