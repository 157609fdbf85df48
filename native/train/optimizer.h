// Updates of the optimiser, on arrays of any size.
#pragma once
#include <cstddef>

// The odd polynomial a x + b x^3 + c x^5 that is applied to the singular values.
struct Quintic {
    float a, b, c;
};

// Replaces each of `stack` matrices x [rows, cols] by a matrix with the same singular vectors and singular values
// near one: scaled to Frobenius norm 1, then `steps` times y := a y + b (y y^T) y + c (y y^T)^2 y.
void newton_schulz(int stack, int rows, int cols, float *x, int steps, Quintic poly);

struct MuonRates {
    float momentum;
    float keep;  // factor of the parameter: 1 - rate * weight decay
    float size;  // factor of the direction, which is subtracted
};

// momentum := m momentum + grad, direction := newton_schulz(grad + m momentum), parameter := keep parameter -
// size direction, each [stack, rows, cols].
void muon_update(int stack, int rows, int cols, float *parameter, const float *grad, float *momentum, MuonRates rates,
                 int steps, Quintic poly);

struct AdamRates {
    float first, second;  // decay of the two moments
    float keep;           // factor of the parameter: 1 - rate * weight decay
    float size;           // rate / (1 - first^step)
    float correction;     // 1 / (1 - second^step)
    float epsilon;
};

// AdamW on `count` numbers.
void adam_update(size_t count, float *parameter, const float *grad, float *mean, float *square, AdamRates rates);
