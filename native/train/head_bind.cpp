#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "train/bind.h"
#include "train/head.h"

namespace {

namespace nb = nanobind;

void check(bool right, const std::string &what) {
    if (!right) throw std::invalid_argument("head_loss: " + what);
}

bool same_shape(const F32 &x, const F32 &y) {
    return x.ndim() == 2 && x.shape(0) == y.shape(0) && x.shape(1) == y.shape(1);
}

double loss(F32 h, F32 w, I64 targets, std::optional<F32> dh, std::optional<F32> dw) {
    check(h.ndim() == 2 && w.ndim() == 2 && h.shape(1) == w.shape(1), "h must be [M, D] and w [V, D]");
    check(targets.ndim() == 1 && targets.shape(0) == h.shape(0), "targets must be [M] for h [M, D]");
    check(!dh || same_shape(*dh, h), "dh must have the shape of h");
    check(!dw || same_shape(*dw, w), "dw must have the shape of w");
    const auto vocab = (int64_t)w.shape(0);
    for (size_t i = 0; i < targets.shape(0); ++i) {
        const int64_t target = targets.data()[i];
        check(target == -100 || (target >= 0 && target < vocab),
              "target " + std::to_string(target) + " of row " + std::to_string(i) + " is neither -100 nor in 0.." +
                  std::to_string(vocab - 1));
    }
    return head_loss((int)h.shape(0), (int)h.shape(1), (int)vocab, h.data(), w.data(), targets.data(),
                     dh ? dh->data() : nullptr, dw ? dw->data() : nullptr);
}

}  // namespace

void bind_head(nb::module_ &m) {
    m.def("head_loss", &loss, nb::arg("h").noconvert(), nb::arg("w").noconvert(), nb::arg("targets").noconvert(),
          nb::arg("dh").noconvert().none() = nb::none(), nb::arg("dw").noconvert().none() = nb::none(), NoGIL(),
          "Sum of the cross entropy of h [M, D] times w [V, D] transposed over the rows whose target is not -100; "
          "dh and dw, where given, receive its gradients.  Raises ValueError for shapes or targets that do not fit.");
}
