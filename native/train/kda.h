// Kimi Delta Attention between its projections, forward and backward, one thread.
//
// Shape legend: B rows of the batch, T tokens, H heads, K head width (keys and values), W = H K, N chunks,
// S state [K, K] of a head, one row per key channel.
#pragma once
#include <cstddef>
#include <cstdint>

constexpr int KDA_CHUNK = 16;  // most tokens of a chunk

// The widest chunk buffers hold K rounded up to this, so that every product is made of whole register tiles.
constexpr int KDA_ALIGN = 16;

inline int kda_padded(int width) { return (width + KDA_ALIGN - 1) / KDA_ALIGN * KDA_ALIGN; }

struct KdaShape {
    int batch, tokens, heads, width, taps;
    bool bounded;   // decay lower_bound * sigmoid(exp(A_log) z), else -exp(A_log) softplus(z)
    float bound;    // lower_bound, negative
    float l2_eps, norm_eps;
};

// One [B, T, width] input whose rows may be part of a wider tensor.
struct KdaRows {
    const float *data;
    ptrdiff_t batch, row;  // strides in floats
};

struct KdaInputs {
    KdaRows x[3];         // q, k, v before the convolution
    const float *taps[3];  // [W, taps] of q, k, v
    KdaRows z, b, gate;
    const float *dt_bias, *a_log, *norm_weight;  // [W], [H], [K]
};

// How the tokens of each row are cut into chunks: starts [B, T + 1] (count entries, then T) and counts [B].
// Inside a chunk no channel's decay, relative to the middle token, leaves float32's comfortable range.
struct KdaChunks {
    int32_t *starts, *counts;
};

// What forward keeps of one chunk for backward, rows of Kp: the state, expressed at the chunk's middle token
// (Kp rows), then what each token wrote to it and each token's output before the norm (KDA_CHUNK rows each).
inline size_t kda_kept(int width) { return (size_t)(kda_padded(width) + 2 * KDA_CHUNK) * kda_padded(width); }

struct KdaGradients {
    float *x[3], *z, *b, *gate;  // as the inputs, contiguous
    float *taps[3], *dt_bias, *a_log, *norm_weight;  // zero on entry
};

// Fills the chunks and returns their number over all heads.
int64_t kda_plan(const KdaShape &shape, const KdaInputs &in, KdaChunks chunks);

// out [B, T, W]; kept [sum of counts, H, kda_kept(K)], or null when no gradient is wanted.
void kda_forward(const KdaShape &shape, const KdaInputs &in, KdaChunks chunks, float *kept, float *out);

void kda_backward(const KdaShape &shape, const KdaInputs &in, KdaChunks chunks, const float *kept,
                  const float *grad_out, KdaGradients grads);
