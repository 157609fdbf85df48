#include "train/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "train/panels.h"

using namespace panels;

namespace {

constexpr int FORWARD_QUERIES = ATTENTION_QUERIES;
constexpr int SUM_KEYS = 192;        // keys per pass over the values: a panel of them stays in the first level
constexpr int BLOCK = 96;            // queries and keys per backward block

// One sequence, one head: where its rows begin.
struct Head {
    const float *q, *k, *shared, *v;
    size_t q_stride, kv_stride, shared_stride;
};

Head head_of(const AttentionShape &s, int b, int h, const float *q, const float *kv, const float *shared) {
    const size_t rows = (size_t)b * s.tokens, q_stride = (size_t)s.heads * s.width();
    const size_t kv_stride = (size_t)s.heads * s.block();
    const float *block = kv + rows * kv_stride + (size_t)h * s.block();
    return {q + rows * q_stride + (size_t)h * s.width(),
            block,
            shared + rows * s.rope,
            block + s.nope,
            q_stride,
            kv_stride,
            (size_t)s.rope};
}

float scale_of(const AttentionShape &s) { return 1.0f / std::sqrt((float)s.width()); }

// Keys as the right operand of q k^T, with the score's scale inside.
void pack_keys_transposed(const AttentionShape &s, const Head &head, float *dst) {
    pack_transposed(s.tokens, s.nope, head.k, head.kv_stride, scale_of(s), dst, s.width(), 0);
    pack_transposed(s.tokens, s.rope, head.shared, head.shared_stride, scale_of(s), dst, s.width(), s.nope);
}

// Scores to exp(score - maximum) in place; returns the maximum and the sum.  n scores, zeros up to `filled`.
void exponentials(float *row, int n, int filled, const uint8_t *mask, float *maximum, float *total) {
    const float low = -std::numeric_limits<float>::infinity();
    for (int j = n; j < (int)round_up(n, VW); ++j) row[j] = low;
    vec best = vec{} + low;
    for (int j = 0; j < n; j += VW) {
        vec x = load(row + j);
        if (mask != nullptr) {
            x = lanes(mask, j) ? x : vec{} + low;
            store(row + j, x);
        }
        best = x > best ? x : best;
    }
    *maximum = largest(best);
    // A row without an allowed key: every exponential is 0.
    const float from = *maximum == low ? 0.0f : *maximum;
    vec sums = vec{};
    for (int j = 0; j < n; j += VW) {
        const vec p = exp(load(row + j) - from);
        store(row + j, p);
        sums += p;
    }
    for (int j = round_up(n, VW); j < filled; ++j) row[j] = 0.0f;
    *total = sum(sums);
}

// Probabilities and score gradients of a block in place: p from scores, ds = p (dp - delta) from dp.
void block_gradients(int queries, int keys, int shift, float *p, float *dp, const float *lse, const float *delta,
                     const uint8_t *mask, size_t mask_bytes) {
    for (int i = 0; i < queries; ++i, p += BLOCK, dp += BLOCK) {
        const int n = std::min(keys, i + shift + 1);
        for (int j = 0; j < n; j += VW) {
            vec x = exp(load(p + j) - lse[i]);
            if (mask != nullptr) x = lanes(mask + i * mask_bytes, j) ? x : vec{};
            store(p + j, x);
            store(dp + j, x * (load(dp + j) - delta[i]));
        }
        for (int j = n; j < BLOCK; ++j) p[j] = dp[j] = 0.0f;
    }
}

// Sum of exp(score - maximum) over all n scores of a row, and the maximum.
float whole_mass(const float *row, int n, float *maximum) {
    const vec low = vec{} - std::numeric_limits<float>::infinity();
    const ivec place = [] {
        ivec at;
        for (int i = 0; i < VW; ++i) at[i] = i;
        return at;
    }();
    vec best = low;
    for (int j = 0; j < n; j += VW) {
        const vec x = place < n - j ? load(row + j) : low;
        best = x > best ? x : best;
    }
    *maximum = largest(best);
    vec sums = vec{};
    for (int j = 0; j < n; j += VW) sums += place < n - j ? exp(load(row + j) - *maximum) : vec{};
    return sum(sums);
}

// Sum of the entries of a row at set bits, divided by the sum of all.
float selected_share(const float *row, int n, const uint8_t *mask) {
    vec kept = vec{}, all = vec{};
    for (int j = 0; j < n; j += VW) {
        const vec x = load(row + j);
        all += x;
        kept += lanes(mask, j) ? x : vec{};
    }
    return sum(kept) / sum(all);
}

// The forward pass over one block of queries, its operands packed for all heads of the sequence.
struct Forward {
    const AttentionShape &s;
    int T, D;
    size_t padded, values, row;
    float *keys_t, *v, *scores, *sums, *head_sum;

    explicit Forward(const AttentionShape &shape, Scratch &memory, bool observed)
        : s(shape), T(shape.tokens), D(shape.width()), padded(round_up(T, NR)), values(round_up(shape.value, NR)),
          row(padded + NR + 16) {  // not a power of two, so that rows do not share cache sets
        const size_t key_floats = s.heads * padded * D, value_floats = s.heads * values * T;
        const size_t observed_floats = observed ? FORWARD_QUERIES * row : 0;
        Pieces pieces(memory.get(key_floats + value_floats + FORWARD_QUERIES * (row + values) + observed_floats + 80));
        keys_t = pieces.take(key_floats);
        v = pieces.take(value_floats);
        scores = pieces.take(FORWARD_QUERIES * row);
        sums = pieces.take(FORWARD_QUERIES * values);
        head_sum = observed ? pieces.take(observed_floats) : nullptr;
    }

    void pack_head(const Head &head, int h, bool with_values) const {
        pack_keys_transposed(s, head, keys_t + h * padded * D);
        if (!with_values) return;
        pack(T, s.value, head.v, head.kv_stride, 1.0f, v + h * values * T, 0);
        pad_columns(T, s.value, v + h * values * T);
    }

    // One head: scores, exponentials (left in `scores`), and out = their mean of the values.  `dense_recall`
    // receives each query's share of the whole mass that lies on the mask, added to what is there.
    void run(const Head &head, int h, int q0, int queries, const uint8_t *mask, int mask_bytes, float *out, float *lse,
             float *dense_recall) const {
        const int seen = q0 + queries;
        product<false, Cut::columns>(queries, seen, D, head.q + q0 * head.q_stride, head.q_stride,
                                     keys_t + h * padded * D, (size_t)D * NR, scores, row, false, q0);
        float scale[FORWARD_QUERIES];
        for (int i = 0; i < queries; ++i) {
            float *line = scores + i * row, maximum, total, top = 0.0f, whole = 0.0f;
            if (dense_recall != nullptr) whole = whole_mass(line, q0 + i + 1, &top);
            exponentials(line, q0 + i + 1, seen, mask == nullptr ? nullptr : mask + (size_t)i * mask_bytes, &maximum,
                         &total);
            scale[i] = total > 0.0f ? 1.0f / total : 0.0f;
            if (lse != nullptr) lse[q0 + i] = maximum + std::log(total);
            if (dense_recall != nullptr) dense_recall[i] += total * std::exp(maximum - top) / whole / s.heads;
            if (head_sum != nullptr) {
                float *to = head_sum + i * row;
                for (int j = 0; j < seen; j += VW) {
                    const vec p = load(line + j) * scale[i];
                    store(to + j, h == 0 ? p : load(to + j) + p);
                }
            }
        }
        if (out == nullptr) return;
        for (int k0 = 0; k0 < seen; k0 += SUM_KEYS) {
            product<false, Cut::end>(queries, s.value, std::min(SUM_KEYS, seen - k0), scores + k0, row,
                                     v + h * values * T + (size_t)k0 * NR, (size_t)T * NR, sums, values, k0 > 0,
                                     q0 - k0);
        }
        const size_t stride = (size_t)s.heads * s.value;
        float *to = out + q0 * stride + (size_t)h * s.value;
        for (int i = 0; i < queries; ++i, to += stride) {
            for (int c = 0; c < s.value; ++c) to[c] = sums[i * values + c] * scale[i];
        }
    }
};

}  // namespace

void attention_forward(const AttentionShape &s, const float *q, const float *kv, const float *shared,
                       const uint8_t *allowed, int mask_bytes, float *out, float *lse, IndexerPass *pass) {
    const int T = s.tokens;
    static thread_local Scratch memory;
    const Forward forward(s, memory, pass != nullptr);
    for (int b = 0; b < s.batch; ++b) {
        for (int h = 0; h < s.heads; ++h) forward.pack_head(head_of(s, b, h, q, kv, shared), h, out != nullptr);
        if (pass != nullptr) pass->indexer.begin(b);
        for (int q0 = 0; q0 < T; q0 += FORWARD_QUERIES) {
            const int queries = std::min(FORWARD_QUERIES, T - q0);
            const size_t bits = ((size_t)b * T + q0) * mask_bytes;
            const uint8_t *chosen = allowed == nullptr ? nullptr : allowed + bits, *mask = chosen;
            if (pass != nullptr) {
                pass->indexer.score(q0, queries);
                if (pass->selected != nullptr) {
                    pass->indexer.select(q0, queries, pass->selected + bits, mask_bytes);
                    chosen = pass->selected + bits;
                }
                mask = pass->restricted ? chosen : nullptr;
            }
            float share[FORWARD_QUERIES] = {};
            for (int h = 0; h < s.heads; ++h) {
                forward.run(head_of(s, b, h, q, kv, shared), h, q0, queries, mask, mask_bytes,
                            out == nullptr ? nullptr : out + (size_t)b * T * s.heads * s.value,
                            lse == nullptr ? nullptr : lse + ((size_t)b * s.heads + h) * T,
                            pass != nullptr && mask != nullptr ? share : nullptr);
            }
            if (pass == nullptr) continue;
            for (int i = 0; i < queries; ++i) {
                if (q0 + i + 1 <= pass->indexer.top_k()) continue;
                const float *row = forward.head_sum + i * forward.row;
                pass->recall += mask != nullptr ? share[i]
                                                : selected_share(row, q0 + i + 1, chosen + (size_t)i * mask_bytes);
                ++pass->chosen;
            }
            pass->indexer.learn(q0, queries, forward.head_sum, mask, mask_bytes);
        }
        if (pass != nullptr) pass->indexer.end();
    }
}

void attention_backward(const AttentionShape &s, const float *q, const float *kv, const float *shared,
                        const uint8_t *allowed, int mask_bytes, const float *out, const float *lse,
                        const float *d_out, float *d_q, float *d_kv, float *d_shared) {
    const int T = s.tokens, D = s.width(), V = s.value;
    const size_t padded = round_up(T, NR), values = round_up(V, NR), keys = round_up(D, NR);
    const size_t out_stride = (size_t)s.heads * V;
    const float scale = scale_of(s);
    static thread_local Scratch memory;
    Pieces pieces(memory.get(padded * (D + V) + T * (3 * keys + values + 1) + BLOCK * (2 * BLOCK + keys + values) +
                             10 * 16));
    float *keys_t = pieces.take(padded * D), *values_t = pieces.take(padded * V), *k = pieces.take(T * keys);
    float *queries_p = pieces.take(T * keys), *d_out_p = pieces.take(T * values), *sum_q = pieces.take(T * keys);
    float *delta = pieces.take(T), *p = pieces.take(BLOCK * BLOCK), *dp = pieces.take(BLOCK * BLOCK);
    float *sum_k = pieces.take(BLOCK * keys), *sum_v = pieces.take(BLOCK * values);
    std::memset(d_shared, 0, sizeof(float) * s.batch * T * s.rope);
    for (int b = 0; b < s.batch; ++b) {
        for (int h = 0; h < s.heads; ++h) {
            const Head head = head_of(s, b, h, q, kv, shared);
            const size_t first = (size_t)b * T * out_stride + (size_t)h * V;
            const float *grad = d_out + first, *result = out + first;
            const float *sums = lse + ((size_t)b * s.heads + h) * T;
            pack_keys_transposed(s, head, keys_t);
            pack(T, s.nope, head.k, head.kv_stride, scale, k, 0);
            pack(T, s.rope, head.shared, head.shared_stride, scale, k, s.nope);
            pad_columns(T, D, k);
            pack_transposed(T, V, head.v, head.kv_stride, 1.0f, values_t, V, 0);
            pack(T, D, head.q, head.q_stride, 1.0f, queries_p, 0);
            pad_columns(T, D, queries_p);
            pack(T, V, grad, out_stride, 1.0f, d_out_p, 0);
            pad_columns(T, V, d_out_p);
            for (int t = 0; t < T; ++t) {
                float dot = 0.0f;
                for (int c = 0; c < V; ++c) dot += grad[t * out_stride + c] * result[t * out_stride + c];
                delta[t] = dot;
            }
            for (int k0 = 0; k0 < T; k0 += BLOCK) {
                const int nk = std::min(BLOCK, T - k0);
                for (int q0 = k0; q0 < T; q0 += BLOCK) {
                    const int nq = std::min(BLOCK, T - q0), shift = q0 - k0;
                    const bool more = q0 > k0;
                    product<false, Cut::columns>(nq, nk, D, head.q + q0 * head.q_stride, head.q_stride,
                                                 keys_t + (size_t)k0 * D, (size_t)D * NR, p, BLOCK, false, shift);
                    product<false, Cut::columns>(nq, nk, V, grad + q0 * out_stride, out_stride,
                                                 values_t + (size_t)k0 * V, (size_t)V * NR, dp, BLOCK, false,
                                                 shift);
                    const uint8_t *mask =
                        allowed == nullptr ? nullptr : allowed + ((size_t)b * T + q0) * mask_bytes + k0 / 8;
                    block_gradients(nq, nk, shift, p, dp, sums + q0, delta + q0, mask, mask_bytes);
                    product<true, Cut::begin>(nk, V, nq, p, BLOCK, d_out_p + (size_t)q0 * NR, (size_t)T * NR, sum_v,
                                              values, more, shift);
                    product<true, Cut::begin>(nk, D, nq, dp, BLOCK, queries_p + (size_t)q0 * NR, (size_t)T * NR,
                                              sum_k, keys, more, shift);
                    product<false, Cut::end>(nq, D, nk, dp, BLOCK, k + (size_t)k0 * NR, (size_t)T * NR,
                                             sum_q + q0 * keys, keys, k0 > 0, shift);
                }
                float *to = d_kv + ((size_t)b * T + k0) * head.kv_stride + (size_t)h * s.block();
                float *to_shared = d_shared + ((size_t)b * T + k0) * s.rope;
                for (int i = 0; i < nk; ++i, to += head.kv_stride, to_shared += s.rope) {
                    const float *from = sum_k + i * keys;
                    for (int c = 0; c < s.nope; ++c) to[c] = from[c] * scale;
                    for (int c = 0; c < s.rope; ++c) to_shared[c] += from[s.nope + c] * scale;
                    std::memcpy(to + s.nope, sum_v + i * values, sizeof(float) * V);
                }
            }
            float *to = d_q + (size_t)b * T * head.q_stride + (size_t)h * D;
            for (int t = 0; t < T; ++t) std::memcpy(to + t * head.q_stride, sum_q + t * keys, sizeof(float) * D);
        }
    }
}
