#include "train/moe.h"

#include <stdexcept>
#include <string>

#include "train/bind.h"

namespace nb = nanobind;

static void expect(const char *what, size_t got, size_t want) {
    if (got != want)
        throw std::invalid_argument(std::string(what) + " holds " + std::to_string(got) + " values, expected " +
                                    std::to_string(want));
}

static ExpertShape shape_of(const I32 &starts, const I32 &order, const F32 &z, const F32 &w1) {
    ExpertShape s;
    s.experts = (int)starts.size() - 1;
    s.width = (int)w1.shape(2);
    s.inner = (int)w1.shape(1);
    s.tokens = (long)(z.size() / s.width);
    s.per_token = (int)(order.size() / s.tokens);
    expect("z", z.size(), (size_t)s.tokens * s.width);
    expect("order", order.size(), (size_t)s.tokens * s.per_token);
    expect("w1", w1.size(), (size_t)s.experts * s.inner * s.width);
    return s;
}

void bind_moe(nb::module_ &m) {
    m.def("sort_pairs", [](I64 indices, I32 order, I32 starts) {
        ExpertShape s{(long)indices.shape(0), (int)indices.shape(1), (int)starts.size() - 1, 0, 0};
        expect("order", order.size(), indices.size());
        for (size_t i = 0; i < indices.size(); ++i)
            if (indices.data()[i] < 0 || indices.data()[i] >= s.experts)
                throw std::invalid_argument("expert " + std::to_string(indices.data()[i]) + " is outside 0.." +
                                            std::to_string(s.experts - 1));
        sort_pairs(indices.data(), s, order.data(), starts.data());
    }, NoGIL());
    m.def("experts", [](F32 z, F32 weights, F32 w1, F32 w3, F32 w2, I32 order, I32 starts, F32 gate, F32 up, F32 y,
                        float beta, float linear_beta) {
        const ExpertShape s = shape_of(starts, order, z, w1);
        expect("weights", weights.size(), order.size());
        expect("w3", w3.size(), w1.size());
        expect("w2", w2.size(), w1.size());
        expect("gate", gate.size(), order.size() * s.inner);
        expect("up", up.size(), order.size() * s.inner);
        expect("y", y.size(), z.size());
        experts_forward(z.data(), weights.data(), w1.data(), w3.data(), w2.data(), order.data(), starts.data(),
                        gate.data(), up.data(), y.data(), s, beta, linear_beta);
    }, NoGIL());
    m.def("experts_backward", [](F32 z, F32 weights, F32 w1, F32 w3, F32 w2, I32 order, I32 starts, F32 gate,
                                 F32 up, F32 dy, F32 dz, F32 dweights, F32 dw1, F32 dw3, F32 dw2, float beta,
                                 float linear_beta) {
        const ExpertShape s = shape_of(starts, order, z, w1);
        expect("weights", weights.size(), order.size());
        expect("w3", w3.size(), w1.size());
        expect("w2", w2.size(), w1.size());
        expect("gate", gate.size(), order.size() * s.inner);
        expect("up", up.size(), order.size() * s.inner);
        expect("dy", dy.size(), z.size());
        expect("dz", dz.size(), z.size());
        expect("dweights", dweights.size(), weights.size());
        expect("dw1", dw1.size(), w1.size());
        expect("dw3", dw3.size(), w1.size());
        expect("dw2", dw2.size(), w1.size());
        experts_backward(z.data(), weights.data(), w1.data(), w3.data(), w2.data(), order.data(), starts.data(),
                         gate.data(), up.data(), dy.data(), dz.data(), dweights.data(), dw1.data(), dw3.data(),
                         dw2.data(), s, beta, linear_beta);
    }, NoGIL());
}
