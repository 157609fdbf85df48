// Causal softmax attention with keys made of a per-head and a shared part, forward and backward, one thread.
#pragma once
#include <cstddef>
#include <cstdint>

struct AttentionShape {
    int batch, tokens, heads;
    int nope, rope, value;  // widths: per-head part of a key, shared part, value
    int width() const { return nope + rope; }
    int block() const { return nope + value; }
};

// out [B, T, H, V] and lse [B, H, T] (log of the sum of exponentials of the scaled scores) from q [B, T, H, N+P],
// kv [B, T, H, N+V], shared [B, T, P].  `allowed` is null, or bits [B, T, mask_bytes], bit b of byte i for key
// 8 i + b; a row needs at least mask_bytes = ceil(T / 8) rounded up to 8.
void attention_forward(const AttentionShape &shape, const float *q, const float *kv, const float *shared,
                       const uint8_t *allowed, int mask_bytes, float *out, float *lse);

// Gradients of the same, all three overwritten, from d_out [B, T, H, V] and what the forward pass returned.
void attention_backward(const AttentionShape &shape, const float *q, const float *kv, const float *shared,
                        const uint8_t *allowed, int mask_bytes, const float *out, const float *lse,
                        const float *d_out, float *d_q, float *d_kv, float *d_shared);
