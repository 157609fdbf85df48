#include "train/gated.h"

using namespace panels;

namespace gated {

namespace {

// e^x and e^x - 1 for |x| <= bound <= 60, clamped beyond; the polynomial is that of fast_tanh in vmath.h.
struct Exponential {
    vec whole, less_one;
};

inline Exponential exponential(vec x, float bound) {
    x = x < -bound ? vec{} - bound : x;
    x = x > bound ? vec{} + bound : x;
    const vec shifted = x * 1.44269504f + (12582912.0f + 127.0f);
    const vec n = shifted - (12582912.0f + 127.0f);
    const vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vec q = r * 1.394666995e-03f + 8.366710660e-03f;
    q = q * r + 4.166627908e-02f;
    q = q * r + 1.666654205e-01f;
    q = q * r + 5.000000063e-01f;
    q = (q * r) * r + r;
    const vec power = (vec)((ivec)shifted << 23);
    return {q * power + power, q * power + (power - 1.0f)};
}

// SiTU before any division: with A = e^(2g/beta), S = e^-g and B = e^(2u/linear_beta),
// tanh(g/beta) = (A - 1) / (A + 1), sigmoid(g) = 1 / (1 + S) and tanh(u/linear_beta) = (B - 1) / (B + 1), so that one
// division serves all three.  Clamped where float32 no longer sees a difference.
struct Factors {
    Exponential a, s, b;
    vec below_a, below_s, below_b;
};

template <bool Bounded>
inline Factors factors(vec g, vec u, float twice_per_beta, float twice_per_linear) {
    Factors f;
    f.a = exponential(g * twice_per_beta, 20.0f);
    f.s = exponential(-g, 40.0f);
    if (Bounded) f.b = exponential(u * twice_per_linear, 20.0f);
    else f.b = {u, u};
    f.below_a = f.a.less_one + 2.0f;
    f.below_s = f.s.whole + 1.0f;
    f.below_b = Bounded ? f.b.less_one + 2.0f : vec{} + 1.0f;
    return f;
}

template <bool Bounded>
void activate(const GatedShape &s, int rows, int columns, const float *gate, const float *up, int stride, float *h,
              int h_stride) {
    const float twice_per_beta = 2.0f / s.beta, twice_per_linear = Bounded ? 2.0f / s.linear_beta : 0.0f;
    const float scale = Bounded ? s.beta * s.linear_beta : s.beta;
    for (int r = 0; r < rows; ++r) {
        const float *g = gate + (size_t)r * stride, *u = up + (size_t)r * stride;
        for (int j = 0; j < columns; j += VW) {
            const Factors f = factors<Bounded>(load(g + j), load(u + j), twice_per_beta, twice_per_linear);
            const vec below = f.below_a * f.below_s * f.below_b;
            store(h + (size_t)r * h_stride + j, (f.a.less_one * f.b.less_one) * scale / below);
        }
    }
}

// d [rows, columns] is the gradient at the activation without the rows' weights and becomes that of the gate;
// `h` becomes the weighted activation, packed.  With a, s, b the three factors of y = scale a s b:
// dy/dg = scale s b ((1 - a^2) / beta + a (1 - s)), where 1 - a^2 = 4 A / (A + 1)^2 and 1 - s = S s keep their digits.
template <bool Bounded>
void activate_backward(const GatedShape &s, int rows, int columns, const float *gate, const float *up, int stride,
                       const float *weights, float *dweights, bool first, float *d, float *du, int d_stride,
                       float *h) {
    const float per_beta = 1.0f / s.beta, per_linear = Bounded ? 1.0f / s.linear_beta : 1.0f;
    const float scale = Bounded ? s.beta * s.linear_beta : s.beta;
    for (int r = 0; r < rows; ++r) {
        const float *g = gate + (size_t)r * stride, *u = up + (size_t)r * stride;
        float *d_row = d + (size_t)r * d_stride, *du_row = du + (size_t)r * d_stride;
        const float weight = weights == nullptr ? 1.0f : weights[r];
        vec total = vec{};
        for (int j = 0; j < columns; j += VW) {
            const Factors f = factors<Bounded>(load(g + j), load(u + j), 2.0f * per_beta, 2.0f * per_linear);
            const vec as_below = f.below_a * f.below_s, once = 1.0f / (as_below * f.below_b);
            const vec per_as = f.below_b * once, per_a = f.below_s * per_as, per_b = as_below * once;
            const vec sigmoid = f.below_a * per_as, a = f.a.less_one * per_a;
            const vec b = Bounded ? f.b.less_one * per_b : f.b.whole;
            const vec dy = load(d_row + j), as = a * sigmoid * scale, y = as * b;
            const vec t = dy * weight;
            const vec slope = f.a.whole * per_a * per_a * (4.0f * per_beta) + a * f.s.whole * sigmoid;
            total += dy * y;
            store(d_row + j, t * sigmoid * scale * b * slope);
            store(du_row + j, Bounded ? t * as * (f.b.whole * per_b * per_b * (4.0f * per_linear)) : t * as);
            store(h + ((size_t)(j / NR) * rows + r) * NR + j % NR, y * weight);
        }
        if (dweights != nullptr) dweights[r] = (first ? 0.0f : dweights[r]) + sum(total);
    }
}

struct BlockMemory {
    Scratch hidden, other, panels;
};

}  // namespace

size_t packed_size(const GatedShape &s) {
    return 3 * (size_t)std::max(padded(s.inner) * (size_t)padded(s.width), (size_t)NR);
}

void pack_forward(const GatedShape &s, const float *w1, const float *w3, const float *w2, float *packed) {
    const size_t width = s.width;
    for (int c = 0; c < s.inner; c += kChunk) {
        const int n = std::min(kChunk, s.inner - c);
        for (const float *w : {w1, w3}) {
            pack_transposed(n, s.width, w + c * width, width, 1.0f, packed, s.width, 0);
            packed += padded(n) * width;
        }
        pack_transposed(s.width, n, w2 + c, s.inner, 1.0f, packed, n, 0);
        packed += (size_t)padded(s.width) * n;
    }
}

void pack_backward(const GatedShape &s, const float *w1, const float *w3, const float *w2, float *packed) {
    const size_t width = s.width;
    for (int c = 0; c < s.inner; c += kChunk) {
        const int n = std::min(kChunk, s.inner - c);
        pack(s.width, n, w2 + c, s.inner, 1.0f, packed, 0);
        pad_columns(s.width, n, packed);
        packed += padded(n) * width;
        for (const float *w : {w1, w3}) {
            pack(n, s.width, w + c * width, width, 1.0f, packed, 0);
            pad_columns(n, s.width, packed);
            packed += (size_t)padded(s.width) * n;
        }
    }
}

void forward_block(const GatedShape &s, const float *packed, int rows, const float *x, int x_stride, float *gate,
                   float *up, float *y, int y_stride) {
    static thread_local BlockMemory memory;
    const int stride = padded(s.inner), h_stride = odd_stride(padded(std::min(s.inner, kChunk)));
    const size_t width = s.width;
    float *h = memory.hidden.get((size_t)rows * h_stride);
    for (int c = 0; c < s.inner; c += kChunk) {
        const int n = std::min(kChunk, s.inner - c);
        product<false>(rows, n, s.width, x, x_stride, packed, width * NR, gate + c, stride, false);
        packed += padded(n) * width;
        product<false>(rows, n, s.width, x, x_stride, packed, width * NR, up + c, stride, false);
        packed += padded(n) * width;
        if (s.linear_beta == 0.0f) activate<false>(s, rows, padded(n), gate + c, up + c, stride, h, h_stride);
        else activate<true>(s, rows, padded(n), gate + c, up + c, stride, h, h_stride);
        product<false>(rows, s.width, n, h, h_stride, packed, (size_t)n * NR, y, y_stride, c > 0);
        packed += (size_t)padded(s.width) * n;
    }
}

void backward_block(const GatedShape &s, const float *packed, int rows, const float *x_panels, const float *dy,
                    int dy_stride, const float *gate, const float *up, const float *weights, float *dweights,
                    float *dx, int dx_stride, const WeightGradients &to, bool first) {
    static thread_local BlockMemory memory;
    const int stride = padded(s.inner), d_stride = odd_stride(padded(std::min(s.inner, kChunk)));
    const size_t width = s.width;
    float *d = memory.hidden.get((size_t)rows * d_stride), *du = memory.other.get((size_t)rows * d_stride);
    float *h = memory.panels.get((size_t)rows * padded(std::min(s.inner, kChunk)));
    for (int c = 0; c < s.inner; c += kChunk) {
        const int n = std::min(kChunk, s.inner - c);
        const auto run = s.linear_beta == 0.0f ? activate_backward<false> : activate_backward<true>;
        product<false>(rows, n, s.width, dy, dy_stride, packed, width * NR, d, d_stride, false);
        packed += padded(n) * width;
        run(s, rows, padded(n), gate + c, up + c, stride, weights, dweights, c == 0, d, du, d_stride, h);
        product<true>(s.width, n, rows, dy, dy_stride, h, (size_t)rows * NR, to.dw2 + c, to.stride2, !first);
        float *dw1 = to.dw1 + (size_t)c * to.stride13, *dw3 = to.dw3 + (size_t)c * to.stride13;
        product<true>(n, s.width, rows, d, d_stride, x_panels, (size_t)rows * NR, dw1, to.stride13, !first);
        product<true>(n, s.width, rows, du, d_stride, x_panels, (size_t)rows * NR, dw3, to.stride13, !first);
        product<false>(rows, s.width, n, d, d_stride, packed, (size_t)n * NR, dx, dx_stride, c > 0);
        packed += (size_t)padded(s.width) * n;
        product<false>(rows, s.width, n, du, d_stride, packed, (size_t)n * NR, dx, dx_stride, true);
        packed += (size_t)padded(s.width) * n;
    }
}

Ragged::Ragged(const GatedShape &s, Scratch &memory) : shape_(s), memory_(nullptr) {
    if (s.width % NR != 0 || s.inner % NR != 0) memory_ = memory.get(packed_size(s));
}

WeightGradients Ragged::aim(float *dw1, float *dw3, float *dw2) const {
    const int width = padded(shape_.width), inner = padded(shape_.inner);
    if (memory_ == nullptr) return {dw1, dw3, width, dw2, inner};
    const size_t one = (size_t)width * inner;
    return {memory_, memory_ + one, width, memory_ + 2 * one, inner};
}

void Ragged::finish(const WeightGradients &from, float *dw1, float *dw3, float *dw2) const {
    if (memory_ == nullptr) return;
    const int width = shape_.width, inner = shape_.inner;
    for (int i = 0; i < inner; ++i) {
        std::memcpy(dw1 + (size_t)i * width, from.dw1 + (size_t)i * from.stride13, sizeof(float) * width);
        std::memcpy(dw3 + (size_t)i * width, from.dw3 + (size_t)i * from.stride13, sizeof(float) * width);
    }
    for (int i = 0; i < width; ++i)
        std::memcpy(dw2 + (size_t)i * inner, from.dw2 + (size_t)i * from.stride2, sizeof(float) * inner);
}

}  // namespace gated

using namespace gated;

namespace {

struct NetworkMemory {
    Scratch packed, rows, panels, ragged, out;
};

void copy_rows(long rows, int width, const float *from, int from_stride, float *to, int to_stride) {
    for (long r = 0; r < rows; ++r)
        std::memcpy(to + r * to_stride, from + r * from_stride, sizeof(float) * width);
}

}  // namespace

void gated_mlp_forward(const GatedShape &s, long rows, const float *x, const float *w1, const float *w3,
                       const float *w2, float *gate, float *up, float *y) {
    static thread_local NetworkMemory memory;
    float *packed = memory.packed.get(packed_size(s));
    pack_forward(s, w1, w3, w2, packed);
    const int block = block_rows(rows), room = padded(s.width), stride = padded(s.inner);
    float *spare = room == s.width ? nullptr : memory.out.get((size_t)block * room);
    for (long r = 0; r < rows; r += block) {
        const int n = (int)std::min<long>(block, rows - r);
        float *own = y + r * s.width, *out = spare == nullptr ? own : spare;
        forward_block(s, packed, n, x + r * s.width, s.width, gate + r * stride, up + r * stride, out, room);
        if (spare != nullptr) copy_rows(n, s.width, spare, room, own, s.width);
    }
}

void gated_mlp_backward(const GatedShape &s, long rows, const float *x, const float *w1, const float *w3,
                        const float *w2, const float *gate, const float *up, const float *dy, float *dx, float *dw1,
                        float *dw3, float *dw2) {
    static thread_local NetworkMemory memory;
    float *packed = memory.packed.get(packed_size(s));
    pack_backward(s, w1, w3, w2, packed);
    const int block = block_rows(rows), room = padded(s.width), stride = padded(s.inner);
    const int dy_stride = odd_stride(s.width);
    const Ragged ragged(s, memory.ragged);
    const WeightGradients to = ragged.aim(dw1, dw3, dw2);
    float *spare = room == s.width ? nullptr : memory.out.get((size_t)block * room);
    float *own_dy = memory.rows.get((size_t)block * dy_stride), *x_panels = memory.panels.get((size_t)block * room);
    for (long r = 0; r < rows; r += block) {
        const int n = (int)std::min<long>(block, rows - r);
        copy_rows(n, s.width, dy + r * s.width, s.width, own_dy, dy_stride);
        pack(n, s.width, x + r * s.width, s.width, 1.0f, x_panels, 0);
        pad_columns(n, s.width, x_panels);
        float *own = dx + r * s.width, *out = spare == nullptr ? own : spare;
        backward_block(s, packed, n, x_panels, own_dy, dy_stride, gate + r * stride, up + r * stride, nullptr,
                       nullptr, out, room, to, r == 0);
        if (spare != nullptr) copy_rows(n, s.width, spare, room, own, s.width);
    }
    if (rows > 0) {
        ragged.finish(to, dw1, dw3, dw2);
        return;
    }
    for (float *own : {dw1, dw3, dw2}) std::memset(own, 0, sizeof(float) * s.width * s.inner);
}
