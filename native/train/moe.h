// Routed experts: gated feed-forward networks, each on the tokens that chose it, and the router that chooses.
// Row-major, one thread.
#pragma once
#include <cstdint>

#include "train/gated.h"

struct ExpertShape {
    long tokens;     // M
    int per_token;   // A
    int experts;     // E
    GatedShape net;  // width Z, inner I
};

// Stable order of the M*A pairs by expert: `order` [M*A], `starts` [E+1].
void sort_pairs(const int64_t *indices, const ExpertShape &s, int32_t *order, int32_t *starts);

// y [M,Z] = sum over a token's experts of weight * w2 situ(w1 z, w3 z); `gate` and `up` [M*A, padded(I)] keep the
// pre-activations in sorted order.
void experts_forward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                     const int32_t *order, const int32_t *starts, float *gate, float *up, float *y,
                     const ExpertShape &s);

// Gradients of z and weights are written, those of w1, w3 and w2 too (zero for an expert without tokens).
void experts_backward(const float *z, const float *weights, const float *w1, const float *w3, const float *w2,
                      const int32_t *order, const int32_t *starts, const float *gate, const float *up,
                      const float *dy, float *dz, float *dweights, float *dw1, float *dw3, float *dw2,
                      const ExpertShape &s);

struct RouteShape {
    long tokens;    // M
    int width;      // D
    int experts;    // E
    int per_token;  // A <= E
    bool renormalize;
    float scaling;
};

// indices and weights [M,A], best first; `picked` [M,A] keeps the scores of the chosen experts.
// See gossamer.ops.router.
void route_forward(const float *x, const float *w, const float *bias, const RouteShape &s, int64_t *indices,
                   float *weights, float *picked);

// dx [M,D] and dw [E,D] from dweights [M,A]; both are written.
void route_backward(const float *x, const float *w, const int64_t *indices, const float *picked,
                    const float *dweights, const RouteShape &s, float *dx, float *dw);
