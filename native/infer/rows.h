// What is computed row by row: norms, activations, the residual mix.
#pragma once

// y = x rsqrt(mean(x^2) + eps) weight over n values; x and y may be the same.
void rms_norm(const float *x, const float *weight, float eps, long n, float *y);

// y = (x - mean) rsqrt(variance + eps) weight + bias; bias may be null.
void layer_norm(const float *x, const float *weight, const float *bias, float eps, long n, float *y);

// The gated activation of a network.  linear_beta 0: the up branch is not bounded.
struct Activation {
    bool situ;
    float beta, linear_beta;
};

// gate = activation(gate, up) over n values.
void activate(const Activation &a, float *gate, const float *up, long n);

// x *= sigmoid(gate).
void gate_by_sigmoid(float *x, const float *gate, long n);

// y = sum_i softmax_i(score_i) v_i with score_i = sum(v_i rsqrt(mean(v_i^2) + eps) weight), over `count` vectors of n
// values; one alone is y itself.  `weight` is the norm's times the projection's.  count <= 256.
void residual_mix(const float *const *candidates, int count, const float *weight, float eps, long n, float *y);
