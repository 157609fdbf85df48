#include "train/indexer.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace panels;

namespace {

constexpr int SELECT_QUERIES = 48;
const float LOW = -std::numeric_limits<float>::infinity();

// Integers in the order of the floats they stand for; -0 counts as +0.
inline ivec ordered(vec x) {
    const ivec bits = (ivec)(x + 0.0f);
    return bits ^ ((bits >> 31) & 0x7fffffff);
}

inline int count(ivec v) {
    int total = 0;
    for (int i = 0; i < VW; ++i) total -= v[i];
    return total;
}

// Natural logarithm of positive normal floats: exponent and mantissa m in [0.7, 1.4], and the series
// 2 (z + z^3/3 + ..), z = (m - 1) / (m + 1), |z| < 0.18, relative error about 1e-7.
inline vec log(vec x) {
    const ivec bits = (ivec)x;
    const ivec exponent = (bits - 0x3f3504f3) >> 23;  // of x / sqrt(1/2)
    const vec m = (vec)(bits - (exponent << 23));
    const vec n = __builtin_convertvector(exponent, vec);
    const vec z = (m - 1.0f) / (m + 1.0f), z2 = z * z;
    vec y = vec{} + 2.0f / 9.0f;
    y = y * z2 + 2.0f / 7.0f;
    y = y * z2 + 2.0f / 5.0f;
    y = y * z2 + 2.0f / 3.0f;
    y = y * z2 + 2.0f;
    return n * 0.693359375f + (y * z - n * 2.12194440e-4f);
}

// KL(target || softmax(scores)) of one query over n keys, and its gradient by the scores times `weight`, which
// replaces them; zeros up to `filled`.
float divergence(float *scores, const float *target, int n, int filled, const uint8_t *mask, float weight) {
    for (int j = n; j < (int)round_up(n, VW); ++j) scores[j] = LOW;
    vec best = vec{} + LOW, mass = vec{};
    for (int j = 0; j < n; j += VW) {
        vec x = load(scores + j);
        if (mask != nullptr) {
            x = lanes(mask, j) ? x : vec{} + LOW;
            store(scores + j, x);
        }
        best = x > best ? x : best;
        mass += load(target + j);
    }
    const float top = largest(best);
    vec sums = vec{};
    for (int j = 0; j < n; j += VW) sums += exp(load(scores + j) - top);
    const float norm = top + std::log(sum(sums)), share = 1.0f / sum(mass);
    vec total = vec{};
    for (int j = 0; j < n; j += VW) {
        const vec t = load(target + j) * share, log_q = load(scores + j) - norm;
        // Where the target is zero the term is zero, whatever its logarithm.
        const ivec present = t > 1e-37f;
        const vec log_t = log(present ? t : vec{} + 1.0f);
        total += present ? t * (log_t - log_q) : vec{};
        store(scores + j, (exp(log_q) - t) * weight);
    }
    for (int j = n; j < std::max(filled, (int)round_up(n, VW)); ++j) scores[j] = 0.0f;
    return sum(total);
}

}  // namespace

void select_row(const float *scores, int n, int top_k, int32_t *values, uint8_t *bits, int bytes) {
    std::memset(bits, 0, bytes);
    if (n <= top_k) {
        std::memset(bits, 0xff, n / 8);
        if (n % 8 != 0) bits[n / 8] = (uint8_t)((1 << n % 8) - 1);
        return;
    }
    const int end = (int)round_up(n, VW);
    ivec least = ivec{} + INT32_MAX, most = ivec{} + INT32_MIN;
    for (int j = 0; j < end; j += VW) {
        const ivec x = ordered(load(scores + j));
        *(loose_ivec *)(values + j) = x;
        if (j + VW > n) break;
        most = x > most ? x : most;
        least = x < least ? x : least;
    }
    int64_t low = INT32_MAX, high = INT32_MIN;
    for (int i = 0; i < VW; ++i) {
        low = std::min<int64_t>(low, least[i]);
        high = std::max<int64_t>(high, most[i]);
    }
    for (int j = n / VW * VW; j < n; ++j) {
        low = std::min<int64_t>(low, values[j]);
        high = std::max<int64_t>(high, values[j]);
    }
    for (int j = n; j < end; ++j) values[j] = INT32_MIN;
    // Bisection between the least and the greatest: at least top_k reach `low`, fewer reach `high` + 1.  It ends
    // early where exactly top_k reach a value, else at the value that the last of them share.
    int reached = n;
    ++high;
    while (reached != top_k && high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const int32_t limit = (int32_t)(middle - 1);
        ivec above = ivec{};
        for (int j = 0; j < end; j += VW) above += *(const loose_ivec *)(values + j) > limit;
        const int found = count(above);
        if (found >= top_k) {
            low = middle;
            reached = found;
        } else {
            high = middle;
        }
    }
    const bool tied = reached != top_k;
    const int32_t limit = (int32_t)(tied ? low : low - 1);
    ivec above = ivec{};
    for (int j = 0; j < end; j += VW) {
        const ivec chosen = *(const loose_ivec *)(values + j) > limit;
        above += chosen;
        put_lanes(chosen, bits, j);
    }
    if (!tied) return;
    // The earliest of those that share the threshold take the room that is left.
    int room = top_k - count(above);
    for (int j = 0; room > 0; ++j) {
        if (values[j] != limit) continue;
        bits[j >> 3] |= (uint8_t)(1 << (j & 7));
        --room;
    }
}

Indexer::Indexer(const IndexerShape &shape, int block, const float *q, const float *k, const float *w)
    : shape_(shape), block_(block), q_(q), k_(k), w_(w) {
    padded_ = round_up(shape.tokens, NR);
    columns_ = round_up(shape.width, NR);
    row_ = padded_ + NR + 16;  // not a power of two, so that rows do not share cache sets
}

size_t Indexer::scratch(const IndexerShape &s, int block) {
    const size_t padded = round_up(s.tokens, NR), columns = round_up(s.width, NR), row = padded + NR + 16;
    return padded * s.width + 2 * (padded * columns) + (s.heads + 1) * block * row + 2 * block * columns + row +
           8 * 16;
}

void Indexer::use(float *scratch) {
    Pieces pieces(scratch);
    keys_t_ = pieces.take(padded_ * shape_.width);
    keys_ = pieces.take(padded_ * columns_);
    sum_k_ = pieces.take(padded_ * columns_);
    dots_ = pieces.take(shape_.heads * block_ * row_);
    scores_ = pieces.take(block_ * row_);
    queries_ = pieces.take(block_ * columns_);
    sum_q_ = pieces.take(block_ * columns_);
    row_scratch_ = (int32_t *)pieces.take(row_);
}

void Indexer::want_gradients(float *d_q, float *d_k, float *d_w) {
    d_q_ = d_q;
    d_k_ = d_k;
    d_w_ = d_w;
}

void Indexer::begin(int b) {
    sequence_ = b;
    const int T = shape_.tokens, width = shape_.width;
    const float *k = k_ + (size_t)b * T * width;
    pack_transposed(T, width, k, width, 1.0f, keys_t_, width, 0);
    if (d_k_ == nullptr) return;
    pack(T, width, k, width, 1.0f, keys_, 0);
    pad_columns(T, width, keys_);
    std::memset(sum_k_, 0, sizeof(float) * padded_ * columns_);
}

float *Indexer::score(int q0, int queries) {
    const int J = shape_.heads, width = shape_.width;
    const float scale = 1.0f / std::sqrt((float)(J * width));
    const size_t first = (size_t)sequence_ * shape_.tokens + q0;
    for (int j = 0; j < J; ++j) {
        product<false, Cut::columns>(queries, q0 + queries, width, q_ + (first * J + j) * width, (size_t)J * width,
                                     keys_t_, (size_t)width * NR, dots_ + j * block_ * row_, row_, false, q0);
    }
    for (int i = 0; i < queries; ++i) {
        float *to = scores_ + i * row_;
        for (int j = 0; j < J; ++j) {
            const float *dots = dots_ + (j * block_ + i) * row_;
            const float weight = w_[(first + i) * J + j] * scale;
            for (int s = 0; s <= q0 + i; s += VW) {
                const vec x = load(dots + s), before = j == 0 ? vec{} : load(to + s);
                store(to + s, before + (x > 0.0f ? x : vec{}) * weight);
            }
        }
    }
    return scores_;
}

void Indexer::select(int q0, int queries, uint8_t *bits, int bytes) {
    for (int i = 0; i < queries; ++i) {
        select_row(scores_ + i * row_, q0 + i + 1, shape_.top_k, row_scratch_, bits + (size_t)i * bytes, bytes);
    }
}

void Indexer::learn(int q0, int queries, const float *target, const uint8_t *allowed, int mask_bytes) {
    const int J = shape_.heads, width = shape_.width, seen = q0 + queries;
    const size_t first = (size_t)sequence_ * shape_.tokens + q0;
    const float mean = 1.0f / ((float)shape_.batch * (float)shape_.tokens);
    const float scale = 1.0f / std::sqrt((float)(J * width));
    for (int i = 0; i < queries; ++i) {
        const uint8_t *mask = allowed == nullptr ? nullptr : allowed + (size_t)i * mask_bytes;
        loss_ += divergence(scores_ + i * row_, target + i * row_, q0 + i + 1, seen, mask, mean);
    }
    if (d_q_ == nullptr) return;
    for (int j = 0; j < J; ++j) {
        float *dots = dots_ + j * block_ * row_;
        for (int i = 0; i < queries; ++i) {
            const float weight = w_[(first + i) * J + j] * scale;
            const float *grad = scores_ + i * row_;
            float *row = dots + i * row_;
            vec along = vec{};
            const int n = q0 + i + 1;
            for (int s = 0; s < n; s += VW) {
                const vec x = load(row + s), g = load(grad + s);
                const ivec active = x > 0.0f;
                along += active ? g * x : vec{};
                store(row + s, active ? g * weight : vec{});
            }
            for (int s = n; s < seen; ++s) row[s] = 0.0f;
            d_w_[(first + i) * J + j] = sum(along) * scale;
        }
        product<false, Cut::end>(queries, width, seen, dots, row_, keys_, (size_t)shape_.tokens * NR, sum_q_, columns_,
                                 false, q0);
        for (int i = 0; i < queries; ++i) {
            std::memcpy(d_q_ + ((first + i) * J + j) * width, sum_q_ + i * columns_, sizeof(float) * width);
        }
        pack(queries, width, q_ + (first * J + j) * width, (size_t)J * width, 1.0f, queries_, 0);
        pad_columns(queries, width, queries_);
        product<true, Cut::begin>(seen, width, queries, dots, row_, queries_, (size_t)queries * NR, sum_k_, columns_,
                                  true, q0);
    }
}

void Indexer::end() {
    if (d_k_ == nullptr) return;
    const int T = shape_.tokens, width = shape_.width;
    float *to = d_k_ + (size_t)sequence_ * T * width;
    for (int t = 0; t < T; ++t) std::memcpy(to + (size_t)t * width, sum_k_ + t * columns_, sizeof(float) * width);
}

void indexer_select(const IndexerShape &s, const float *q, const float *k, const float *w, uint8_t *bits) {
    static thread_local Scratch memory;
    Indexer indexer(s, SELECT_QUERIES, q, k, w);
    indexer.use(memory.get(Indexer::scratch(s, SELECT_QUERIES)));
    const int bytes = selection_bytes(s.tokens);
    for (int b = 0; b < s.batch; ++b) {
        indexer.begin(b);
        for (int q0 = 0; q0 < s.tokens; q0 += SELECT_QUERIES) {
            const int queries = std::min(SELECT_QUERIES, s.tokens - q0);
            indexer.score(q0, queries);
            indexer.select(q0, queries, bits + ((size_t)b * s.tokens + q0) * bytes, bytes);
        }
    }
}
