// One head of Kimi Delta Attention over the tokens of one segment: exactly what token by token gives,
// with the state passed over once a token and kept in the first cache level for some tokens.
//
// Shapes: T tokens, K channels of a head (key and value), W convolution taps.
#pragma once

struct KdaHead {
    long tokens;    // T
    int width;      // K
    int taps;       // W
    long channels;  // of q, k and v together: what one row of `qkv` holds
    bool bounded;   // the decay's formula
    float lower_bound, l2_eps, norm_eps;

    const float *q, *k, *v;                    // this head's inputs of token 0, rows `channels` apart
    const float *q_taps, *k_taps, *v_taps;     // [W, K], rows `channels` apart
    float *q_tail, *k_tail, *v_tail;           // the W - 1 inputs before, oldest first, rows tail_stride apart; updated
    long tail_stride;
    const float *z, *gate;                     // decay input without bias and output gate of token 0
    long z_stride;                             // between tokens of z, gate and o
    const float *dt_bias;                      // [K]
    float a_log;
    const float *b;                            // write strength before its sigmoid, rows b_stride apart
    long b_stride;
    const float *norm;                         // [K]
    float *state;                              // [K, K], updated
    bool half_state;                           // every token leaves it rounded to BF16
    float *o;                                  // normed and gated output of token 0
};

// Floats that a head of this width wants as scratch.
long kda_scratch(int width);
void kda_head(const KdaHead &h, float *scratch);
