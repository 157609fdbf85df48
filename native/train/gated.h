// Gated feed-forward networks y = W2 situ(W1 x, W3 x), forward and backward, on blocks of rows that stay in cache.
// Row-major, one thread.  The blocks are shared by the dense layers and by the routed experts.
#pragma once
#include <cstddef>

#include "train/panels.h"

struct GatedShape {
    int width;          // D
    int inner;          // F
    float beta;         // bound of the gate branch
    float linear_beta;  // bound of the up branch; 0 leaves it unbounded
};

namespace gated {

// Rows of a block and inner columns of a chunk: what they need together fits into a second-level cache.
constexpr int kRows = 132, kChunk = 256;

inline int padded(int n) { return (int)panels::round_up(n, panels::NR); }

// A row stride of whole cache lines, an odd number of them, so that a column does not fall on few cache sets.
inline int odd_stride(int n) {
    const int lines = (n + 15) / 16;
    return (lines + 1 - lines % 2) * 16;
}

// The size of blocks of about equal size, a multiple of a register tile.
inline int block_rows(long rows) {
    const long blocks = (rows + kRows - 1) / kRows;
    return blocks == 0 ? 1 : (int)panels::round_up((rows + blocks - 1) / blocks, panels::MR);
}

// Floats that the packed matrices of one network need, for either direction.
size_t packed_size(const GatedShape &s);
void pack_forward(const GatedShape &s, const float *w1, const float *w3, const float *w2, float *packed);
void pack_backward(const GatedShape &s, const float *w1, const float *w3, const float *w2, float *packed);

// gate, up [rows, padded(inner)] are kept for the gradient; y has room for padded(width) columns.
void forward_block(const GatedShape &s, const float *packed, int rows, const float *x, int x_stride, float *gate,
                   float *up, float *y, int y_stride);

// Where the gradients of the matrices go; every row has room for its padded columns.
struct WeightGradients {
    float *dw1, *dw3;  // [inner, width]
    int stride13;
    float *dw2;  // [width, inner]
    int stride2;
};

// Gradients of one block.  x_panels is x [rows, width] packed as a right operand; dy has an odd_stride; the
// gradients of the matrices are written by the first block and added to by others.  With `weights` [rows], y is
// weights * network(x) and dweights [rows] is written; null means 1.
void backward_block(const GatedShape &s, const float *packed, int rows, const float *x_panels, const float *dy,
                    int dy_stride, const float *gate, const float *up, const float *weights, float *dweights,
                    float *dx, int dx_stride, const WeightGradients &to, bool first);

// Memory for gradients of one network whose sizes are no multiple of a panel; others are written in place.
class Ragged {
  public:
    Ragged(const GatedShape &s, panels::Scratch &memory);
    WeightGradients aim(float *dw1, float *dw3, float *dw2) const;  // where backward_block shall write
    void finish(const WeightGradients &from, float *dw1, float *dw3, float *dw2) const;

  private:
    GatedShape shape_;
    float *memory_;
};

}  // namespace gated

// The dense network on x [M, D] with w1, w3 [F, D], w2 [D, F]; gate and up are [M, padded(F)].
void gated_mlp_forward(const GatedShape &s, long rows, const float *x, const float *w1, const float *w3,
                       const float *w2, float *gate, float *up, float *y);
void gated_mlp_backward(const GatedShape &s, long rows, const float *x, const float *w1, const float *w3,
                        const float *w2, const float *gate, const float *up, const float *dy, float *dx, float *dw1,
                        float *dw3, float *dw2);
