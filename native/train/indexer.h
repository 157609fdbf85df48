// The lightning indexer: scores, exact top-k selection, and its loss against the attention it serves, one thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "train/panels.h"

struct IndexerShape {
    int batch, tokens, heads, width;
    int top_k;
};

// Bytes of one query's bits: one bit per key, rounded up so that any vector of bits can be read whole.
inline int selection_bytes(int tokens) { return (tokens + 63) / 64 * 8; }

// Bits of the top_k highest of n scores, the lower index first among equals; all n where n <= top_k.  Writes
// `bytes` bytes.  `scores` is readable, and `scratch` writable, up to n rounded up to a vector.
void select_row(const float *scores, int n, int top_k, int32_t *scratch, uint8_t *bits, int bytes);

// One pass over the blocks of queries of a batch: scores, and with gradients also the loss.
class Indexer {
  public:
    // q [B, T, J, I], k [B, T, I], w [B, T, J].  A block holds at most `block` queries.
    Indexer(const IndexerShape &shape, int block, const float *q, const float *k, const float *w);

    // Where the gradients go, the shapes of q, k and w; all are overwritten.
    void want_gradients(float *d_q, float *d_k, float *d_w);

    // Starts sequence b.
    void begin(int b);
    // Scores of queries q0 .. q0 + queries - 1 of the sequence, rows `stride()` floats apart: query i's first
    // q0 + i + 1 entries, sum_j w_j (J I)^-0.5 relu(q_j . k).
    float *score(int q0, int queries);
    // Writes the selection of the block just scored, `bytes` bytes per query.
    void select(int q0, int queries, uint8_t *bits, int bytes);
    // Adds the block's part of the loss and its gradients.  `target` has the layout of the scores: attention
    // summed over heads, on any scale, zero outside `allowed` (bits of the block's first query, or null).
    void learn(int q0, int queries, const float *target, const uint8_t *allowed, int mask_bytes);
    // Ends the sequence: writes what `learn` gathered for the keys.
    void end();

    int top_k() const { return shape_.top_k; }
    size_t stride() const { return row_; }
    // Sum over queries of KL(target || softmax of the scores); the gradients are those of the mean.
    double loss() const { return loss_; }
    // Floats of scratch memory.
    static size_t scratch(const IndexerShape &shape, int block);
    void use(float *scratch);

  private:
    IndexerShape shape_;
    int block_, sequence_ = 0;
    const float *q_, *k_, *w_;
    float *d_q_ = nullptr, *d_k_ = nullptr, *d_w_ = nullptr;
    size_t row_, padded_, columns_;
    double loss_ = 0.0;
    float *keys_t_ = nullptr, *keys_ = nullptr, *dots_ = nullptr, *scores_ = nullptr, *sum_k_ = nullptr;
    float *queries_ = nullptr, *sum_q_ = nullptr;
    int32_t *row_scratch_ = nullptr;
};

// Selection bits [B, T, selection_bytes(T)] of every query.
void indexer_select(const IndexerShape &shape, const float *q, const float *k, const float *w, uint8_t *bits);
