// Output head and cross entropy in one pass: the logits of all rows never exist together.
#pragma once
#include <cstdint>

// Sum over the rows whose target is not negative of the cross entropy of softmax(h w^T).  h [rows, width], w [vocab,
// width], targets [rows] below vocab.  dh [rows, width] and dw [vocab, width] receive the gradients of that sum,
// each only if it is not null.
double head_loss(int rows, int width, int vocab, const float *h, const float *w, const int64_t *targets, float *dh,
                 float *dw);
