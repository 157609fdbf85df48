#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "train/bind.h"
#include "train/kda.h"

namespace {

namespace nb = nanobind;
using Rows = nb::ndarray<float, nb::ndim<3>, nb::device::cpu>;  // rows of a wider tensor are welcome

constexpr int MAX_TAPS = 64;

[[noreturn]] void refuse(const std::string &what) { throw std::invalid_argument("kda: " + what); }

void expect(const F32 &x, const char *name, size_t size) {
    if (x.size() != size) {
        refuse(std::string(name) + " has " + std::to_string(x.size()) + " elements, expected " +
               std::to_string(size));
    }
}

// The inputs of the mixer: shapes checked once, then read by plan, forward and backward.
class Mixer {
  public:
    Mixer(Rows q, Rows k, Rows v, F32 q_taps, F32 k_taps, F32 v_taps, Rows z, F32 dt_bias, F32 a_log, Rows b,
          Rows gate, F32 norm_weight, std::optional<float> bound, float l2_eps, float norm_eps)
        : arrays{q, k, v, z, b, gate}, flat{q_taps, k_taps, v_taps, dt_bias, a_log, norm_weight} {
        shape.batch = (int)q.shape(0), shape.tokens = (int)q.shape(1), shape.heads = (int)b.shape(2);
        const size_t width = q.shape(2), heads = b.shape(2);
        if (heads == 0 || width == 0 || width % heads) {
            refuse("width " + std::to_string(width) + " is not a multiple of " + std::to_string(heads) + " heads");
        }
        if (q_taps.size() % width || q_taps.size() == 0 || q_taps.size() / width > MAX_TAPS) {
            refuse("taps must be [" + std::to_string(width) + ", 1, 1.." + std::to_string(MAX_TAPS) + "]");
        }
        if (bound && !(*bound < 0.0f)) refuse("lower_bound must be negative, got " + std::to_string(*bound));
        shape.width = (int)(width / heads), shape.taps = (int)(q_taps.size() / width);
        shape.bounded = bound.has_value(), shape.bound = bound.value_or(0.0f);
        shape.l2_eps = l2_eps, shape.norm_eps = norm_eps;
        inputs.x[0] = rows(q, "q", width), inputs.x[1] = rows(k, "k", width), inputs.x[2] = rows(v, "v", width);
        inputs.z = rows(z, "z", width), inputs.b = rows(b, "b", heads), inputs.gate = rows(gate, "gate", width);
        for (int i = 0; i < 3; ++i) {
            expect(flat[i], "taps", q_taps.size());
            inputs.taps[i] = flat[i].data();
        }
        expect(dt_bias, "dt_bias", width);
        expect(a_log, "A_log", heads);
        expect(norm_weight, "o_norm_weight", shape.width);
        inputs.dt_bias = dt_bias.data(), inputs.a_log = a_log.data(), inputs.norm_weight = norm_weight.data();
    }

    int64_t plan(I32 starts, I32 counts) const {
        const size_t rows = shape.batch;
        if (starts.size() != rows * (shape.tokens + 1) || counts.size() != rows) {
            refuse("chunks must be starts [B, T + 1] and counts [B]");
        }
        return kda_plan(shape, inputs, {starts.data(), counts.data()});
    }

    void forward(I32 starts, I32 counts, F32 out, std::optional<F32> kept) const {
        expect(out, "out", tokens());
        if (kept) expect_kept(counts, *kept);
        kda_forward(shape, inputs, {starts.data(), counts.data()}, kept ? kept->data() : nullptr, out.data());
    }

    void backward(I32 starts, I32 counts, F32 kept, F32 grad_out, F32 q, F32 k, F32 v,
                  F32 q_taps, F32 k_taps, F32 v_taps, F32 z, F32 dt_bias, F32 a_log, F32 b, F32 gate,
                  F32 norm_weight) const {
        expect_kept(counts, kept);
        const F32 *wide[] = {&grad_out, &q, &k, &v, &z, &gate};
        for (const F32 *x : wide) expect(*x, "gradient", tokens());
        const F32 *taps[] = {&q_taps, &k_taps, &v_taps};
        for (const F32 *x : taps) expect(*x, "gradient of taps", flat[0].size());
        expect(dt_bias, "gradient of dt_bias", flat[3].size());
        expect(a_log, "gradient of A_log", flat[4].size());
        expect(norm_weight, "gradient of o_norm_weight", flat[5].size());
        expect(b, "gradient of b", (size_t)shape.batch * shape.tokens * shape.heads);
        const KdaGradients to{{q.data(), k.data(), v.data()},
                              z.data(),
                              b.data(),
                              gate.data(),
                              {q_taps.data(), k_taps.data(), v_taps.data()},
                              dt_bias.data(),
                              a_log.data(),
                              norm_weight.data()};
        kda_backward(shape, inputs, {starts.data(), counts.data()}, kept.data(), grad_out.data(), to);
    }

  private:
    KdaShape shape;
    KdaInputs inputs;
    Rows arrays[6];  // kept alive with the object
    F32 flat[6];

    size_t tokens() const { return (size_t)shape.batch * shape.tokens * shape.heads * shape.width; }

    KdaRows rows(const Rows &x, const char *name, size_t width) const {
        if ((int)x.shape(0) != shape.batch || (int)x.shape(1) != shape.tokens || x.shape(2) != width) {
            refuse(std::string(name) + " must be [" + std::to_string(shape.batch) + ", " +
                   std::to_string(shape.tokens) + ", " + std::to_string(width) + "]");
        }
        if (width > 1 && x.stride(2) != 1) {
            refuse(std::string(name) + " has gaps in its last dimension; call contiguous() first");
        }
        return {x.data(), (ptrdiff_t)x.stride(0), (ptrdiff_t)x.stride(1)};
    }

    void expect_kept(const I32 &counts, const F32 &kept) const {
        size_t chunks = 0;
        for (size_t i = 0; i < counts.size(); ++i) chunks += counts.data()[i];
        expect(kept, "kept", chunks * shape.heads * kda_kept(shape.width));
    }
};

}  // namespace

void bind_kda(nb::module_ &m) {
    m.def("kda_kept", &kda_kept, "Floats that forward keeps of a chunk for a head width.");
    nb::class_<Mixer>(m, "KdaMixer", "One call of the KDA mixer: checked inputs, then plan, forward, backward.")
        .def(nb::init<Rows, Rows, Rows, F32, F32, F32, Rows, F32, F32, Rows, Rows, F32, std::optional<float>, float,
                      float>(),
             nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("v").noconvert(),
             nb::arg("q_taps").noconvert(), nb::arg("k_taps").noconvert(), nb::arg("v_taps").noconvert(),
             nb::arg("z").noconvert(), nb::arg("dt_bias").noconvert(), nb::arg("a_log").noconvert(),
             nb::arg("b").noconvert(), nb::arg("gate").noconvert(), nb::arg("norm_weight").noconvert(),
             nb::arg("bound").none(), nb::arg("l2_eps"), nb::arg("norm_eps"))
        .def("plan", &Mixer::plan, nb::arg("starts").noconvert(), nb::arg("counts").noconvert(), NoGIL())
        .def("forward", &Mixer::forward, nb::arg("starts").noconvert(), nb::arg("counts").noconvert(),
             nb::arg("out").noconvert(), nb::arg("kept").noconvert().none(), NoGIL())
        .def("backward", &Mixer::backward, NoGIL());
}
