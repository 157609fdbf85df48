#include "infer/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "infer/bf16.h"
#include "infer/kda.h"
#include "infer/simd.h"
#include "train/mxfp4.h"

namespace {

// A task reads about this many bytes of weights: enough to hide what sharing costs, little enough to share well.
constexpr long kTaskBytes = 96 * 1024;
// Bytes of index scores at a time; rows beyond wait for the next round.
constexpr long kScoreBytes = 32L << 20;

template <class T>
void need(std::vector<T> &buffer, long size) {
    if (buffer.size() < static_cast<size_t>(size)) buffer.resize(size);
}

// The rows from `token` on.
Rows after(const Rows &x, long token, long cols) {
    Rows out = x;
    out.values += token * x.ld;
    if (x.half) out.half += token * cols;
    if (!x.int8.codes) return out;
    out.int8.codes += token * cols;
    out.int8.scales += token * cols / kInt8Block;
    return out;
}

long row_bytes(const Matrix &w) {
    if (w.kind == Kind::kMXFP4) return w.cols / 2 + w.cols / 32;
    if (w.kind == Kind::kInt8) return w.cols + w.cols / 16;
    return w.cols * (w.kind == Kind::kBF16 ? 2 : 4);
}

}  // namespace

// Activations as int8 or BF16 for products with w, which is as wide; made once for all products planned together.
Rows Model::input(const Matrix &w, const float *x, long ld, long tokens) {
    const bool packed = w.kind == Kind::kMXFP4;
    if (!w.half_inputs && !(packed ? s_.int8_inputs : w.kind == Kind::kInt8)) return {x, ld};
    const long cols = w.cols;
    const bool half = w.half_inputs;
    Rounded *found = nullptr;
    for (size_t i = 0; i < num_rounded_ && !found; ++i)
        if (rounded_[i].from == x && rounded_[i].cols == cols && rounded_[i].mx_order == packed &&
            rounded_[i].half == half)
            found = &rounded_[i];
    if (!found) {
        if (num_rounded_ == rounded_.size()) rounded_.emplace_back();
        found = &rounded_[num_rounded_++];
        found->from = x;
        found->cols = cols;
        found->mx_order = packed;
        found->half = half;
        if (half && kHalfProducts) {
            need(found->halves, tokens * cols);
        } else if (half) {
            need(found->values, tokens * cols);
        } else {
            need(found->codes, tokens * cols);
            need(found->scales, tokens * cols / kInt8Block);
        }
        const long some = 8;
        pool_.each((tokens + some - 1) / some, [&](long part, int) {
            const long m = part * some, count = std::min(some, tokens - m);
            if (half && kHalfProducts)
                round_to_bf16(x + m * ld, count, ld, cols, found->halves.data() + m * cols);
            else if (half)
                round_to_bf16(x + m * ld, count, ld, cols, found->values.data() + m * cols);
            else
                to_int8(x + m * ld, count, ld, cols, found->codes.data() + m * cols,
                        found->scales.data() + m * cols / kInt8Block, packed);
        });
    }
    if (half && kHalfProducts) return {x, ld, {}, found->halves.data()};
    if (half) return {found->values.data(), cols};
    return {x, ld, {found->codes.data(), found->scales.data()}};
}

// Contiguous inputs of experts in the form that their matrices want; x is changed.
Rows Model::expert_input(const Matrix &w, float *x, long tokens) {
    if (w.kind == Kind::kMXFP4 && !s_.int8_inputs) {
        const long some = 16, cols = w.cols;
        pool_.each((tokens + some - 1) / some, [&](long part, int) {
            float *from = x + part * some * cols;
            const long count = std::min(some, tokens - part * some);
            if (s_.mxfp8_inputs) mxfp8_values(from, from, count * cols, 0);
            to_mx_order(from, from, count, cols);
        });
    }
    return input(w, x, w.cols, tokens);
}

// y = w x for all rows of w, in tasks that `work` runs.
void Model::plan(const Matrix &w, const Rows &x, float *y, long ldy, long tokens, const Matrix *up) {
    long step = kTaskBytes / std::max(1L, row_bytes(w)) / 8 * 8;
    step = std::max(8L, std::min(step, 512L));
    for (long begin = 0; begin < w.rows; begin += step)
        tasks_.push_back({&w, up, x, tokens, y, ldy, begin, std::min(w.rows, begin + step)});
}

void Model::work() {
    pool_.each(static_cast<long>(tasks_.size()), [this](long i, int thread) {
        const Task &t = tasks_[i];
        std::vector<float> &scratch = scratch_[thread], &up = up_[thread];
        multiply(*t.w, t.x, t.tokens, t.y, t.ldy, t.begin, t.end, scratch);
        if (!t.up) return;
        const long some = t.end - t.begin;
        need(up, t.tokens * some);
        multiply(*t.up, t.x, t.tokens, up.data() - t.begin, some, t.begin, t.end, scratch);
        for (long m = 0; m < t.tokens; ++m)
            activate(s_.activation, t.y + m * t.ldy + t.begin, up.data() + m * some, some);
    });
    tasks_.clear();
    num_rounded_ = 0;
}

// The attention residual of every row, then the layer's norm.
void Model::mix(const std::vector<float> &weight, const float *norm, float *y) {
    const long d = s_.hidden;
    pool_.each((m_ + 3) / 4, [&](long group, int) {
        const float *candidates[256];
        for (long m = 4 * group; m < std::min(m_, 4 * group + 4); ++m) {
            int count = 0;
            if (!weight.empty())
                for (size_t i = 0; i < num_blocks_; ++i) candidates[count++] = blocks_[i].data() + m * d;
            candidates[count++] = prefix_.data() + m * d;
            residual_mix(candidates, count, weight.data(), s_.eps, d, y + m * d);
            rms_norm(y + m * d, norm, s_.eps, d, y + m * d);
        }
    });
}

void Model::run(const int64_t *tokens, const std::vector<Span> &spans, const Given &given, float *logits) {
    m_ = 0;
    for (const Span &span : spans) m_ += span.tokens;
    spans_ = &spans;
    const long d = s_.hidden;
    need(prefix_, m_ * d);
    need(x_, m_ * d);
    need(a_, m_ * d);
    for (long m = 0; m < m_; ++m) decode(embedding_, tokens[m], tokens[m] + 1, prefix_.data() + m * d);
    for (long i = 0; i < given.count; ++i)
        std::memcpy(prefix_.data() + given.rows[i] * d, given.values + i * d, d * sizeof(float));
    num_blocks_ = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
        Layer &layer = layers_[i];
        mix(layer.attention_mix, layer.attention_norm, x_.data());
        const bool fresh = s_.residual_block && i % s_.residual_block == 0;
        if (fresh) {
            if (blocks_.size() == num_blocks_) blocks_.emplace_back();
            need(blocks_[num_blocks_], m_ * d);
            std::memcpy(blocks_[num_blocks_++].data(), prefix_.data(), m_ * d * sizeof(float));
        }
        if (layer.kda) attend_kda(*layer.kda);
        else attend_latent(*layer.latent);
        if (fresh) std::memcpy(prefix_.data(), a_.data(), m_ * d * sizeof(float));
        else
            for (long j = 0; j < m_ * d; ++j) prefix_[j] += a_[j];
        mix(layer.mlp_mix, layer.mlp_norm, x_.data());
        if (layer.moe) experts(*layer.moe);
        else feed_forward(layer.mlp);
        for (long j = 0; j < m_ * d; ++j) prefix_[j] += a_[j];
    }
    head(logits);
}

void Model::head(float *logits) {
    const long d = s_.hidden;
    long wanted = 0;
    for (const Span &span : *spans_) {
        if (!span.want_logits) continue;
        const long m = span.first_row + span.tokens - 1;
        const float *candidates[256];
        int count = 0;
        if (!final_mix_.empty())
            for (size_t i = 0; i < num_blocks_; ++i) candidates[count++] = blocks_[i].data() + m * d;
        candidates[count++] = prefix_.data() + m * d;
        float *y = x_.data() + wanted++ * d;
        residual_mix(candidates, count, final_mix_.data(), s_.eps, d, y);
        rms_norm(y, final_norm_, s_.eps, d, y);
    }
    if (!wanted) return;
    plan(head_, x_.data(), d, logits, s_.vocab, wanted);
    work();
}

void Model::attend_kda(KdaLayer &layer) {
    const long width = static_cast<long>(s_.kda_heads) * s_.kda_width, channels = 3 * width, d = s_.hidden;
    const long k = s_.kda_width;
    const float *x = x_.data();
    need(qkv_, m_ * channels);
    need(f_, 2 * m_ * k);
    need(z_, m_ * width);
    need(gate_, m_ * width);
    need(b_, m_ * s_.kda_heads);
    need(o_, m_ * width);
    plan(layer.q, x, d, qkv_.data(), channels, m_);
    plan(layer.k, x, d, qkv_.data() + width, channels, m_);
    plan(layer.v, x, d, qkv_.data() + 2 * width, channels, m_);
    plan(layer.f_a, x, d, f_.data(), k, m_);
    plan(layer.b, x, d, b_.data(), s_.kda_heads, m_);
    if (layer.gate) plan(layer.gate, x, d, gate_.data(), width, m_);
    else plan(layer.gate_a, x, d, f_.data() + m_ * k, k, m_);
    work();
    plan(layer.f_b, f_.data(), k, z_.data(), width, m_);
    if (!layer.gate) plan(layer.gate_b, f_.data() + m_ * k, k, gate_.data(), width, m_);
    work();
    if (s_.half_state)
        // What the tails cannot hold must not be seen before they are written either.
        pool_.each(m_, [&](long m, int) {
            for (long c = m * channels; c < (m + 1) * channels; ++c) qkv_[c] = simd::value(simd::to_bf16(qkv_[c]));
        });
    pool_.each(static_cast<long>(spans_->size()) * s_.kda_heads, [&](long task, int thread) {
        kda_task(layer, (*spans_)[task / s_.kda_heads], task % s_.kda_heads, scratch_[thread]);
    });
    plan(layer.o, o_.data(), width, a_.data(), d, m_);
    work();
}

// One head of one span, over its slot.
void Model::kda_task(KdaLayer &layer, const Span &span, long head, std::vector<float> &scratch) {
    const long k = s_.kda_width, width = s_.kda_heads * k, channels = 3 * width, at = head * k, row = span.first_row;
    const long tail_rows = s_.taps - 1, square = k * k, own = kda_scratch(s_.kda_width);
    const long tail_at = span.slot * tail_rows * channels + at, state_at = (span.slot * s_.kda_heads + head) * square;
    need(scratch, own + square + tail_rows * 3 * k);
    const float *in = qkv_.data() + row * channels + at, *taps = layer.taps.data() + at;
    KdaHead h{span.tokens, s_.kda_width, s_.taps, channels, s_.bounded_decay, s_.decay_bound, s_.l2_eps, s_.eps,
              in, in + width, in + 2 * width, taps, taps + width, taps + 2 * width, nullptr, nullptr, nullptr, channels,
              z_.data() + row * width + at, gate_.data() + row * width + at, width, layer.dt_bias + at,
              layer.a_log[head], b_.data() + row * s_.kda_heads + head, s_.kda_heads, layer.norm, nullptr,
              s_.half_state, o_.data() + row * width + at};
    if (!s_.half_state) {
        float *tail = reinterpret_cast<float *>(layer.tails.data()) + tail_at;
        h.q_tail = tail, h.k_tail = tail + width, h.v_tail = tail + 2 * width;
        h.state = reinterpret_cast<float *>(layer.state.data()) + state_at;
        kda_head(h, scratch.data());
        return;
    }
    uint16_t *state = reinterpret_cast<uint16_t *>(layer.state.data()) + state_at;
    uint16_t *tail = reinterpret_cast<uint16_t *>(layer.tails.data()) + tail_at;
    float *tails = scratch.data() + own + square;
    h.state = scratch.data() + own, h.tail_stride = 3 * k;
    h.q_tail = tails, h.k_tail = tails + k, h.v_tail = tails + 2 * k;
    // Each part of a tail's row is k values, `width` apart in the slot.
    const auto each = [&](auto &&move) {
        for (long j = 0; j < tail_rows * 3; ++j)
            for (long c = 0; c < k; ++c) move(tails[j * k + c], tail[j / 3 * channels + j % 3 * width + c]);
        for (long i = 0; i < square; ++i) move(h.state[i], state[i]);
    };
    each([](float &whole, uint16_t &half) { whole = simd::value(half); });
    kda_head(h, scratch.data());
    each([](float &whole, uint16_t &half) { half = simd::to_bf16(whole); });
}

void Model::attend_latent(LatentLayer &layer) {
    const long d = s_.hidden, heads = s_.heads, cached = s_.rank + s_.rope, qk = s_.nope + s_.rope;
    const long out = heads * s_.value, group = s_.nope + s_.value;
    const float *x = x_.data();
    const bool indexed = static_cast<bool>(layer.index_q);
    need(qkv_, m_ * heads * qk);
    need(latent_, m_ * cached);
    need(gate_, m_ * out);
    need(ql_, m_ * std::max(1, s_.query_rank));
    need(qa_, m_ * heads * cached);
    need(mean_, m_ * heads * s_.rank);
    need(o_, m_ * out);
    plan(layer.kv_a, x, d, latent_.data(), cached, m_);
    if (layer.q) plan(layer.q, x, d, qkv_.data(), heads * qk, m_);
    else plan(layer.q_a, x, d, ql_.data(), s_.query_rank, m_);
    if (layer.gate) plan(layer.gate, x, d, gate_.data(), out, m_);
    if (indexed) {
        need(f_, m_ * s_.index_width);
        need(iw_, m_ * s_.index_heads);
        need(iq_, m_ * s_.index_heads * s_.index_width);
        plan(layer.index_k, x, d, f_.data(), s_.index_width, m_);
        plan(layer.index_weights, x, d, iw_.data(), s_.index_heads, m_);
    }
    work();
    for (const Span &span : *spans_)
        for (long t = 0; t < span.tokens; ++t) {
            const long m = span.first_row + t, position = span.position + t;
            float *row = latent_.data() + m * cached;
            rms_norm(row, layer.kv_norm, s_.latent_eps, s_.rank, row);
            layer.pages.write(span.blocks, position, row);
            if (s_.query_rank) {
                float *q = ql_.data() + m * s_.query_rank;
                rms_norm(q, layer.q_norm, s_.latent_eps, s_.query_rank, q);
            }
            if (indexed) {
                float *key = f_.data() + m * s_.index_width;
                layer_norm(key, layer.index_norm, layer.index_bias, s_.index_eps, s_.index_width, key);
                layer.key_pages.write(span.blocks, position, key);
            }
        }
    if (s_.query_rank) plan(layer.q_b, ql_.data(), s_.query_rank, qkv_.data(), heads * qk, m_);
    if (indexed)
        plan(layer.index_q, ql_.data(), s_.query_rank, iq_.data(),
             static_cast<long>(s_.index_heads) * s_.index_width, m_);
    work();
    // W_k moves into the query; the shared part follows it.
    pool_.each(heads, [&](long h, int) {
        multiply_transposed(layer.kv_b, qkv_.data() + h * qk, m_, heads * qk, qa_.data() + h * cached,
                            heads * cached, h * group, h * group + s_.nope);
        for (long m = 0; m < m_; ++m)
            std::memcpy(qa_.data() + (m * heads + h) * cached + s_.rank, qkv_.data() + (m * heads + h) * qk + s_.nope,
                        s_.rope * sizeof(float));
    });
    for (const Span &span : *spans_) {
        const long reach = span.position + span.tokens;
        const bool sparse = indexed && reach > s_.top_k;
        const long most = sparse ? std::max(1L, kScoreBytes / static_cast<long>(sizeof(float)) / reach) : span.tokens;
        for (long first = 0; first < span.tokens; first += most) {
            const long some = std::min(most, span.tokens - first);
            if (sparse) select(layer, span, first, some);
            attention_rows(layer, span, first, some, sparse);
        }
    }
    pool_.each(heads, [&](long h, int thread) {
        multiply(layer.kv_b, {mean_.data() + h * s_.rank, heads * s_.rank}, m_,
                 o_.data() + h * s_.value - h * group - s_.nope, out, h * group + s_.nope, (h + 1) * group,
                 scratch_[thread]);
    });
    if (layer.gate) gate_by_sigmoid(o_.data(), gate_.data(), m_ * out);
    plan(layer.o, o_.data(), out, a_.data(), d, m_);
    work();
}

// The indexer's choice for some rows of a span, into picked_ [tokens, top_k] and counts_ [tokens].
void Model::select(const LatentLayer &layer, const Span &span, long first, long tokens) {
    const long heads = s_.index_heads, width = s_.index_width, reach = span.position + first + tokens;
    const long row = span.first_row + first;
    const float scale = 1.0f / std::sqrt(static_cast<float>(heads * width));
    for (long i = 0; i < tokens * heads; ++i) iw_[row * heads + i] *= scale;
    need(scores_, tokens * reach);
    need(picked_, tokens * s_.top_k);
    need(counts_, tokens);
    // Slices of queries that share the keys they read, times slices of the context.
    const long queries = 8, keys = s_.block_size * std::max(1L, 2048 / s_.block_size);
    const long rows = (tokens + queries - 1) / queries, columns = (reach + keys - 1) / keys;
    pool_.each(rows * columns, [&](long task, int thread) {
        const long t = task / columns * queries, some = std::min(queries, tokens - t);
        const long begin = task % columns * keys, end = std::min(begin + keys, span.position + first + t + some);
        if (begin >= end) return;
        index_scores(layer.key_pages, span.blocks, begin, end, iq_.data() + (row + t) * heads * width,
                     iw_.data() + (row + t) * heads, some, static_cast<int>(heads), scores_.data() + t * reach, reach,
                     scratch_[thread]);
    });
    pool_.each(tokens, [&](long t, int thread) {
        counts_[t] = static_cast<int32_t>(select_best(scores_.data() + t * reach, span.position + first + t + 1,
                                                      s_.top_k, picked_.data() + t * s_.top_k, scratch_[thread]));
    });
}

void Model::attention_rows(LatentLayer &layer, const Span &span, long first, long tokens, bool selected) {
    const long heads = s_.heads, cached = s_.rank + s_.rope;
    const float scale = 1.0f / std::sqrt(static_cast<float>(s_.nope + s_.rope));
    // A few heads share the rows they read; more tasks than rows where rows are few.
    const long together = tokens > 1 ? heads : std::max(1L, std::min(heads, (heads + threads() - 1) / threads()));
    const long groups = (heads + together - 1) / together;
    pool_.each(tokens * groups, [&](long task, int thread) {
        const long t = task / groups, h = task % groups * together, some = std::min(together, heads - h);
        const long m = span.first_row + first + t;
        const int32_t *positions = selected ? picked_.data() + t * s_.top_k : nullptr;
        const long count = selected ? counts_[t] : span.position + first + t + 1;
        attend(layer.pages, span.blocks, positions, count, qa_.data() + (m * heads + h) * cached,
               static_cast<int>(some), s_.rank, scale, mean_.data() + (m * heads + h) * s_.rank, scratch_[thread]);
    });
}

void Model::feed_forward(Network &network) {
    need(h_, m_ * s_.intermediate);
    plan(network.gate, x_.data(), s_.hidden, h_.data(), s_.intermediate, m_, &network.up);
    work();
    plan(network.down, h_.data(), s_.intermediate, a_.data(), s_.hidden, m_);
    work();
}

// Sorts (token, slot) pairs by expert: starts_ of each expert, place_ of each pair, active_ experts.
void Model::group() {
    const long pairs = m_ * s_.per_token;
    starts_.assign(s_.experts + 1, 0);
    need(place_, pairs);
    for (long p = 0; p < pairs; ++p) ++starts_[chosen_[p] + 1];
    active_.clear();
    for (int e = 0; e < s_.experts; ++e) {
        if (starts_[e + 1]) active_.push_back(e);
        starts_[e + 1] += starts_[e];
    }
    std::vector<int32_t> next(starts_.begin(), starts_.end() - 1);
    for (long p = 0; p < pairs; ++p) place_[p] = next[chosen_[p]]++;
}

void Model::experts(ExpertLayer &layer) {
    const long d = s_.hidden, width = s_.expert_width, inner = s_.expert_inner, per = s_.per_token;
    const long pairs = m_ * per;
    const float *x = x_.data();
    need(logits_, m_ * s_.experts);
    need(expert_weights_, pairs);
    need(chosen_, pairs);
    need(latent_, m_ * width);
    need(zx_, pairs * width);
    need(h_, pairs * inner + m_ * s_.shared_inner);
    need(out_, pairs * width);
    float *shared = h_.data() + pairs * inner;
    plan(layer.router, x, d, logits_.data(), s_.experts, m_);
    if (layer.down) plan(layer.down, x, d, latent_.data(), width, m_);
    if (layer.shared.gate) plan(layer.shared.gate, x, d, shared, s_.shared_inner, m_, &layer.shared.up);
    work();
    const Router router{s_.experts, s_.per_token, s_.groups, s_.top_groups, s_.renormalize, s_.scaling, layer.bias};
    pool_.each(m_, [&](long m, int thread) {
        need(scratch_[thread], 2L * s_.experts);
        choose(router, logits_.data() + m * s_.experts, chosen_.data() + m * per, expert_weights_.data() + m * per,
               scratch_[thread].data());
    });
    group();
    for (int e : active_) layer.loads[e] += starts_[e + 1] - starts_[e];
    const float *z = layer.down ? latent_.data() : x;
    pool_.each(m_, [&](long m, int) {
        for (long a = 0; a < per; ++a)
            std::memcpy(zx_.data() + place_[m * per + a] * width, z + m * width, width * sizeof(float));
    });
    const Rows inputs = expert_input(layer.experts[0].gate, zx_.data(), pairs);
    for (int e : active_) {
        const long start = starts_[e], some = starts_[e + 1] - start;
        plan(layer.experts[e].gate, after(inputs, start, width), h_.data() + start * inner, inner, some,
             &layer.experts[e].up);
    }
    work();
    const Rows inners = expert_input(layer.experts[0].down, h_.data(), pairs);
    for (int e : active_) {
        const long start = starts_[e], some = starts_[e + 1] - start;
        plan(layer.experts[e].down, after(inners, start, inner), out_.data() + start * width, width, some);
    }
    if (layer.shared.gate) plan(layer.shared.down, shared, s_.shared_inner, a_.data(), d, m_);
    work();
    need(mean_, m_ * width);
    pool_.each(m_, [&](long m, int) {
        float *y = mean_.data() + m * width;
        std::fill(y, y + width, 0.0f);
        for (long a = 0; a < per; ++a) {
            const float weight = expert_weights_[m * per + a], *from = out_.data() + place_[m * per + a] * width;
            for (long i = 0; i < width; ++i) y[i] += weight * from[i];
        }
        if (layer.norm) rms_norm(y, layer.norm, s_.eps, width, y);
    });
    const float *routed = mean_.data();
    if (layer.up) {
        need(zx_, m_ * d);
        plan(layer.up, mean_.data(), width, zx_.data(), d, m_);
        work();
        routed = zx_.data();
    }
    if (layer.shared.gate)
        for (long i = 0; i < m_ * d; ++i) a_[i] += routed[i];
    else
        std::memcpy(a_.data(), routed, m_ * d * sizeof(float));
}
