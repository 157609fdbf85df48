#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "train/bind.h"
#include "train/pointwise.h"
#include "train/vmath.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

void need(const F32 &array, std::initializer_list<int64_t> shape, const char *name) {
    bool same = array.ndim() == shape.size();
    size_t axis = 0;
    for (int64_t size : shape) {
        same = same && static_cast<int64_t>(array.shape(axis)) == size;
        ++axis;
        if (!same) break;
    }
    if (same) return;
    std::string message = std::string(name) + " must be [";
    for (int64_t size : shape) message += std::to_string(size) + " ";
    message.back() = ']';
    message += ", got [";
    for (size_t i = 0; i < array.ndim(); ++i) message += std::to_string(array.shape(i)) + " ";
    if (array.ndim() == 0) message += " ";
    message.back() = ']';
    throw std::invalid_argument(message);
}

struct Size {
    int64_t rows;
    int width;
};

Size matrix(const F32 &array, const char *name) {
    if (array.ndim() != 2 || array.shape(1) == 0)
        throw std::invalid_argument(std::string(name) + " must be [rows, width >= 1], got " +
                                    std::to_string(array.ndim()) + " axes");
    return {static_cast<int64_t>(array.shape(0)), static_cast<int>(array.shape(1))};
}

void norm_forward(F32 x, F32 weight, float eps, F32 y, F32 inverse) {
    const auto [rows, width] = matrix(x, "x");
    need(weight, {width}, "weight"), need(y, {rows, width}, "y"), need(inverse, {rows}, "inverse");
    rms_norm_forward(rows, width, x.data(), weight.data(), eps, y.data(), inverse.data());
}

void norm_backward(F32 dy, F32 x, F32 weight, F32 inverse, F32 dx, F32 dweight) {
    const auto [rows, width] = matrix(x, "x");
    need(dy, {rows, width}, "dy"), need(weight, {width}, "weight"), need(inverse, {rows}, "inverse");
    need(dx, {rows, width}, "dx"), need(dweight, {width}, "dweight");
    rms_norm_backward(rows, width, dy.data(), x.data(), weight.data(), inverse.data(), dx.data(), dweight.data());
}

// `gain` with zero elements: no norm after the mix.
Mix checked(const std::vector<F32> &candidates, std::vector<const float *> &pointers, const F32 &norm,
            const F32 &proj, float eps, const F32 &gain, float gain_eps, const F32 &state) {
    if (candidates.empty() || candidates.size() > kMaxCandidates)
        throw std::invalid_argument("there are " + std::to_string(candidates.size()) + " candidates, not 1.." +
                                    std::to_string(kMaxCandidates));
    const auto [rows, width] = matrix(candidates[0], "candidates[0]");
    for (const F32 &candidate : candidates) {
        need(candidate, {rows, width}, "every candidate");
        pointers.push_back(candidate.data());
    }
    const int num = static_cast<int>(candidates.size());
    need(norm, {width}, "norm_weight"), need(proj, {width}, "proj_weight");
    need(state, {rows, 3 * num + 1}, "state");
    if (gain.size()) need(gain, {width}, "gain");
    const float *gain_data = gain.size() ? gain.data() : nullptr;
    return {rows, width, num, pointers.data(), norm.data(), proj.data(), eps, gain_data, gain_eps};
}

void mixed_forward(std::vector<F32> candidates, F32 norm, F32 proj, float eps, F32 gain, float gain_eps, F32 y,
                   F32 state) {
    std::vector<const float *> pointers;
    const Mix mix = checked(candidates, pointers, norm, proj, eps, gain, gain_eps, state);
    need(y, {mix.rows, mix.width}, "y");
    mix_forward(mix, y.data(), state.data());
}

void mixed_backward(F32 dy, std::vector<F32> candidates, F32 norm, F32 proj, float eps, F32 gain, float gain_eps,
                    F32 state, std::vector<F32> dcandidates, F32 dnorm, F32 dproj, F32 dgain) {
    std::vector<const float *> pointers;
    const Mix mix = checked(candidates, pointers, norm, proj, eps, gain, gain_eps, state);
    need(dy, {mix.rows, mix.width}, "dy");
    need(dnorm, {mix.width}, "dnorm"), need(dproj, {mix.width}, "dproj");
    if (mix.gain) need(dgain, {mix.width}, "dgain");
    if (dcandidates.size() != candidates.size())
        throw std::invalid_argument("there are " + std::to_string(candidates.size()) + " candidates and " +
                                    std::to_string(dcandidates.size()) + " gradients for them");
    std::vector<float *> gradients;
    for (F32 &gradient : dcandidates) {
        need(gradient, {mix.rows, mix.width}, "every gradient of a candidate");
        gradients.push_back(gradient.data());
    }
    mix_backward(mix, dy.data(), state.data(), gradients.data(), dnorm.data(), dproj.data(), dgain.data());
}

void gated(F32 a, F32 gate, F32 y) {
    const auto [rows, width] = matrix(a, "a");
    need(gate, {rows, width}, "gate"), need(y, {rows, width}, "y");
    gated_forward(rows * width, a.data(), gate.data(), y.data());
}

void gated_grad(F32 dy, F32 a, F32 gate, F32 da, F32 dgate) {
    const auto [rows, width] = matrix(a, "a");
    need(dy, {rows, width}, "dy"), need(gate, {rows, width}, "gate");
    need(da, {rows, width}, "da"), need(dgate, {rows, width}, "dgate");
    gated_backward(rows * width, dy.data(), a.data(), gate.data(), da.data(), dgate.data());
}

void check_ids(const I64 &ids, int64_t vocab) {
    if (ids.ndim() != 1) throw std::invalid_argument("ids must have one axis, got " + std::to_string(ids.ndim()));
    for (size_t i = 0; i < ids.size(); ++i)
        if (ids.data()[i] < 0 || ids.data()[i] >= vocab)
            throw std::invalid_argument("id " + std::to_string(ids.data()[i]) + " is outside the vocabulary 0.." +
                                        std::to_string(vocab - 1));
}

void embed(I64 ids, F32 weight, F32 y) {
    const auto [vocab, width] = matrix(weight, "weight");
    check_ids(ids, vocab);
    need(y, {static_cast<int64_t>(ids.size()), width}, "y");
    embedding_forward(static_cast<int64_t>(ids.size()), width, ids.data(), weight.data(), y.data());
}

void embed_grad(I64 ids, F32 dy, F32 dweight) {
    const auto [vocab, width] = matrix(dweight, "dweight");
    check_ids(ids, vocab);
    need(dy, {static_cast<int64_t>(ids.size()), width}, "dy");
    embedding_backward(static_cast<int64_t>(ids.size()), width, vocab, ids.data(), dy.data(), dweight.data());
}

enum Function { kExp, kSigmoid, kTanh, kLog };

// One elementary function over an array, so that tests can measure its error.
template <Function kFunction>
void apply(F32 x, F32 y) {
    need(y, {static_cast<int64_t>(x.size())}, "y");
    const float *in = x.data();
    float *out = y.data();
    for (size_t i = 0; i < x.size(); ++i) {
        if constexpr (kFunction == kExp) out[i] = fast_exp(in[i]);
        if constexpr (kFunction == kSigmoid) out[i] = fast_sigmoid(in[i]);
        if constexpr (kFunction == kTanh) out[i] = fast_tanh(in[i]);
        if constexpr (kFunction == kLog) out[i] = fast_log(in[i]);
    }
}

}  // namespace

void bind_pointwise(nb::module_ &m) {
    auto a = [](const char *name) { return nb::arg(name).noconvert(); };
    m.def("rms_norm_forward", &norm_forward, a("x"), a("weight"), "eps"_a, a("y"), a("inverse"), NoGIL());
    m.def("rms_norm_backward", &norm_backward, a("dy"), a("x"), a("weight"), a("inverse"), a("dx"), a("dweight"),
          NoGIL());
    m.def("mix_forward", &mixed_forward, a("candidates"), a("norm_weight"), a("proj_weight"), "eps"_a, a("gain"),
          "gain_eps"_a, a("y"), a("state"), NoGIL());
    m.def("mix_backward", &mixed_backward, a("dy"), a("candidates"), a("norm_weight"), a("proj_weight"), "eps"_a,
          a("gain"), "gain_eps"_a, a("state"), a("dcandidates"), a("dnorm"), a("dproj"), a("dgain"), NoGIL());
    m.def("gated_forward", &gated, a("a"), a("gate"), a("y"), NoGIL());
    m.def("gated_backward", &gated_grad, a("dy"), a("a"), a("gate"), a("da"), a("dgate"), NoGIL());
    m.def("embedding_forward", &embed, a("ids"), a("weight"), a("y"), NoGIL());
    m.def("embedding_backward", &embed_grad, a("ids"), a("dy"), a("dweight"), NoGIL());
    m.def("exp", &apply<kExp>, a("x"), a("y"), NoGIL());
    m.def("sigmoid", &apply<kSigmoid>, a("x"), a("y"), NoGIL());
    m.def("tanh", &apply<kTanh>, a("x"), a("y"), NoGIL());
    m.def("log", &apply<kLog>, a("x"), a("y"), NoGIL());
}
