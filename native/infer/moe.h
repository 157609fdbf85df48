// The router's choice.
//
// Shapes: E experts, A experts per token.
#pragma once
#include <cstdint>

struct Router {
    int experts, per_token, groups, top_groups;
    bool renormalize;
    float scaling;
    const float *bias;  // [E]
};

// Experts of one token by logits [E]: sigmoid scores, the bias moves the selection alone, ties go to the lower
// index.  `chosen` [A] best first, `weights` [A]; `scratch` holds 2 E floats.
void choose(const Router &r, const float *logits, int32_t *chosen, float *weights, float *scratch);
