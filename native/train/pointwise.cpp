#include "train/pointwise.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "train/lanes.h"
#include "train/vmath.h"

namespace {

constexpr int kLanes = kVectorLanes;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Unaligned __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

// A width is swept in full vectors and then single elements, with one body for both: V is the type of a step.
template <class V>
inline V load(const float *p) {
    if constexpr (std::is_same_v<V, float>)
        return *p;
    else
        return *reinterpret_cast<const Unaligned *>(p);
}
inline void store(float *p, float v) { *p = v; }
inline void store(float *p, Lanes v) { *reinterpret_cast<Unaligned *>(p) = v; }

template <class Body>
inline void sweep(int width, Body body) {
    int i = 0;
    for (; i + kLanes <= width; i += kLanes) body(i, Lanes{});
    for (; i < width; ++i) body(i, 0.0f);
}

// A sum whose order depends on the width and the instruction set only.
struct Sum {
    Lanes lanes{};
    float tail = 0.0f;
    void add(Lanes v) { lanes += v; }
    void add(float v) { tail += v; }
    float total() const {
        float part[kLanes];
        std::memcpy(part, &lanes, sizeof part);
        for (int half = kLanes / 2; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) part[i] += part[i + half];
        return part[0] + tail;
    }
};

// The mix with a number of candidates known to the compiler, or (N = 0) not.
template <int N>
void mix_rows_forward(const Mix &mix, const float *w, float *y, float *state) {
    constexpr int cap = N ? N : kMaxCandidates;
    const int n = N ? N : mix.num, width = mix.width;
    for (int64_t row = 0; row < mix.rows; ++row, y += width, state += 3 * n + 1) {
        float *p = state, *inverse = state + n, *scores = state + 2 * n;
        const float *v[cap];
        float largest = -vmath::kInfinity;
        for (int i = 0; i < n; ++i) {
            v[i] = mix.candidates[i] + row * width;
            Sum square, along;
            sweep(width, [&](int j, auto step) {
                const auto x = load<decltype(step)>(v[i] + j);
                square.add(x * x);
                along.add(x * load<decltype(step)>(w + j));
            });
            inverse[i] = 1.0f / std::sqrt(square.total() / width + mix.eps);
            scores[i] = along.total() * inverse[i];
            largest = std::max(largest, scores[i]);
        }
        float total = 0.0f;
        for (int i = 0; i < n; ++i) total += p[i] = fast_exp(scores[i] - largest);
        for (int i = 0; i < n; ++i) p[i] /= total;
        Sum square;
        sweep(width, [&](int j, auto step) {
            auto out = p[0] * load<decltype(step)>(v[0] + j);
            for (int i = 1; i < n; ++i) out += p[i] * load<decltype(step)>(v[i] + j);
            square.add(out * out);
            store(y + j, out);
        });
        const float r = state[3 * n] = 1.0f / std::sqrt(square.total() / width + mix.gain_eps);
        if (mix.gain)
            sweep(width, [&](int j, auto step) {
                using V = decltype(step);
                store(y + j, load<V>(y + j) * r * load<V>(mix.gain + j));
            });
    }
}

// With a gain, d [width] is first taken back through the norm, whose input is mixed again from the candidates.
template <int N>
void mix_row_through_norm(const Mix &mix, const float *const *v, const float *p, float r, const float *dy,
                          float *d, float *mixed, float *dgain) {
    const int n = N ? N : mix.num, width = mix.width;
    Sum along;
    sweep(width, [&](int j, auto step) {
        using V = decltype(step);
        auto out = p[0] * load<V>(v[0] + j);
        for (int i = 1; i < n; ++i) out += p[i] * load<V>(v[i] + j);
        const auto dyj = load<V>(dy + j);
        const auto h = dyj * load<V>(mix.gain + j);
        along.add(h * out);
        store(d + j, h);
        store(mixed + j, out);
        store(dgain + j, load<V>(dgain + j) + dyj * (out * r));
    });
    const float back = along.total() * r * r * r / width;
    sweep(width, [&](int j, auto step) {
        using V = decltype(step);
        store(d + j, r * load<V>(d + j) - back * load<V>(mixed + j));
    });
}

template <int N>
void mix_rows_backward(const Mix &mix, const float *w, const float *dy, const float *state,
                       float *const *dcandidates, float *dw, float *dgain, float *scratch) {
    constexpr int cap = N ? N : kMaxCandidates;
    const int n = N ? N : mix.num, width = mix.width;
    for (int64_t row = 0; row < mix.rows; ++row, dy += width, state += 3 * n + 1) {
        const float *p = state, *inverse = state + n, *scores = state + 2 * n;
        const float *v[cap];
        float e[cap], along_w[cap], along_v[cap];
        for (int i = 0; i < n; ++i) v[i] = mix.candidates[i] + row * width;
        const float *d = dy;
        if (mix.gain) {
            mix_row_through_norm<N>(mix, v, p, state[3 * n], dy, scratch, scratch + width, dgain);
            d = scratch;
        }
        float mean = 0.0f;
        for (int i = 0; i < n; ++i) {
            Sum sum;
            sweep(width, [&](int j, auto step) {
                sum.add(load<decltype(step)>(d + j) * load<decltype(step)>(v[i] + j));
            });
            e[i] = sum.total();
            mean += p[i] * e[i];
        }
        for (int i = 0; i < n; ++i) {
            const float ds = p[i] * (e[i] - mean);
            along_w[i] = ds * inverse[i];
            along_v[i] = -ds * scores[i] * inverse[i] * inverse[i] / width;
        }
        sweep(width, [&](int j, auto step) {
            using V = decltype(step);
            const auto dj = load<V>(d + j), wj = load<V>(w + j);
            auto dwj = load<V>(dw + j);
            for (int i = 0; i < n; ++i) {
                const auto x = load<V>(v[i] + j);
                dwj += along_w[i] * x;
                store(dcandidates[i] + row * width + j, p[i] * dj + along_w[i] * wj + along_v[i] * x);
            }
            store(dw + j, dwj);
        });
    }
}

}  // namespace

void rms_norm_forward(int64_t rows, int width, const float *x, const float *weight, float eps, float *y,
                      float *inverse) {
    for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
        Sum square;
        sweep(width, [&](int j, auto step) {
            const auto v = load<decltype(step)>(x + j);
            square.add(v * v);
        });
        const float r = inverse[row] = 1.0f / std::sqrt(square.total() / width + eps);
        sweep(width, [&](int j, auto step) {
            using V = decltype(step);
            store(y + j, load<V>(x + j) * r * load<V>(weight + j));
        });
    }
}

void rms_norm_backward(int64_t rows, int width, const float *dy, const float *x, const float *weight,
                       const float *inverse, float *dx, float *dweight) {
    std::fill_n(dweight, width, 0.0f);
    for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
        const float r = inverse[row];
        Sum along;
        sweep(width, [&](int j, auto step) {
            using V = decltype(step);
            const auto v = load<V>(x + j), d = load<V>(dy + j);
            along.add(d * load<V>(weight + j) * v);
            store(dweight + j, load<V>(dweight + j) + d * (v * r));
        });
        const float back = along.total() * r * r * r / width;
        sweep(width, [&](int j, auto step) {
            using V = decltype(step);
            store(dx + j, r * (load<V>(dy + j) * load<V>(weight + j)) - back * load<V>(x + j));
        });
    }
}

void mix_forward(const Mix &mix, float *y, float *state) {
    static thread_local std::vector<float> w;
    w.resize(mix.width);
    for (int j = 0; j < mix.width; ++j) w[j] = mix.norm_weight[j] * mix.proj_weight[j];
    switch (mix.num) {
        case 2: return mix_rows_forward<2>(mix, w.data(), y, state);
        case 3: return mix_rows_forward<3>(mix, w.data(), y, state);
        case 4: return mix_rows_forward<4>(mix, w.data(), y, state);
        default: return mix_rows_forward<0>(mix, w.data(), y, state);
    }
}

void mix_backward(const Mix &mix, const float *dy, const float *state, float *const *dcandidates, float *dnorm,
                  float *dproj, float *dgain) {
    static thread_local std::vector<float> scratch;
    const int width = mix.width;
    scratch.assign(4 * static_cast<size_t>(width), 0.0f);
    float *w = scratch.data(), *dw = w + width, *rest = dw + width;
    for (int j = 0; j < width; ++j) w[j] = mix.norm_weight[j] * mix.proj_weight[j];
    if (mix.gain) std::fill_n(dgain, width, 0.0f);
    switch (mix.num) {
        case 2: mix_rows_backward<2>(mix, w, dy, state, dcandidates, dw, dgain, rest); break;
        case 3: mix_rows_backward<3>(mix, w, dy, state, dcandidates, dw, dgain, rest); break;
        case 4: mix_rows_backward<4>(mix, w, dy, state, dcandidates, dw, dgain, rest); break;
        default: mix_rows_backward<0>(mix, w, dy, state, dcandidates, dw, dgain, rest);
    }
    for (int j = 0; j < width; ++j) {
        dnorm[j] = dw[j] * mix.proj_weight[j];
        dproj[j] = dw[j] * mix.norm_weight[j];
    }
}

void gated_forward(int64_t size, const float *a, const float *gate, float *__restrict y) {
    for (int64_t i = 0; i < size; ++i) y[i] = a[i] * fast_sigmoid(gate[i]);
}

void gated_backward(int64_t size, const float *dy, const float *a, const float *gate, float *__restrict da,
                    float *__restrict dgate) {
    for (int64_t i = 0; i < size; ++i) {
        const float s = fast_sigmoid(gate[i]), back = dy[i] * s;
        da[i] = back;
        dgate[i] = back * a[i] * (1.0f - s);
    }
}

void embedding_forward(int64_t tokens, int width, const int64_t *ids, const float *weight, float *y) {
    for (int64_t i = 0; i < tokens; ++i) std::copy_n(weight + ids[i] * width, width, y + i * width);
}

void embedding_backward(int64_t tokens, int width, int64_t vocab, const int64_t *ids, const float *dy,
                        float *dweight) {
    std::fill_n(dweight, vocab * width, 0.0f);
    for (int64_t i = 0; i < tokens; ++i, dy += width) {
        float *row = dweight + ids[i] * width;
        sweep(width, [&](int j, auto step) {
            using V = decltype(step);
            store(row + j, load<V>(row + j) + load<V>(dy + j));
        });
    }
}
