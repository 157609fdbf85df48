#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>

#include "train/bind.h"
#include "train/pointwise.h"

namespace nb = nanobind;

static void same(const char *what, size_t a, size_t b) {
    if (a != b)
        throw std::invalid_argument(std::string(what) + ": " + std::to_string(a) + " values against " +
                                    std::to_string(b));
}

void bind_pointwise(nb::module_ &m) {
    m.def("situ", [](F32 gate, F32 up, F32 y, float beta, float linear_beta) {
        same("gate and up", gate.size(), up.size());
        same("gate and y", gate.size(), y.size());
        situ_forward(gate.data(), up.data(), y.data(), (long)y.size(), beta, linear_beta);
    }, NoGIL());
    m.def("situ_backward", [](F32 gate, F32 up, F32 dy, F32 dgate, F32 dup, float beta, float linear_beta) {
        same("gate and up", gate.size(), up.size());
        same("gate and dy", gate.size(), dy.size());
        same("gate and dgate", gate.size(), dgate.size());
        same("gate and dup", gate.size(), dup.size());
        situ_backward(gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), (long)dy.size(), beta,
                      linear_beta);
    }, NoGIL());
    m.def("gated", [](F32 a, F32 g, F32 y) {
        same("a and g", a.size(), g.size());
        same("a and y", a.size(), y.size());
        gated_forward(a.data(), g.data(), y.data(), (long)y.size());
    }, NoGIL());
    m.def("gated_backward", [](F32 a, F32 g, F32 dy, F32 da, F32 dg) {
        same("a and g", a.size(), g.size());
        same("a and dy", a.size(), dy.size());
        same("a and da", a.size(), da.size());
        same("a and dg", a.size(), dg.size());
        gated_backward(a.data(), g.data(), dy.data(), da.data(), dg.data(), (long)dy.size());
    }, NoGIL());
    m.def("rms_norm", [](F32 x, F32 w, F32 y, F32 inverse, float eps) {
        same("x and y", x.size(), y.size());
        same("x and rows of w", x.size(), inverse.size() * w.size());
        rms_forward(x.data(), w.data(), y.data(), inverse.data(), (long)inverse.size(), (int)w.size(), eps);
    }, NoGIL());
    m.def("rms_norm_backward", [](F32 x, F32 w, F32 inverse, F32 dy, F32 dx, F32 dw) {
        same("x and dy", x.size(), dy.size());
        same("x and dx", x.size(), dx.size());
        same("w and dw", w.size(), dw.size());
        same("x and rows of w", x.size(), inverse.size() * w.size());
        rms_backward(x.data(), w.data(), inverse.data(), dy.data(), dx.data(), dw.data(), (long)inverse.size(),
                     (int)w.size());
    }, NoGIL());
    m.def("mix_norm", [](std::vector<F32> candidates, F32 score, F32 w, F32 y, F32 kept, float eps,
                         float norm_eps) {
        const size_t width = w.size(), rows = y.size() / width;
        std::vector<const float *> pointers;
        for (auto &c : candidates) {
            same("candidate and y", c.size(), y.size());
            pointers.push_back(c.data());
        }
        same("score and w", score.size(), width);
        same("kept", kept.size(), rows * (3 * candidates.size() + 1));
        nb::gil_scoped_release release;
        mix_norm_forward(pointers.data(), (int)pointers.size(), score.data(), w.data(), y.data(), kept.data(),
                         (long)rows, (int)width, eps, norm_eps);
    });
    m.def("mix_norm_backward", [](std::vector<F32> candidates, F32 score, F32 w, F32 kept, F32 dy,
                                  std::vector<F32> dcandidates, F32 dscore, F32 dw) {
        const size_t width = w.size(), rows = dy.size() / width;
        std::vector<const float *> pointers;
        std::vector<float *> gradients;
        for (auto &c : candidates) {
            same("candidate and dy", c.size(), dy.size());
            pointers.push_back(c.data());
        }
        for (auto &c : dcandidates) {
            same("candidate gradient and dy", c.size(), dy.size());
            gradients.push_back(c.data());
        }
        same("gradients and candidates", gradients.size(), pointers.size());
        same("kept", kept.size(), rows * (3 * candidates.size() + 1));
        same("dscore and w", dscore.size(), width);
        same("dw and w", dw.size(), width);
        nb::gil_scoped_release release;
        mix_norm_backward(pointers.data(), (int)pointers.size(), score.data(), w.data(), kept.data(), dy.data(),
                          gradients.data(), dscore.data(), dw.data(), (long)rows, (int)width);
    });
}
