#include "infer/attention.h"

#include <algorithm>
#include <cmath>

#include "infer/matrix.h"
#include "infer/simd.h"
#include "train/vmath.h"

namespace {

using simd::F;
using simd::kLanes;

// Tokens whose rows stay in the first cache levels while all heads read them.  Part of the order of summation.
constexpr long kTile = 32;

void need(std::vector<float> &scratch, size_t size) {
    if (scratch.size() < size) scratch.resize(size);
}

// acc[r] = acc[r] * keep + sum_g p[g] rows[g, r].
void accumulate(const float *p, const float *rows, long count, long ldr, float keep, int rank, float *acc) {
    int r = 0;
    for (; r + 4 * kLanes <= rank; r += 4 * kLanes) {
        F sums[4];
        const F k = simd::all(keep);
        for (int i = 0; i < 4; ++i) sums[i] = simd::mul(k, simd::load(acc + r + i * kLanes));
        for (long g = 0; g < count; ++g) {
            const F w = simd::all(p[g]);
            const float *row = rows + g * ldr + r;
            for (int i = 0; i < 4; ++i) sums[i] = simd::fma(w, simd::load(row + i * kLanes), sums[i]);
        }
        for (int i = 0; i < 4; ++i) simd::store(acc + r + i * kLanes, sums[i]);
    }
    for (; r < rank; ++r) {
        float total = keep * acc[r];
        for (long g = 0; g < count; ++g) total += p[g] * rows[g * ldr + r];
        acc[r] = total;
    }
}

}  // namespace

// The softmax is kept as a running peak and sum, rescaled from tile to tile, so that memory does not grow with the
// context (Milakov and Gimelshein, "Online normalizer calculation for softmax").
void attend(const Pages &pages, const int32_t *blocks, const int32_t *positions, long count, const float *query,
            int heads, int rank, float scale, float *mean, std::vector<float> &scratch) {
    const long width = pages.width;
    need(scratch, kTile * width + heads * (kTile + 2));
    float *tile = scratch.data(), *scores = tile + kTile * width, *peaks = scores + heads * kTile;
    float *totals = peaks + heads;
    std::fill(peaks, peaks + heads, -INFINITY);
    std::fill(totals, totals + heads, 0.0f);
    std::fill(mean, mean + static_cast<long>(heads) * rank, 0.0f);
    for (long first = 0; first < count; first += kTile) {
        const long some = std::min(kTile, count - first);
        pages.read(blocks, positions, first, some, tile);
        dots(tile, width, some, query, heads, width, width, scores, kTile);
        for (int h = 0; h < heads; ++h) {
            float *s = scores + h * kTile, peak = peaks[h];
            for (long g = 0; g < some; ++g) peak = std::max(peak, s[g] *= scale);
            const float keep = fast_exp(peaks[h] - peak);
            float total = totals[h] * keep;
            for (long g = 0; g < some; ++g) s[g] = fast_exp(s[g] - peak);
            for (long g = 0; g < some; ++g) total += s[g];
            peaks[h] = peak;
            totals[h] = total;
            accumulate(s, tile, some, width, keep, rank, mean + static_cast<long>(h) * rank);
        }
    }
    for (int h = 0; h < heads; ++h) {
        const float inverse = 1.0f / totals[h];
        for (int r = 0; r < rank; ++r) mean[static_cast<long>(h) * rank + r] *= inverse;
    }
}

void index_scores(const Pages &keys, const int32_t *blocks, long begin, long end, const float *query,
                  const float *weights, long tokens, int heads, float *out, long ld, std::vector<float> &scratch) {
    const long block = keys.block_size, rows = tokens * heads;
    const bool coded = keys.stored == Stored::kFP8;
    need(scratch, rows * block + (coded ? block * keys.width : 0));
    for (long first = begin; first < end; first += block) {
        const long some = std::min(block, end - first);
        // Rows of a block follow each other, so what is stored as numbers is read in place.
        const uint8_t *stored = keys.row(blocks, first);
        if (keys.stored == Stored::kBF16) {
            dots(reinterpret_cast<const uint16_t *>(stored), keys.width, some, query, rows, keys.width, keys.width,
                 scratch.data(), block);
        } else {
            const float *whole = reinterpret_cast<const float *>(stored);
            if (coded) {
                float *out = scratch.data() + rows * block;
                keys.read(blocks, nullptr, first, some, out);
                whole = out;
            }
            dots(whole, keys.width, some, query, rows, keys.width, keys.width, scratch.data(), block);
        }
        for (long t = 0; t < tokens; ++t) {
            float *to = out + t * ld + first;
            for (long s = 0; s < some; ++s) to[s] = 0.0f;
            for (int j = 0; j < heads; ++j) {
                const float weight = weights[t * heads + j], *from = scratch.data() + (t * heads + j) * block;
                for (long s = 0; s < some; ++s) to[s] += weight * (from[s] > 0.0f ? from[s] : 0.0f);
            }
        }
    }
}

long select_best(const float *scores, long n, long top_k, int32_t *positions, std::vector<float> &scratch) {
    if (n <= top_k) {
        for (long i = 0; i < n; ++i) positions[i] = static_cast<int32_t>(i);
        return n;
    }
    need(scratch, n);
    std::copy(scores, scores + n, scratch.begin());
    std::nth_element(scratch.begin(), scratch.begin() + (top_k - 1), scratch.begin() + n, std::greater<float>());
    const float threshold = scratch[top_k - 1];
    long above = 0, found = 0;
    for (long i = 0; i < n; ++i) above += scores[i] > threshold;
    long equal = top_k - above;
    for (long i = 0; i < n && found < top_k; ++i)
        if (scores[i] > threshold || (scores[i] == threshold && equal-- > 0))
            positions[found++] = static_cast<int32_t>(i);
    return found;
}
