// The network to Python: sizes and weights in, passes run, with everything checked that comes from outside.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "infer/model.h"
#include "train/bind.h"

namespace nb = nanobind;

namespace {

// What is only read may come from a file that cannot be written.
template <class T>
using Const = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

class Numbers {
  public:
    explicit Numbers(const nb::dict &values) : values_(values) {}
    double number(const char *name) const {
        if (!values_.contains(name)) throw std::invalid_argument(std::string("size ") + name + " is missing");
        return nb::cast<double>(values_[name]);
    }
    long whole(const char *name) const { return static_cast<long>(number(name)); }
    int small(const char *name) const { return static_cast<int>(number(name)); }
    bool flag(const char *name) const { return number(name) != 0; }
    float real(const char *name) const { return static_cast<float>(number(name)); }

  private:
    const nb::dict &values_;
};

Sizes sizes_of(const nb::dict &values) {
    const Numbers n(values);
    Sizes s{};
    s.vocab = n.whole("vocab");
    s.hidden = n.whole("hidden");
    s.layers = n.whole("layers");
    s.intermediate = n.whole("intermediate");
    s.residual_block = n.whole("residual_block");
    s.eps = n.real("eps");
    s.activation = {n.flag("situ"), n.real("situ_beta"), n.real("situ_linear_beta")};
    s.kda_heads = n.small("kda_heads");
    s.kda_width = n.small("kda_width");
    s.taps = n.small("taps");
    s.full_rank_gate = n.flag("full_rank_gate");
    s.bounded_decay = n.flag("bounded_decay");
    s.decay_bound = n.real("decay_bound");
    s.l2_eps = n.real("l2_eps");
    s.heads = n.small("heads");
    s.query_rank = n.small("query_rank");
    s.rank = n.small("rank");
    s.nope = n.small("nope");
    s.rope = n.small("rope");
    s.value = n.small("value");
    s.output_gate = n.flag("output_gate");
    s.latent_eps = n.real("latent_eps");
    s.index_heads = n.small("index_heads");
    s.index_width = n.small("index_width");
    s.top_k = n.whole("top_k");
    s.index_eps = n.real("index_eps");
    s.experts = n.small("experts");
    s.per_token = n.small("per_token");
    s.groups = n.small("groups");
    s.top_groups = n.small("top_groups");
    s.expert_width = n.whole("expert_width");
    s.expert_inner = n.whole("expert_inner");
    s.shared_inner = n.whole("shared_inner");
    s.latent_experts = n.flag("latent_experts");
    s.latent_norm = n.flag("latent_norm");
    s.renormalize = n.flag("renormalize");
    s.scaling = n.real("scaling");
    s.block_size = n.whole("block_size");
    s.blocks = n.whole("blocks");
    s.slots = n.whole("slots");
    const int cache = n.small("cache");
    if (cache < 0 || cache > 2) throw std::invalid_argument("rows are stored as 0 (float32), 1 (BF16) or 2 (FP8)");
    s.cache = static_cast<Stored>(cache);
    s.half_state = n.flag("half_state");
    s.mxfp8_inputs = n.flag("mxfp8_inputs");
    s.int8_inputs = n.flag("int8_inputs");
    s.half_inputs = n.flag("half_inputs");
    s.int8_trunk = n.flag("int8_trunk");
    if (s.blocks < 1 || s.slots < 1 || s.block_size < 1)
        throw std::invalid_argument("a model needs at least one block of one token and one slot");
    if (s.groups > 256) throw std::invalid_argument("more than 256 groups of experts");
    if (s.residual_block && s.layers / s.residual_block > 250)
        throw std::invalid_argument("more than 250 residual blocks");
    return s;
}

// A model and the arrays whose memory it reads.
class Bound {
  public:
    Bound(const nb::dict &sizes, std::vector<int> kda, std::vector<int> index, std::vector<int> moe, int threads)
        : model(sizes_of(sizes), kda, index, moe, threads) {
        const size_t layers = model.sizes().layers;
        if (kda.size() != layers || index.size() != layers || moe.size() != layers)
            throw std::invalid_argument("every layer needs its kind");
    }

    void half(const std::string &name, Const<uint16_t> w) {
        keep(name, w.ndim(), nb::cast(w));
        model.add_matrix(name, {Kind::kBF16, w.data(), nullptr, (long)w.shape(0), (long)w.shape(1)});
    }
    void full(const std::string &name, Const<float> w) {
        keep(name, w.ndim(), nb::cast(w));
        model.add_matrix(name, {Kind::kF32, w.data(), nullptr, (long)w.shape(0), (long)w.shape(1)});
    }
    void packed(const std::string &name, Const<uint8_t> w, Const<uint8_t> scales) {
        keep(name, w.ndim(), nb::cast(w));
        keep(name, scales.ndim(), nb::cast(scales));
        const long rows = (long)w.shape(0), cols = 2 * (long)w.shape(1);
        if (cols % 32 || (long)scales.shape(0) != rows || (long)scales.shape(1) * 32 != cols)
            throw std::invalid_argument(name + ": codes and scales do not fit together");
        model.add_matrix(name, {Kind::kMXFP4, w.data(), scales.data(), rows, cols});
    }
    void vector(const std::string &name, Const<float> values) { model.add_vector(name, values.data(), (long)values.size()); }
    void finish() {
        model.finish();
        ready_ = true;
    }

    // spans [n, 5]: tokens, position, slot, blocks, whether logits are wanted; tables: all block tables, joined;
    // given_rows [g] of the pass take their embeddings from given [g, D].
    void run(Const<int64_t> tokens, Const<int64_t> spans, Const<int32_t> tables, Const<int64_t> given_rows,
             Const<float> given, F32 logits) {
        if (!ready_) throw std::invalid_argument("the model is not finished");
        const Sizes &s = model.sizes();
        if (spans.ndim() != 2 || spans.shape(1) != 5) throw std::invalid_argument("spans are [n, 5]");
        std::vector<Span> list;
        std::vector<char> used(s.slots, 0);
        long row = 0, table = 0, wanted = 0;
        for (size_t i = 0; i < spans.shape(0); ++i) {
            const int64_t *v = spans.data() + 5 * i;
            const std::string where = "span " + std::to_string(i);
            if (v[0] < 1 || v[1] < 0) throw std::invalid_argument(where + " has no tokens");
            if (v[2] < 0 || v[2] >= s.slots || used[v[2]]++)
                throw std::invalid_argument(where + ": slot " + std::to_string(v[2]) + " is taken or does not exist");
            if (v[3] * s.block_size < v[1] + v[0] || table + v[3] > (long)tables.size())
                throw std::invalid_argument(where + ": its block table is too short");
            list.push_back({row, v[0], v[1], v[2], tables.data() + table, v[4] != 0});
            row += v[0];
            table += v[3];
            wanted += v[4] != 0;
        }
        if (row != (long)tokens.size()) throw std::invalid_argument("spans and tokens do not fit together");
        if (wanted * s.vocab != (long)logits.size()) throw std::invalid_argument("logits have another size");
        for (size_t i = 0; i < tables.size(); ++i)
            if (tables.data()[i] < 0 || tables.data()[i] >= s.blocks)
                throw std::invalid_argument("block " + std::to_string(tables.data()[i]) + " does not exist");
        for (size_t i = 0; i < tokens.size(); ++i)
            if (tokens.data()[i] < 0 || tokens.data()[i] >= s.vocab)
                throw std::invalid_argument("token " + std::to_string(tokens.data()[i]) + " does not exist");
        if ((long)given.size() != (long)given_rows.size() * s.hidden)
            throw std::invalid_argument("given embeddings have another size than their rows");
        for (size_t i = 0; i < given_rows.size(); ++i)
            if (given_rows.data()[i] < 0 || given_rows.data()[i] >= row)
                throw std::invalid_argument("given row " + std::to_string(given_rows.data()[i]) + " does not exist");
        nb::gil_scoped_release free;
        model.run(tokens.data(), list, {given_rows.data(), given.data(), (long)given_rows.size()}, logits.data());
    }
    void clear_slot(long slot) {
        check(slot, model.sizes().slots, "slot");
        model.clear_slot(slot);
    }
    void save_slot(long slot, U8 out) {
        check(slot, model.sizes().slots, "slot", (long)out.size(), model.slot_bytes());
        model.save_slot(slot, out.data());
    }
    void restore_slot(long slot, Const<uint8_t> from) {
        check(slot, model.sizes().slots, "slot", (long)from.size(), model.slot_bytes());
        model.restore_slot(slot, from.data());
    }
    void read_block(long block, U8 out) {
        check(block, model.sizes().blocks, "block", (long)out.size(), model.block_bytes());
        model.read_block(block, out.data());
    }
    void write_block(long block, Const<uint8_t> from) {
        check(block, model.sizes().blocks, "block", (long)from.size(), model.block_bytes());
        model.write_block(block, from.data());
    }
    void loads(I64 out) {
        if ((long)out.size() != model.sizes().layers * model.sizes().experts)
            throw std::invalid_argument("loads have another size");
        model.loads(out.data());
    }

    Model model;

  private:
    void keep(const std::string &name, size_t dimensions, nb::object array) {
        if (dimensions != 2) throw std::invalid_argument(name + " is no matrix");
        kept_.append(array);
    }
    void check(long i, long count, const char *what, long got = 0, long want = 0) const {
        if (!ready_) throw std::invalid_argument("the model is not finished");
        if (i < 0 || i >= count)
            throw std::invalid_argument(std::string(what) + " " + std::to_string(i) + " does not exist");
        if (got != want)
            throw std::invalid_argument(std::string("a ") + what + " has " + std::to_string(want) + " bytes, got " +
                                        std::to_string(got));
    }

    nb::list kept_;
    bool ready_ = false;
};

}  // namespace

void bind_model(nb::module_ &m) {
    nb::class_<Bound>(m, "Model", "The text network over paged caches; see gossamer.kernels.network.")
        .def(nb::init<const nb::dict &, std::vector<int>, std::vector<int>, std::vector<int>, int>(), nb::arg("sizes"),
             nb::arg("is_kda"), nb::arg("has_index"), nb::arg("is_moe"), nb::arg("threads"))
        .def("half", &Bound::half, nb::arg("name"), nb::arg("weight").noconvert())
        .def("full", &Bound::full, nb::arg("name"), nb::arg("weight").noconvert())
        .def("packed", &Bound::packed, nb::arg("name"), nb::arg("codes").noconvert(), nb::arg("scales").noconvert())
        .def("vector", &Bound::vector, nb::arg("name"), nb::arg("values").noconvert())
        .def("finish", &Bound::finish)
        .def("run", &Bound::run, nb::arg("tokens").noconvert(), nb::arg("spans").noconvert(),
             nb::arg("tables").noconvert(), nb::arg("given_rows").noconvert(), nb::arg("given").noconvert(),
             nb::arg("logits").noconvert())
        .def("clear_slot", &Bound::clear_slot, nb::arg("slot"))
        .def("save_slot", &Bound::save_slot, nb::arg("slot"), nb::arg("out").noconvert())
        .def("restore_slot", &Bound::restore_slot, nb::arg("slot"), nb::arg("saved").noconvert())
        .def("read_block", &Bound::read_block, nb::arg("block"), nb::arg("out").noconvert())
        .def("write_block", &Bound::write_block, nb::arg("block"), nb::arg("saved").noconvert())
        .def("loads", &Bound::loads, nb::arg("out").noconvert())
        .def_prop_ro("slot_bytes", [](const Bound &b) { return b.model.slot_bytes(); })
        .def_prop_ro("block_bytes", [](const Bound &b) { return b.model.block_bytes(); })
        .def_prop_ro("threads", [](const Bound &b) { return b.model.threads(); });
}
