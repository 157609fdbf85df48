#include "infer/moe.h"

#include <algorithm>
#include <cmath>

#include "train/vmath.h"

namespace {

constexpr int kMaxGroups = 256;

// The groups that may be used, ranked by the sum of their two best biased scores.
void close_groups(const Router &r, float *biased) {
    const int size = r.experts / r.groups;
    float rank[kMaxGroups];
    int order[kMaxGroups];
    for (int g = 0; g < r.groups; ++g) {
        float best = -INFINITY, second = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; ++e) {
            if (biased[e] > best) {
                second = best;
                best = biased[e];
            } else if (biased[e] > second) {
                second = biased[e];
            }
        }
        rank[g] = size > 1 ? best + second : best;
        order[g] = g;
    }
    std::sort(order, order + r.groups, [&](int a, int b) { return rank[a] != rank[b] ? rank[a] > rank[b] : a < b; });
    for (int i = r.top_groups; i < r.groups; ++i)
        std::fill(biased + order[i] * size, biased + (order[i] + 1) * size, -INFINITY);
}

}  // namespace

void choose(const Router &r, const float *logits, int32_t *chosen, float *weights, float *scratch) {
    float *score = scratch, *biased = scratch + r.experts;
    for (int e = 0; e < r.experts; ++e) score[e] = fast_sigmoid(logits[e]);
    for (int e = 0; e < r.experts; ++e) biased[e] = score[e] + r.bias[e];
    if (r.groups > r.top_groups) close_groups(r, biased);
    float total = 0;
    for (int a = 0; a < r.per_token; ++a) {
        int best = 0;
        for (int e = 1; e < r.experts; ++e)
            if (biased[e] > biased[best]) best = e;
        chosen[a] = best;
        weights[a] = score[best];
        total += score[best];
        biased[best] = -INFINITY;
    }
    const float factor = r.renormalize ? r.scaling / (total + 1e-20f) : r.scaling;
    for (int a = 0; a < r.per_token; ++a) weights[a] *= factor;
}
