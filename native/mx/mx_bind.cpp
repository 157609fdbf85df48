// The codec to Python; what these take is checked here, what a user may get wrong in gossamer.kernels.mx.
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <string>
#include <tuple>

#include "mx/codec.h"
#include "train/bind.h"

namespace {

namespace nb = nanobind;

// Values and codes may come from a file that cannot be written.
template <class T>
using Const = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
using Numbers = std::tuple<int, int, int, int, int>;

mx::Element element_of(const Numbers &n) {
    const mx::Element e{std::get<0>(n), std::get<1>(n), std::get<2>(n), std::get<3>(n), std::get<4>(n)};
    const int exponent = e.bits - 1 - e.mantissa;
    if (e.bits > 8 || e.mantissa < 1 || e.mantissa > 3 || exponent < 2 || exponent > 5 || e.max_code >> (e.bits - 1))
        throw std::invalid_argument("an element has 1 to 3 mantissa and 2 to 5 exponent bits in at most 8, got " +
                                    std::to_string(e.mantissa) + " and " + std::to_string(exponent) + " in " +
                                    std::to_string(e.bits));
    return e;
}

void check(const char *what, size_t got, size_t want) {
    if (got != want)
        throw std::invalid_argument(std::string(what) + " have " + std::to_string(got) + " entries where " +
                                    std::to_string(want) + " are needed");
}

size_t blocks_of(size_t values) {
    if (values % mx::kBlock) throw std::invalid_argument(std::to_string(values) + " values are no whole blocks of 32");
    return values / mx::kBlock;
}

void encode(Const<float> x, U8 codes, U8 scales, const Numbers &element, uint32_t increment, bool packed) {
    const mx::Element e = element_of(element);
    const size_t blocks = blocks_of(x.size());
    if (packed && e.bits != 4) throw std::invalid_argument(std::to_string(e.bits) + "-bit codes are not packed in pairs");
    check("codes", codes.size(), packed ? x.size() / 2 : x.size());
    check("scales", scales.size(), blocks);
    nb::gil_scoped_release free;
    mx::encode(x.data(), codes.data(), scales.data(), (long)blocks, e, increment, packed);
}

void decode(Const<uint8_t> codes, Const<uint8_t> scales, F32 y, const Numbers &element, Const<float> table) {
    const mx::Element e = element_of(element);
    const size_t blocks = blocks_of(y.size());
    check("codes", codes.size(), y.size());
    check("scales", scales.size(), blocks);
    check("table", table.size(), (size_t)1 << e.bits);
    nb::gil_scoped_release free;
    // A larger code would be looked up behind the table.
    const int worst = e.bits < 8 ? mx::largest(codes.data(), (long)codes.size()) : 0;
    if (worst >> e.bits)
        throw std::invalid_argument("code " + std::to_string(worst) + " has more than " + std::to_string(e.bits) + " bits");
    mx::decode(codes.data(), scales.data(), y.data(), (long)blocks, e, table.data());
}

void decode_packed(Const<uint8_t> packed, Const<uint8_t> scales, F32 y, Const<float> table) {
    const size_t blocks = blocks_of(y.size());
    check("packed", packed.size(), y.size() / 2);
    check("scales", scales.size(), blocks);
    check("table", table.size(), 16);
    nb::gil_scoped_release free;
    mx::decode_packed(packed.data(), scales.data(), y.data(), (long)blocks, table.data());
}

}  // namespace

void bind_mx(nb::module_ &m) {
    m.def("encode", &encode, nb::arg("x").noconvert(), nb::arg("codes").noconvert(), nb::arg("scales").noconvert(),
          nb::arg("element"), nb::arg("increment"), nb::arg("packed"),
          "Fill codes (one to a byte, or packed two to a byte) and scales of x, whole blocks of 32; element is (bits, "
          "mantissa bits, bias, largest exponent, largest code).  Raises ValueError for sizes that do not fit.");
    m.def("decode", &decode, nb::arg("codes").noconvert(), nb::arg("scales").noconvert(), nb::arg("y").noconvert(),
          nb::arg("element"), nb::arg("table").noconvert(),
          "Fill y with the values of codes; table holds the value of every code.  Raises ValueError for sizes that do not "
          "fit and for codes of more bits.");
    m.def("decode_packed", &decode_packed, nb::arg("packed").noconvert(), nb::arg("scales").noconvert(),
          nb::arg("y").noconvert(), nb::arg("table").noconvert(), "The same of packed 4-bit codes.");
}
