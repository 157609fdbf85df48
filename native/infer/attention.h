// Absorbed latent attention over a paged cache, and the selection of a lightning indexer.
//
// Shapes: H heads, R latent rank, P shared key width, J indexer heads, D indexer key width, G attended tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "infer/pages.h"

// Attention of the heads [H, R + P] of one query over `count` tokens (`positions`, or 0..count-1 where null).
// mean [H, R] becomes the weighted mean of the latents.
void attend(const Pages &pages, const int32_t *blocks, const int32_t *positions, long count, const float *query,
            int heads, int rank, float scale, float *mean, std::vector<float> &scratch);

// Scores of `tokens` queries [tokens, J, D] with weights [tokens, J] (scale included) for the positions from
// `begin` to `end`: out[t * ld + position].  `begin` is a multiple of the block size.
void index_scores(const Pages &keys, const int32_t *blocks, long begin, long end, const float *query,
                  const float *weights, long tokens, int heads, float *out, long ld, std::vector<float> &scratch);

// The top_k best of n scores, higher first and lower position among equals; writes their positions, rising, and
// returns how many there are.
long select_best(const float *scores, long n, long top_k, int32_t *positions, std::vector<float> &scratch);
