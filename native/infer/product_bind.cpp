// Single products to Python, for tests of what the network is made of, and what memory gives, for benchmarks.
#include <nanobind/stl/string.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "infer/bf16.h"
#include "infer/matrix.h"
#include "infer/pages.h"
#include "infer/pool.h"
#include "train/bind.h"
#include "train/mxfp4.h"

namespace nb = nanobind;

namespace {

template <class T>
using Const = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

// Rows begin to end of w x for x [M, K], into y [M, N]; the rest of y stays as it was.
void run(const Matrix &w, const Const<float> &x, F32 &y, long begin, long end, bool int8) {
    if (w.rows < 0 || w.cols < 0) throw std::invalid_argument("w is no matrix");
    const long tokens = x.ndim() == 2 ? (long)x.shape(0) : -1;
    if (tokens < 0 || (long)x.shape(1) != w.cols) throw std::invalid_argument("x is no [M, " + std::to_string(w.cols) + "]");
    if (y.ndim() != 2 || (long)y.shape(0) != tokens || (long)y.shape(1) != w.rows)
        throw std::invalid_argument("y is no [M, N]");
    if (begin < 0 || begin > end || end > w.rows)
        throw std::invalid_argument("rows " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
                                    std::to_string(w.rows));
    std::vector<float> scratch, ordered;
    std::vector<uint16_t> half(kHalfProducts ? tokens * w.cols : 0);
    std::vector<int8_t> codes(tokens * w.cols);
    std::vector<float> scales(tokens * w.cols / kInt8Block);
    const bool packed = w.kind == Kind::kMXFP4;
    Rows rows{x.data(), w.cols};
    if (int8) {
        to_int8(x.data(), tokens, w.cols, w.cols, codes.data(), scales.data(), packed);
        rows.int8 = {codes.data(), scales.data()};
    } else if (packed) {
        ordered.resize(tokens * w.cols);
        to_mx_order(x.data(), ordered.data(), tokens, w.cols);
        rows.values = ordered.data();
    }
    if (w.half_inputs && kHalfProducts) {
        round_to_bf16(rows.values, tokens, w.cols, w.cols, half.data());
        rows.half = half.data();
    } else if (w.half_inputs) {
        ordered.resize(tokens * w.cols);
        round_to_bf16(rows.values, tokens, w.cols, w.cols, ordered.data());
        rows.values = ordered.data();
    }
    multiply(w, rows, tokens, y.data(), w.rows, begin, end, scratch);
}

// Rows and columns, or -1 of what is no matrix.
template <class T>
long side(const Const<T> &w, int i) {
    return w.ndim() == 2 ? (long)w.shape(i) : -1;
}

void check_blocks(long cols, const Const<uint8_t> &scales, long rows) {
    if (rows < 0 || scales.ndim() != 2 || cols % 32 || (long)scales.shape(0) != rows || (long)scales.shape(1) * 32 != cols)
        throw std::invalid_argument("codes and scales do not fit together");
}

void product_half(Const<uint16_t> w, Const<float> x, F32 y, long begin, long end, bool half_inputs) {
    run({Kind::kBF16, w.data(), nullptr, side(w, 0), side(w, 1), half_inputs}, x, y, begin, end, false);
}

void product_full(Const<float> w, Const<float> x, F32 y, long begin, long end) {
    run({Kind::kF32, w.data(), nullptr, side(w, 0), side(w, 1)}, x, y, begin, end, false);
}

void product_packed(Const<uint8_t> w, Const<uint8_t> scales, Const<float> x, F32 y, long begin, long end, bool int8,
                    bool half_inputs) {
    const long rows = side(w, 0), cols = 2 * side(w, 1);
    check_blocks(cols, scales, rows);
    run({Kind::kMXFP4, w.data(), scales.data(), rows, cols, half_inputs}, x, y, begin, end, int8);
}

// w [N, K] becomes int8 first.
void product_int8(Const<float> w, Const<float> x, F32 y, long begin, long end) {
    const long rows = side(w, 0), cols = side(w, 1);
    if (rows < 0 || cols % kInt8Block) throw std::invalid_argument("int8 products want columns in blocks of 32");
    std::vector<int8_t> codes(rows * cols);
    std::vector<uint16_t> scales(rows * cols / kInt8Block);
    for (long r = 0; r < rows; ++r)
        weights_to_int8(w.data() + r * cols, cols, codes.data() + r * cols, scales.data() + r * cols / kInt8Block);
    run({Kind::kInt8, codes.data(), scales.data(), rows, cols}, x, y, begin, end, true);
}

void round_mxfp8(F32 x) {
    if (x.size() % 32) throw std::invalid_argument("MXFP8 wants blocks of 32");
    mxfp8_values(x.data(), x.data(), (long)x.size(), 0);
}

// One row as a cache stores it.
Pages pages_of(int stored, long width, long coded, bool powers) {
    if (stored < 0 || stored > 2 || coded < 0 || coded > width) throw std::invalid_argument("no such row");
    return Pages(static_cast<Stored>(stored), width, 1, coded, powers);
}

long row_bytes(int stored, long width, long coded) { return pages_of(stored, width, coded, false).row_bytes; }

void keep_row(Const<float> row, U8 out, int stored, long coded, bool powers) {
    const Pages pages = pages_of(stored, (long)row.size(), coded, powers);
    if ((long)out.size() != pages.row_bytes) throw std::invalid_argument("the row has another size");
    pages.keep(row.data(), out.data());
}

void read_row(Const<uint8_t> kept, F32 out, int stored, long coded) {
    const Pages pages = pages_of(stored, (long)out.size(), coded, false);
    if ((long)kept.size() != pages.row_bytes) throw std::invalid_argument("the row has another size");
    pages.values(kept.data(), out.data());
}

// Seconds to read every byte once with so many threads, each in four streams: what a roofline is measured against.
double read_through(Const<uint8_t> data, int threads) {
    if (threads < 1) throw std::invalid_argument("threads must be at least 1, got " + std::to_string(threads));
    nb::gil_scoped_release free;
    Pool pool(threads);
    const long words = (long)data.size() / 8, part = words / (4L * threads);
    const uint64_t *from = reinterpret_cast<const uint64_t *>(data.data());
    std::atomic<uint64_t> all{0};
    const auto begin = std::chrono::steady_clock::now();
    pool.each(threads, [&](long task, int) {
        const uint64_t *at = from + task * 4 * part;
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (long i = 0; i < part; ++i) {
            a ^= at[i];
            b ^= at[part + i];
            c ^= at[2 * part + i];
            d ^= at[3 * part + i];
        }
        all.fetch_xor(a ^ b ^ c ^ d);
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count();
}

}  // namespace

void bind_product(nb::module_ &m) {
    m.def("product_half", &product_half, "Rows of w x, w BF16 bits, x float32 or rounded to BF16.",
          nb::arg("w").noconvert(), nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("begin"),
          nb::arg("end"), nb::arg("half_inputs") = false);
    m.def("product_full", &product_full, "Rows of w x, w float32.", nb::arg("w").noconvert(),
          nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("begin"), nb::arg("end"));
    m.def("product_packed", &product_packed, "Rows of w x, w MXFP4, x float32 or rounded to int8 or BF16.",
          nb::arg("codes").noconvert(), nb::arg("scales").noconvert(), nb::arg("x").noconvert(),
          nb::arg("y").noconvert(), nb::arg("begin"), nb::arg("end"), nb::arg("int8"),
          nb::arg("half_inputs") = false);
    m.def("product_int8", &product_int8, "Rows of w x, both rounded to int8.", nb::arg("w").noconvert(),
          nb::arg("x").noconvert(), nb::arg("y").noconvert(), nb::arg("begin"), nb::arg("end"));
    m.def("row_bytes", &row_bytes, "Bytes of a cached row.", nb::arg("stored"), nb::arg("width"), nb::arg("coded"));
    m.def("keep_row", &keep_row, "One row as a cache stores it.", nb::arg("row").noconvert(),
          nb::arg("out").noconvert(), nb::arg("stored"), nb::arg("coded"), nb::arg("powers"));
    m.def("read_row", &read_row, "What a cached row holds.", nb::arg("kept").noconvert(), nb::arg("out").noconvert(),
          nb::arg("stored"), nb::arg("coded"));
    m.def("read_through", &read_through, "Seconds to read all bytes once with so many threads.",
          nb::arg("data").noconvert(), nb::arg("threads"));
    m.def("round_mxfp8", &round_mxfp8, "x becomes what MXFP8 (E4M3, floor rule) keeps of it.",
          nb::arg("x").noconvert());
}
