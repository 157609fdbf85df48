#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "train/bind.h"
#include "train/gemm.h"

namespace {

namespace nb = nanobind;
using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

std::string shape(const Matrix &x) {
    return "[" + std::to_string(x.shape(0)) + ", " + std::to_string(x.shape(1)) + "]";
}

int row_stride(const Matrix &x, const char *name) {
    if (x.size() > 0 && x.shape(1) > 1 && x.stride(1) != 1) {
        throw std::invalid_argument(std::string("sgemm: the rows of ") + name +
                                    " have gaps; pass an array whose last dimension is contiguous");
    }
    return (int)x.stride(0);
}

void product(Matrix a, Matrix b, Matrix c, bool trans_a, bool trans_b, bool accumulate) {
    const size_t m = a.shape(trans_a), k = a.shape(!trans_a), n = b.shape(!trans_b);
    if (b.shape(trans_b) != k || c.shape(0) != m || c.shape(1) != n) {
        throw std::invalid_argument("sgemm: shapes a " + shape(a) + (trans_a ? "^T" : "") + ", b " + shape(b) +
                                    (trans_b ? "^T" : "") + " and c " + shape(c) + " do not fit together");
    }
    sgemm(trans_a, trans_b, (int)m, (int)n, (int)k, a.data(), row_stride(a, "a"), b.data(), row_stride(b, "b"),
          c.data(), row_stride(c, "c"), accumulate);
}

}  // namespace

void bind_gemm(nb::module_ &m) {
    m.def("sgemm", &product, nb::arg("a").noconvert(), nb::arg("b").noconvert(), nb::arg("c").noconvert(),
          nb::arg("trans_a") = false, nb::arg("trans_b") = false, nb::arg("accumulate") = false, NoGIL(),
          "c = a b, or c += a b with accumulate, for float32 matrices whose rows may be strided; trans_a and "
          "trans_b read a as [K, M] and b as [N, K].  Raises ValueError if shapes or strides do not fit.");
}
