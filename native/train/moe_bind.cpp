// Routed experts, router, dense gated network and MXFP4 values, with every size checked.
#include "train/moe.h"

#include <stdexcept>
#include <string>

#include "train/bind.h"
#include "train/mxfp4.h"

namespace nb = nanobind;

namespace {

void expect(const char *what, size_t got, size_t want) {
    if (got != want)
        throw std::invalid_argument(std::string(what) + " holds " + std::to_string(got) + " values, expected " +
                                    std::to_string(want));
}

void expect_rank(const char *what, size_t got, size_t want) {
    if (got != want)
        throw std::invalid_argument(std::string(what) + " has " + std::to_string(got) + " dimensions, expected " +
                                    std::to_string(want));
}

void check_experts(const I64 &indices, size_t experts) {
    for (size_t i = 0; i < indices.size(); ++i)
        if (indices.data()[i] < 0 || indices.data()[i] >= (int64_t)experts)
            throw std::invalid_argument("expert " + std::to_string(indices.data()[i]) + " is outside 0.." +
                                        std::to_string((int64_t)experts - 1));
}

ExpertShape experts_of(const F32 &z, const F32 &weights, const F32 &w1, const F32 &w3, const F32 &w2,
                       const I32 &order, const I32 &starts, const F32 &gate, const F32 &up, float beta,
                       float linear_beta) {
    expect_rank("z", z.ndim(), 2);
    expect_rank("weights", weights.ndim(), 2);
    expect_rank("w1", w1.ndim(), 3);
    ExpertShape s{(long)z.shape(0), (int)weights.shape(1), (int)w1.shape(0),
                  {(int)w1.shape(2), (int)w1.shape(1), beta, linear_beta}};
    const size_t pairs = weights.size(), kept = pairs * gated::padded(s.net.inner);
    expect("z", z.size(), (size_t)s.tokens * s.net.width);
    expect("weights", pairs, (size_t)s.tokens * s.per_token);
    expect("order", order.size(), pairs);
    expect("starts", starts.size(), (size_t)s.experts + 1);
    expect("w3", w3.size(), w1.size());
    expect("w2", w2.size(), w1.size());
    expect("gate", gate.size(), kept);
    expect("up", up.size(), kept);
    return s;
}

GatedShape mlp_of(const F32 &x, const F32 &w1, const F32 &w3, const F32 &w2, const F32 &gate, const F32 &up,
                  float beta, float linear_beta) {
    expect_rank("x", x.ndim(), 2);
    expect_rank("w_gate", w1.ndim(), 2);
    GatedShape s{(int)x.shape(1), (int)w1.shape(0), beta, linear_beta};
    const size_t kept = x.shape(0) * (size_t)gated::padded(s.inner);
    expect("w_gate", w1.size(), (size_t)s.inner * s.width);
    expect("w_up", w3.size(), w1.size());
    expect("w_down", w2.size(), w1.size());
    expect("gate", gate.size(), kept);
    expect("up", up.size(), kept);
    return s;
}

RouteShape route_of(const F32 &x, const F32 &w, const I64 &indices, bool renormalize, float scaling) {
    expect_rank("x", x.ndim(), 2);
    expect_rank("weight", w.ndim(), 2);
    expect_rank("indices", indices.ndim(), 2);
    RouteShape s{(long)x.shape(0), (int)x.shape(1), (int)w.shape(0), (int)indices.shape(1), renormalize, scaling};
    expect("weight", w.size(), (size_t)s.experts * s.width);
    expect("indices", indices.size(), (size_t)s.tokens * s.per_token);
    if (s.per_token > s.experts)
        throw std::invalid_argument("a token cannot have " + std::to_string(s.per_token) + " of " +
                                    std::to_string(s.experts) + " experts");
    return s;
}

void bind_experts(nb::module_ &m) {
    m.def("padded", [](int n) { return gated::padded(n); }, "Columns that pre-activations of width n are kept in.");
    m.def("sort_pairs", [](I64 indices, I32 order, I32 starts) {
        expect_rank("indices", indices.ndim(), 2);
        expect("order", order.size(), indices.size());
        const ExpertShape s{(long)indices.shape(0), (int)indices.shape(1), (int)starts.size() - 1, {}};
        check_experts(indices, s.experts);
        sort_pairs(indices.data(), s, order.data(), starts.data());
    }, NoGIL());
    m.def("experts", [](F32 z, F32 weights, F32 w1, F32 w3, F32 w2, I32 order, I32 starts, F32 gate, F32 up, F32 y,
                        float beta, float linear_beta) {
        const ExpertShape s = experts_of(z, weights, w1, w3, w2, order, starts, gate, up, beta, linear_beta);
        expect("y", y.size(), z.size());
        experts_forward(z.data(), weights.data(), w1.data(), w3.data(), w2.data(), order.data(), starts.data(),
                        gate.data(), up.data(), y.data(), s);
    }, NoGIL());
    m.def("experts_backward", [](F32 z, F32 weights, F32 w1, F32 w3, F32 w2, I32 order, I32 starts, F32 gate,
                                 F32 up, F32 dy, F32 dz, F32 dweights, F32 dw1, F32 dw3, F32 dw2, float beta,
                                 float linear_beta) {
        const ExpertShape s = experts_of(z, weights, w1, w3, w2, order, starts, gate, up, beta, linear_beta);
        expect("dy", dy.size(), z.size());
        expect("dz", dz.size(), z.size());
        expect("dweights", dweights.size(), weights.size());
        expect("dw1", dw1.size(), w1.size());
        expect("dw3", dw3.size(), w1.size());
        expect("dw2", dw2.size(), w1.size());
        experts_backward(z.data(), weights.data(), w1.data(), w3.data(), w2.data(), order.data(), starts.data(),
                         gate.data(), up.data(), dy.data(), dz.data(), dweights.data(), dw1.data(), dw3.data(),
                         dw2.data(), s);
    }, NoGIL());
}

void bind_route(nb::module_ &m) {
    m.def("route", [](F32 x, F32 weight, F32 bias, I64 indices, F32 weights, F32 picked, bool renormalize,
                      float scaling) {
        const RouteShape s = route_of(x, weight, indices, renormalize, scaling);
        expect("bias", bias.size(), s.experts);
        expect("weights", weights.size(), indices.size());
        expect("picked", picked.size(), indices.size());
        route_forward(x.data(), weight.data(), bias.data(), s, indices.data(), weights.data(), picked.data());
    }, NoGIL());
    m.def("route_backward", [](F32 x, F32 weight, I64 indices, F32 picked, F32 dweights, F32 dx, F32 dw,
                               bool renormalize, float scaling) {
        const RouteShape s = route_of(x, weight, indices, renormalize, scaling);
        check_experts(indices, s.experts);
        expect("picked", picked.size(), indices.size());
        expect("dweights", dweights.size(), indices.size());
        expect("dx", dx.size(), x.size());
        expect("dw", dw.size(), weight.size());
        route_backward(x.data(), weight.data(), indices.data(), picked.data(), dweights.data(), s, dx.data(),
                       dw.data());
    }, NoGIL());
}

}  // namespace

void bind_moe(nb::module_ &m) {
    bind_experts(m);
    bind_route(m);
    m.def("mxfp4_values", [](F32 x, F32 y, int32_t increment) {
        if (x.size() % 32 != 0)
            throw std::invalid_argument(std::to_string(x.size()) + " values are no whole blocks of 32");
        expect("y", y.size(), x.size());
        mxfp4_values(x.data(), y.data(), (long)x.size(), increment);
    }, NoGIL());
    m.def("gated_mlp", [](F32 x, F32 w1, F32 w3, F32 w2, F32 gate, F32 up, F32 y, float beta, float linear_beta) {
        const GatedShape s = mlp_of(x, w1, w3, w2, gate, up, beta, linear_beta);
        expect("y", y.size(), x.size());
        gated_mlp_forward(s, (long)x.shape(0), x.data(), w1.data(), w3.data(), w2.data(), gate.data(), up.data(),
                          y.data());
    }, NoGIL());
    m.def("gated_mlp_backward", [](F32 x, F32 w1, F32 w3, F32 w2, F32 gate, F32 up, F32 dy, F32 dx, F32 dw1,
                                   F32 dw3, F32 dw2, float beta, float linear_beta) {
        const GatedShape s = mlp_of(x, w1, w3, w2, gate, up, beta, linear_beta);
        expect("dy", dy.size(), x.size());
        expect("dx", dx.size(), x.size());
        expect("dw_gate", dw1.size(), w1.size());
        expect("dw_up", dw3.size(), w1.size());
        expect("dw_down", dw2.size(), w1.size());
        gated_mlp_backward(s, (long)x.shape(0), x.data(), w1.data(), w3.data(), w2.data(), gate.data(), up.data(),
                           dy.data(), dx.data(), dw1.data(), dw3.data(), dw2.data());
    }, NoGIL());
}
