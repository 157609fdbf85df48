// Routed experts: gated feed-forward networks, each on the tokens that chose it.  Row-major, one thread.
#pragma once
#include <cstdint>

struct ExpertShape {
    long tokens;    // M
    int per_token;  // A
    int experts;    // E
    int width;      // Z
    int inner;      // I
};

// Stable order of the M*A pairs by expert: `order` [M*A], `starts` [E+1].
void sort_pairs(const int64_t *indices, const ExpertShape &s, int32_t *order, int32_t *starts);

// y [M,Z] = sum over a token's experts of weight * w2 situ(w1 z, w3 z); `gate` and `up` [M*A,I] keep the
// pre-activations in sorted order.
void experts_forward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                     const int32_t *order, const int32_t *starts, float *gate, float *up, float *y,
                     const ExpertShape &s, float beta, float linear_beta);

// Gradients of z and weights are written, those of w1, w3 and w2 too (zero for an expert without tokens).
void experts_backward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                      const int32_t *order, const int32_t *starts, const float *gate, const float *up,
                      const float *dy, float *dz, float *dweights, float *dw1, float *dw3, float *dw2,
                      const ExpertShape &s, float beta, float linear_beta);
