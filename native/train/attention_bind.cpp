#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "train/attention.h"
#include "train/bind.h"

namespace nb = nanobind;

namespace {

void expect(const char *name, size_t found, size_t wanted) {
    if (found != wanted) {
        throw std::invalid_argument(std::string("attention: ") + name + " holds " + std::to_string(found) +
                                    " values, the shapes need " + std::to_string(wanted));
    }
}

AttentionShape shape_of(const F32 &q, const F32 &kv, const F32 &shared, int heads, int nope, int value) {
    if (q.ndim() != 4 || shared.ndim() != 3 || heads < 1 || nope < 0 || value < 1 ||
        q.shape(2) != (size_t)heads || q.shape(3) < (size_t)nope) {
        throw std::invalid_argument("attention: q must be [B, T, num_heads, nope + rope] and shared_key [B, T, rope]");
    }
    AttentionShape s{(int)q.shape(0), (int)q.shape(1), heads, nope, (int)q.shape(3) - nope, value};
    const size_t rows = (size_t)s.batch * s.tokens;
    expect("shared_key", shared.size(), rows * s.rope);
    expect("kv", kv.size(), rows * heads * s.block());
    return s;
}

// The bits of the selection and how many bytes a query has; {null, 0} without one.
struct Mask {
    const uint8_t *bits = nullptr;
    int bytes = 0;
};

Mask mask_of(const AttentionShape &s, const std::optional<U8> &allowed) {
    if (!allowed) return {};
    const size_t rows = (size_t)s.batch * s.tokens, bytes = rows == 0 ? 0 : allowed->size() / rows;
    if (bytes != (size_t)selection_bytes(s.tokens) || bytes * rows != allowed->size()) {
        throw std::invalid_argument("attention: allowed holds " + std::to_string(allowed->size()) +
                                    " bytes; it must be [B, T, " +
                                    std::to_string(selection_bytes(s.tokens)) + "]");
    }
    return {allowed->data(), (int)bytes};
}

void forward(const F32 &q, const F32 &kv, const F32 &shared, int heads, int nope, int value,
             const std::optional<U8> &allowed, F32 &out, F32 &lse) {
    const AttentionShape s = shape_of(q, kv, shared, heads, nope, value);
    const Mask mask = mask_of(s, allowed);
    expect("out", out.size(), (size_t)s.batch * s.tokens * heads * value);
    expect("lse", lse.size(), (size_t)s.batch * s.tokens * heads);
    attention_forward(s, q.data(), kv.data(), shared.data(), mask.bits, mask.bytes, out.data(), lse.data());
}

void backward(const F32 &q, const F32 &kv, const F32 &shared, int heads, int nope, int value,
              const std::optional<U8> &allowed, const F32 &out, const F32 &lse, const F32 &d_out, F32 &d_q, F32 &d_kv,
              F32 &d_shared) {
    const AttentionShape s = shape_of(q, kv, shared, heads, nope, value);
    const Mask mask = mask_of(s, allowed);
    expect("out", out.size(), (size_t)s.batch * s.tokens * heads * value);
    expect("d_out", d_out.size(), out.size());
    expect("lse", lse.size(), (size_t)s.batch * s.tokens * heads);
    expect("d_q", d_q.size(), q.size());
    expect("d_kv", d_kv.size(), kv.size());
    expect("d_shared", d_shared.size(), shared.size());
    attention_backward(s, q.data(), kv.data(), shared.data(), mask.bits, mask.bytes, out.data(), lse.data(),
                       d_out.data(), d_q.data(), d_kv.data(), d_shared.data());
}

}  // namespace

void bind_attention(nb::module_ &m) {
    m.def("attention_forward", &forward, nb::arg("q").noconvert(), nb::arg("kv").noconvert(),
          nb::arg("shared").noconvert(), nb::arg("heads"), nb::arg("nope"), nb::arg("value"),
          nb::arg("allowed").noconvert().none(), nb::arg("out").noconvert(), nb::arg("lse").noconvert(), NoGIL());
    m.def("attention_backward", &backward, nb::arg("q").noconvert(), nb::arg("kv").noconvert(),
          nb::arg("shared").noconvert(), nb::arg("heads"), nb::arg("nope"), nb::arg("value"),
          nb::arg("allowed").noconvert().none(), nb::arg("out").noconvert(), nb::arg("lse").noconvert(),
          nb::arg("d_out").noconvert(), nb::arg("d_q").noconvert(), nb::arg("d_kv").noconvert(),
          nb::arg("d_shared").noconvert(), NoGIL());
}
