#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <string>
#include <tuple>

#include "train/bind.h"
#include "train/optimizer.h"

namespace {

namespace nb = nanobind;
using Coefficients = std::tuple<float, float, float>;

Quintic quintic(const Coefficients &c) { return {std::get<0>(c), std::get<1>(c), std::get<2>(c)}; }

void check(bool right, const char *what) {
    if (!right) throw std::invalid_argument(what);
}

int stack_of(const F32 &x) {
    check(x.ndim() == 2 || x.ndim() == 3, "a matrix or a stack of them is needed: [R, C] or [S, R, C]");
    return x.ndim() == 3 ? (int)x.shape(0) : 1;
}

void check_same(const F32 &x, const F32 &y) {
    bool same = x.ndim() == y.ndim();
    for (size_t i = 0; same && i < x.ndim(); ++i) same = x.shape(i) == y.shape(i);
    check(same, "the parameter, its gradient and its state must have one shape");
}

void schulz(F32 x, int steps, Coefficients c) {
    const int stack = stack_of(x);
    newton_schulz(stack, (int)x.shape(x.ndim() - 2), (int)x.shape(x.ndim() - 1), x.data(), steps, quintic(c));
}

void muon(F32 parameter, F32 grad, F32 momentum, float beta, float keep, float size, int steps, Coefficients c) {
    const int stack = stack_of(parameter);
    check_same(parameter, grad);
    check_same(parameter, momentum);
    const size_t n = parameter.ndim();
    muon_update(stack, (int)parameter.shape(n - 2), (int)parameter.shape(n - 1), parameter.data(), grad.data(),
                momentum.data(), {beta, keep, size}, steps, quintic(c));
}

void adam(F32 parameter, F32 grad, F32 mean, F32 square, float first, float second, float keep, float size,
          float correction, float epsilon) {
    check_same(parameter, grad);
    check_same(parameter, mean);
    check_same(parameter, square);
    adam_update(parameter.size(), parameter.data(), grad.data(), mean.data(), square.data(),
                {first, second, keep, size, correction, epsilon});
}

}  // namespace

void bind_optimizer(nb::module_ &m) {
    m.def("newton_schulz", &schulz, nb::arg("x").noconvert(), nb::arg("steps"), nb::arg("coefficients"), NoGIL(),
          "Replace each matrix of x [S, R, C] or [R, C] in place by a nearly semi-orthogonal one with the same "
          "singular vectors: `steps` times a y + b (y y^T) y + c (y y^T)^2 y, from Frobenius norm 1.");
    m.def("muon_update", &muon, nb::arg("parameter").noconvert(), nb::arg("grad").noconvert(),
          nb::arg("momentum").noconvert(), nb::arg("beta"), nb::arg("keep"), nb::arg("size"), nb::arg("steps"),
          nb::arg("coefficients"), NoGIL(),
          "momentum := beta momentum + grad; parameter := keep parameter - size newton_schulz(grad + beta momentum).  "
          "All [R, C] or [S, R, C], in place.  Raises ValueError if shapes differ.");
    m.def("adam_update", &adam, nb::arg("parameter").noconvert(), nb::arg("grad").noconvert(),
          nb::arg("mean").noconvert(), nb::arg("square").noconvert(), nb::arg("first"), nb::arg("second"),
          nb::arg("keep"), nb::arg("size"), nb::arg("correction"), nb::arg("epsilon"), NoGIL(),
          "Moments decay by first and second; parameter := keep parameter - size mean / (sqrt(correction square) + "
          "epsilon).  One shape, in place.  Raises ValueError if shapes differ.");
}
