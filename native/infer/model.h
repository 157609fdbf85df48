// The whole text network over paged caches: rows of several sequences in, logits out.
//
// Shapes: M rows (tokens) of a pass, D hidden width, V vocabulary, R rows whose logits are wanted.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "infer/arena.h"
#include "infer/attention.h"
#include "infer/matrix.h"
#include "infer/moe.h"
#include "infer/pool.h"
#include "infer/rows.h"
#include "infer/zeroed.h"

// The numbers of an architecture; 0 where a part is absent.
struct Sizes {
    long vocab, hidden, layers, intermediate, residual_block;
    float eps;
    Activation activation;
    // KDA
    int kda_heads, kda_width, taps;
    bool full_rank_gate, bounded_decay;
    float decay_bound, l2_eps;
    // Latent attention
    int heads, query_rank, rank, nope, rope, value;
    bool output_gate;
    float latent_eps;
    // Indexer
    int index_heads, index_width;
    long top_k;
    float index_eps;
    // Experts
    int experts, per_token, groups, top_groups;
    long expert_width, expert_inner, shared_inner;
    bool latent_experts, latent_norm, renormalize;
    float scaling;
    // Caches
    long block_size, blocks, slots;
    Stored cache;
    bool half_state;  // KDA state and convolution tails as BF16
    // Precision: what the inputs of MXFP4 products are rounded to (BF16: of the trunk's and of BF16 experts too), and
    // whether the trunk's matrices become int8
    bool mxfp8_inputs, int8_inputs, half_inputs, int8_trunk;
};

struct Network {
    Matrix gate, up, down;
};

struct KdaLayer {
    Matrix q, k, v, f_a, f_b, b, gate, gate_a, gate_b, o;
    const float *a_log, *dt_bias, *norm;
    std::vector<float> taps;  // [W, 3 * width]
    Zeroed<uint8_t> state;     // [slots, heads, K, K] of float32 or BF16
    Zeroed<uint8_t> tails;     // [slots, W - 1, 3 * width]
};

struct LatentLayer {
    Matrix q, q_a, q_b, kv_a, kv_b, gate, o;
    const float *q_norm, *kv_norm;
    Matrix index_q, index_k, index_weights;
    const float *index_norm, *index_bias;
    Zeroed<uint8_t> rows, keys;  // behind the pages
    Pages pages, key_pages;
};

struct ExpertLayer {
    Matrix router, down, up;
    const float *bias, *norm;
    Network shared;
    std::vector<Network> experts;
    std::vector<int64_t> loads;
};

struct Layer {
    const float *attention_norm, *mlp_norm;
    std::vector<float> attention_mix, mlp_mix;  // norm times projection
    std::unique_ptr<KdaLayer> kda;
    std::unique_ptr<LatentLayer> latent;
    std::unique_ptr<ExpertLayer> moe;
    Network mlp;
};

// Rows that stand in for the embeddings of some tokens of a pass, such as an image's.
struct Given {
    const int64_t *rows = nullptr;  // of the pass
    const float *values = nullptr;  // [count, D]
    long count = 0;
};

// Consecutive rows of one sequence.
struct Span {
    long first_row, tokens, position, slot;
    const int32_t *blocks;
    bool want_logits;
};

class Model {
  public:
    Model(const Sizes &sizes, std::vector<int> layer_is_kda, std::vector<int> layer_has_index,
          std::vector<int> layer_is_moe, int threads);

    // Weights by name; memory of matrices stays the caller's.  `vector` copies.
    void add_matrix(const std::string &name, const Matrix &matrix);
    void add_vector(const std::string &name, const float *values, long count);
    // Takes the weights to their places and makes the caches.  Throws std::invalid_argument naming what is missing
    // or has another shape.
    void finish();

    // One pass; logits [R, V].
    void run(const int64_t *tokens, const std::vector<Span> &spans, const Given &given, float *logits);

    const Sizes &sizes() const { return s_; }
    int threads() const { return pool_.threads(); }
    long slot_bytes() const;
    long block_bytes() const;
    void clear_slot(long slot);
    void save_slot(long slot, uint8_t *out) const;
    void restore_slot(long slot, const uint8_t *from);
    void read_block(long block, uint8_t *out) const;
    void write_block(long block, const uint8_t *from);
    // Tokens of each expert since the start, [layers, experts]; 0 in layers without.
    void loads(int64_t *out) const;

  private:
    struct Task {
        const Matrix *w, *up;  // with `up` the activation of both
        Rows x;
        long tokens;
        float *y;
        long ldy, begin, end;
    };
    // Activations as int8 or rounded to BF16, and what they were made from.
    struct Rounded {
        const float *from = nullptr;
        long cols = 0;
        bool mx_order = false, half = false;
        std::vector<int8_t> codes;
        std::vector<float> scales, values;
        std::vector<uint16_t> halves;
    };

    Matrix take(const std::string &name, long rows, long cols, bool expert = false);
    // A matrix of the trunk, as int8 if the mode says so.
    Matrix take_trunk(const std::string &name, long rows, long cols);
    Network take_network(const std::string &name, const char *gate, const char *up, const char *down, long inner,
                         long width);
    const float *take_vector(const std::string &name, long count, bool optional = false);
    std::vector<float> take_mix(const std::string &name);
    void finish_kda(KdaLayer &layer, const std::string &name);
    void finish_latent(LatentLayer &layer, const std::string &name);
    void finish_moe(ExpertLayer &layer, const std::string &name);

    Rows input(const Matrix &w, const float *x, long ld, long tokens);
    Rows expert_input(const Matrix &w, float *x, long tokens);
    void plan(const Matrix &w, const Rows &x, float *y, long ldy, long tokens, const Matrix *up = nullptr);
    void plan(const Matrix &w, const float *x, long ldx, float *y, long ldy, long tokens, const Matrix *up = nullptr) {
        plan(w, input(w, x, ldx, tokens), y, ldy, tokens, up);
    }
    void work();
    void mix(const std::vector<float> &weight, const float *norm, float *y);
    void attend_kda(KdaLayer &layer);
    void kda_task(KdaLayer &layer, const Span &span, long head, std::vector<float> &scratch);
    void attend_latent(LatentLayer &layer);
    void select(const LatentLayer &layer, const Span &span, long first, long tokens);
    void attention_rows(LatentLayer &layer, const Span &span, long first, long tokens, bool selected);
    void feed_forward(Network &network);
    void experts(ExpertLayer &layer);
    void group();
    void head(float *logits);

    Sizes s_;
    std::vector<int> is_kda_, has_index_, is_moe_;
    Pool pool_;
    std::unordered_map<std::string, Matrix> matrices_;
    std::map<std::string, std::vector<float>> vectors_;
    std::vector<Layer> layers_;
    Arena made_;  // int8 weights
    Matrix embedding_, head_;
    const float *final_norm_ = nullptr;
    std::vector<float> final_mix_;

    // Of the pass that runs.
    long m_ = 0;
    const std::vector<Span> *spans_ = nullptr;
    std::vector<Task> tasks_;
    std::vector<std::vector<float>> scratch_;  // a thread each
    std::vector<std::vector<float>> up_;       // a thread each: what an activation multiplies
    std::deque<Rounded> rounded_;              // of the products that are planned
    size_t num_rounded_ = 0;
    std::vector<std::vector<float>> blocks_;   // residual snapshots [M, D]
    size_t num_blocks_ = 0;
    std::vector<float> prefix_, x_, a_, qkv_, f_, z_, gate_, b_, o_, ql_, iq_, iw_, qa_, mean_, scores_;
    std::vector<float> logits_, expert_weights_, zx_, h_, out_, latent_;
    std::vector<int32_t> chosen_, starts_, place_, active_, picked_, counts_;
};
