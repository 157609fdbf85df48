// Weights to their places, with every shape checked; caches; saving and restoring of state.
#include <cstring>
#include <initializer_list>
#include <stdexcept>

#include "infer/model.h"

namespace {

std::string shape(long rows, long cols) {
    return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

std::string layer_name(size_t i) { return "model.layers." + std::to_string(i) + "."; }

void copy_out(const void *from, size_t bytes, uint8_t *&to) {
    std::memcpy(to, from, bytes);
    to += bytes;
}

void copy_in(void *to, size_t bytes, const uint8_t *&from) {
    std::memcpy(to, from, bytes);
    from += bytes;
}

}  // namespace

Model::Model(const Sizes &sizes, std::vector<int> layer_is_kda, std::vector<int> layer_has_index,
             std::vector<int> layer_is_moe, int threads)
    : s_(sizes),
      is_kda_(std::move(layer_is_kda)),
      has_index_(std::move(layer_has_index)),
      is_moe_(std::move(layer_is_moe)),
      pool_(threads),
      scratch_(threads),
      up_(threads) {}

void Model::add_matrix(const std::string &name, const Matrix &matrix) { matrices_[name] = matrix; }

void Model::add_vector(const std::string &name, const float *values, long count) {
    vectors_[name].assign(values, values + count);
}

Matrix Model::take(const std::string &name, long rows, long cols, bool expert) {
    const auto found = matrices_.find(name);
    if (found == matrices_.end()) throw std::invalid_argument("weight " + name + " is missing");
    const Matrix &m = found->second;
    if (m.kind == Kind::kMXFP4 && !expert)
        throw std::invalid_argument(name + " is packed as MXFP4, which only routed experts may be");
    if (m.rows != rows || m.cols != cols)
        throw std::invalid_argument(name + " has shape " + shape(m.rows, m.cols) + ", the model needs " +
                                    shape(rows, cols));
    Matrix out = m;
    out.half_inputs = expert && s_.half_inputs && m.kind != Kind::kF32;
    return out;
}

Matrix Model::take_trunk(const std::string &name, long rows, long cols) {
    Matrix from = take(name, rows, cols);
    if (!s_.int8_trunk || cols % kInt8Block) {
        from.half_inputs = s_.half_inputs && from.kind == Kind::kBF16;
        return from;
    }
    int8_t *codes = static_cast<int8_t *>(made_.take(rows * cols));
    uint16_t *scales = static_cast<uint16_t *>(made_.take(rows * cols / kInt8Block * sizeof(uint16_t)));
    pool_.each(rows, [&](long r, int thread) {
        std::vector<float> &row = scratch_[thread];
        if (row.size() < static_cast<size_t>(cols)) row.resize(cols);
        decode(from, r, r + 1, row.data());
        weights_to_int8(row.data(), cols, codes + r * cols, scales + r * cols / kInt8Block);
    });
    return {Kind::kInt8, codes, scales, rows, cols};
}

Network Model::take_network(const std::string &name, const char *gate, const char *up, const char *down, long inner,
                            long width) {
    return {take_trunk(name + gate, inner, width), take_trunk(name + up, inner, width),
            take_trunk(name + down, width, inner)};
}

const float *Model::take_vector(const std::string &name, long count, bool optional) {
    const auto found = vectors_.find(name);
    if (found == vectors_.end()) {
        if (optional) return nullptr;
        throw std::invalid_argument("weight " + name + " is missing");
    }
    if (static_cast<long>(found->second.size()) != count)
        throw std::invalid_argument(name + " has " + std::to_string(found->second.size()) +
                                    " values, the model needs " + std::to_string(count));
    return found->second.data();
}

std::vector<float> Model::take_mix(const std::string &name) {
    if (!s_.residual_block) return {};
    const float *norm = take_vector(name + "norm.weight", s_.hidden);
    const float *proj = take_vector(name + "proj.weight", s_.hidden);
    std::vector<float> out(s_.hidden);
    for (long i = 0; i < s_.hidden; ++i) out[i] = norm[i] * proj[i];
    return out;
}

void Model::finish_kda(KdaLayer &l, const std::string &name) {
    const long width = static_cast<long>(s_.kda_heads) * s_.kda_width, d = s_.hidden, k = s_.kda_width;
    l.q = take_trunk(name + "q_proj", width, d);
    l.k = take_trunk(name + "k_proj", width, d);
    l.v = take_trunk(name + "v_proj", width, d);
    l.f_a = take(name + "f_a_proj", k, d);
    l.f_b = take(name + "f_b_proj", width, k);
    l.b = take(name + "b_proj", s_.kda_heads, d);
    if (s_.full_rank_gate) {
        l.gate = take_trunk(name + "g_proj", width, d);
    } else {
        l.gate_a = take(name + "g_a_proj", k, d);
        l.gate_b = take(name + "g_b_proj", width, k);
    }
    l.o = take_trunk(name + "o_proj", d, width);
    l.a_log = take_vector(name + "A_log", s_.kda_heads);
    l.dt_bias = take_vector(name + "dt_bias", width);
    l.norm = take_vector(name + "o_norm.weight", k);
    l.taps.resize(s_.taps * 3 * width);
    const char *parts[3] = {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"};
    for (int p = 0; p < 3; ++p) {
        const float *taps = take_vector(name + parts[p], width * s_.taps);
        for (long c = 0; c < width; ++c)
            for (int j = 0; j < s_.taps; ++j) l.taps[j * 3 * width + p * width + c] = taps[c * s_.taps + j];
    }
    const size_t item = s_.half_state ? 2 : 4;
    l.state = Zeroed<uint8_t>(s_.slots * width * k * item);
    l.tails = Zeroed<uint8_t>(s_.slots * (s_.taps - 1) * 3 * width * item);
}

void Model::finish_latent(LatentLayer &l, const std::string &name) {
    const long d = s_.hidden, cached = s_.rank + s_.rope, qk = static_cast<long>(s_.heads) * (s_.nope + s_.rope);
    const long values = static_cast<long>(s_.heads) * s_.value;
    if (s_.query_rank) {
        l.q_a = take_trunk(name + "q_a_proj", s_.query_rank, d);
        l.q_b = take_trunk(name + "q_b_proj", qk, s_.query_rank);
        l.q_norm = take_vector(name + "q_a_layernorm.weight", s_.query_rank);
    } else {
        l.q = take_trunk(name + "q_proj", qk, d);
    }
    l.kv_a = take_trunk(name + "kv_a_proj_with_mqa", cached, d);
    l.kv_norm = take_vector(name + "kv_a_layernorm.weight", s_.rank);
    l.kv_b = take(name + "kv_b_proj", static_cast<long>(s_.heads) * (s_.nope + s_.value), s_.rank);
    if (s_.output_gate) l.gate = take_trunk(name + "g_proj", values, d);
    l.o = take_trunk(name + "o_proj", d, values);
    l.pages = Pages(s_.cache, cached, s_.block_size, s_.rank, false);
    l.rows = Zeroed<uint8_t>(static_cast<size_t>(s_.blocks) * s_.block_size * l.pages.row_bytes);
    l.pages.data = l.rows.data();
}

void Model::finish_moe(ExpertLayer &l, const std::string &name) {
    const long d = s_.hidden, width = s_.expert_width;
    l.router = take(name + "gate", s_.experts, d);
    l.bias = take_vector(name + "gate.e_score_correction_bias", s_.experts);
    if (s_.latent_experts) {
        l.down = take_trunk(name + "routed_expert_down_proj", width, d);
        l.up = take_trunk(name + "routed_expert_up_proj", d, width);
        if (s_.latent_norm) l.norm = take_vector(name + "routed_expert_norm.weight", width);
    }
    if (s_.shared_inner)
        l.shared = take_network(name + "shared_experts.", "gate_proj", "up_proj", "down_proj", s_.shared_inner, d);
    for (int e = 0; e < s_.experts; ++e) {
        const std::string expert = name + "experts." + std::to_string(e) + ".";
        l.experts.push_back({take(expert + "w1", s_.expert_inner, width, true),
                             take(expert + "w3", s_.expert_inner, width, true),
                             take(expert + "w2", width, s_.expert_inner, true)});
        // One form of the inputs serves all experts of a layer.
        const bool packed = l.experts[0].gate.kind == Kind::kMXFP4;
        for (const Matrix *m : {&l.experts[e].gate, &l.experts[e].up, &l.experts[e].down})
            if ((m->kind == Kind::kMXFP4) != packed)
                throw std::invalid_argument(expert + " is stored in another way than " + name + "experts.0");
    }
    l.loads.assign(s_.experts, 0);
}

void Model::finish() {
    bool rounds = !s_.half_inputs;
    for (const auto &entry : matrices_) rounds |= entry.second.kind == Kind::kBF16 || entry.second.kind == Kind::kMXFP4;
    if (!rounds)
        throw std::invalid_argument("activations 'bf16' want matrices stored as BF16 or MXFP4, and all are float32; "
                                    "use 'exact'");
    embedding_ = take("model.embed_tokens", s_.vocab, s_.hidden);
    head_ = take_trunk("lm_head", s_.vocab, s_.hidden);
    final_norm_ = take_vector("model.norm.weight", s_.hidden);
    final_mix_ = take_mix("model.output_attn_res_");
    layers_.resize(s_.layers);
    for (size_t i = 0; i < layers_.size(); ++i) {
        Layer &l = layers_[i];
        const std::string name = layer_name(i), attention = name + "self_attn.";
        l.attention_norm = take_vector(name + "input_layernorm.weight", s_.hidden);
        l.mlp_norm = take_vector(name + "post_attention_layernorm.weight", s_.hidden);
        l.attention_mix = take_mix(name + "self_attention_res_");
        l.mlp_mix = take_mix(name + "mlp_res_");
        if (is_kda_[i]) {
            l.kda = std::make_unique<KdaLayer>();
            finish_kda(*l.kda, attention);
        } else {
            l.latent = std::make_unique<LatentLayer>();
            finish_latent(*l.latent, attention);
            if (has_index_[i]) {
                LatentLayer &t = *l.latent;
                const std::string index = attention + "indexer.";
                t.index_q = take(index + "wq_b", static_cast<long>(s_.index_heads) * s_.index_width, s_.query_rank);
                t.index_k = take(index + "wk", s_.index_width, s_.hidden);
                t.index_weights = take(index + "weights_proj", s_.index_heads, s_.hidden);
                t.index_norm = take_vector(index + "k_norm.weight", s_.index_width);
                t.index_bias = take_vector(index + "k_norm.bias", s_.index_width, true);
                t.key_pages = Pages(s_.cache, s_.index_width, s_.block_size, s_.index_width, true);
                t.keys = Zeroed<uint8_t>(static_cast<size_t>(s_.blocks) * s_.block_size * t.key_pages.row_bytes);
                t.key_pages.data = t.keys.data();
            }
        }
        if (is_moe_[i]) {
            l.moe = std::make_unique<ExpertLayer>();
            finish_moe(*l.moe, name + "block_sparse_moe.");
        } else {
            l.mlp = take_network(name + "mlp.", "gate_proj", "up_proj", "down_proj", s_.intermediate, s_.hidden);
        }
    }
}

long Model::slot_bytes() const {
    long total = 0;
    for (const Layer &l : layers_)
        if (l.kda) total += static_cast<long>(l.kda->state.size() + l.kda->tails.size()) / s_.slots;
    return total;
}

long Model::block_bytes() const {
    long total = 0;
    for (const Layer &l : layers_)
        if (l.latent) total += static_cast<long>(l.latent->rows.size() + l.latent->keys.size()) / s_.blocks;
    return total;
}

void Model::clear_slot(long slot) {
    for (Layer &l : layers_) {
        if (!l.kda) continue;
        const size_t state = l.kda->state.size() / s_.slots, tails = l.kda->tails.size() / s_.slots;
        std::memset(l.kda->state.data() + slot * state, 0, state);
        std::memset(l.kda->tails.data() + slot * tails, 0, tails);
    }
}

void Model::save_slot(long slot, uint8_t *out) const {
    for (const Layer &l : layers_) {
        if (!l.kda) continue;
        const size_t state = l.kda->state.size() / s_.slots, tails = l.kda->tails.size() / s_.slots;
        copy_out(l.kda->state.data() + slot * state, state, out);
        copy_out(l.kda->tails.data() + slot * tails, tails, out);
    }
}

void Model::restore_slot(long slot, const uint8_t *from) {
    for (Layer &l : layers_) {
        if (!l.kda) continue;
        const size_t state = l.kda->state.size() / s_.slots, tails = l.kda->tails.size() / s_.slots;
        copy_in(l.kda->state.data() + slot * state, state, from);
        copy_in(l.kda->tails.data() + slot * tails, tails, from);
    }
}

void Model::read_block(long block, uint8_t *out) const {
    for (const Layer &l : layers_) {
        if (!l.latent) continue;
        const size_t rows = l.latent->rows.size() / s_.blocks, keys = l.latent->keys.size() / s_.blocks;
        copy_out(l.latent->rows.data() + block * rows, rows, out);
        copy_out(l.latent->keys.data() + block * keys, keys, out);
    }
}

void Model::write_block(long block, const uint8_t *from) {
    for (Layer &l : layers_) {
        if (!l.latent) continue;
        const size_t rows = l.latent->rows.size() / s_.blocks, keys = l.latent->keys.size() / s_.blocks;
        copy_in(l.latent->rows.data() + block * rows, rows, from);
        copy_in(l.latent->keys.data() + block * keys, keys, from);
    }
}

void Model::loads(int64_t *out) const {
    for (size_t i = 0; i < layers_.size(); ++i)
        for (int e = 0; e < s_.experts; ++e) out[i * s_.experts + e] = layers_[i].moe ? layers_[i].moe->loads[e] : 0;
}
