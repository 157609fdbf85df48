// Causal softmax attention with keys made of a per-head and a shared part, forward and backward, one thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "train/indexer.h"

// Queries per block of the forward pass: rows of whole-length scores that stay in the second-level cache.
constexpr int ATTENTION_QUERIES = 48;

struct AttentionShape {
    int batch, tokens, heads;
    int nope, rope, value;  // widths: per-head part of a key, shared part, value
    int width() const { return nope + rope; }
    int block() const { return nope + value; }
};

// What a forward pass does for the indexer on its way, while it holds the weights of a block of queries.
struct IndexerPass {
    Indexer &indexer;
    uint8_t *selected;  // where the indexer's selection goes, [B, T, selection_bytes(T)]; null to keep `allowed`
    bool restricted;    // attention, and the loss, see the selection alone
    double recall = 0.0;  // sum over queries with more than top_k keys of the mass that dense attention puts on
                          // the selection, mean over heads
    int64_t chosen = 0;   // how many such queries
};

// out [B, T, H, V] and lse [B, H, T] (log of the sum of exponentials of the scaled scores) from q [B, T, H, N+P],
// kv [B, T, H, N+V], shared [B, T, P].  `allowed` is null, or bits [B, T, mask_bytes], bit b of byte i for key
// 8 i + b; mask_bytes is selection_bytes(T).  `out` and `lse` may be null; `pass` may be null.
void attention_forward(const AttentionShape &shape, const float *q, const float *kv, const float *shared,
                       const uint8_t *allowed, int mask_bytes, float *out, float *lse, IndexerPass *pass = nullptr);

// Gradients of the same, all three overwritten, from d_out [B, T, H, V] and what the forward pass returned.
void attention_backward(const AttentionShape &shape, const float *q, const float *kv, const float *shared,
                        const uint8_t *allowed, int mask_bytes, const float *out, const float *lse,
                        const float *d_out, float *d_q, float *d_kv, float *d_shared);
