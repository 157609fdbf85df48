#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "train/attention.h"
#include "train/bind.h"

namespace nb = nanobind;

namespace {

void expect(const char *name, size_t found, size_t wanted) {
    if (found != wanted) {
        throw std::invalid_argument(std::string("indexer: ") + name + " holds " + std::to_string(found) +
                                    " values, the shapes need " + std::to_string(wanted));
    }
}

IndexerShape shape_of(const F32 &q, const F32 &k, const F32 &w, int top_k) {
    if (q.ndim() != 4) throw std::invalid_argument("indexer: index_q must be [B, T, J, I]");
    if (top_k < 1) {
        throw std::invalid_argument("indexer: top_k is " + std::to_string(top_k) + "; it must be at least 1");
    }
    const IndexerShape s{(int)q.shape(0), (int)q.shape(1), (int)q.shape(2), (int)q.shape(3), top_k};
    const size_t rows = (size_t)s.batch * s.tokens;
    expect("index_k", k.size(), rows * s.width);
    expect("index_w", w.size(), rows * s.heads);
    return s;
}

void choose_keys(const F32 &q, const F32 &k, const F32 &w, int top_k, U8 &bits) {
    const IndexerShape s = shape_of(q, k, w, top_k);
    expect("bits", bits.size(), (size_t)s.batch * s.tokens * selection_bytes(s.tokens));
    indexer_select(s, q.data(), k.data(), w.data(), bits.data());
}

// Rows of scores [R, S], of which row r sees its first visible[r] entries.
void select_scores(const F32 &scores, const I64 &visible, int top_k, U8 &bits) {
    if (scores.ndim() != 2) throw std::invalid_argument("indexer: scores must be [rows, keys]");
    const int rows = (int)scores.shape(0), keys = (int)scores.shape(1), bytes = selection_bytes(keys);
    expect("visible", visible.size(), rows);
    expect("bits", bits.size(), (size_t)rows * bytes);
    std::vector<float> row(panels::round_up(keys, panels::VW));
    std::vector<int32_t> scratch(row.size());
    for (int r = 0; r < rows; ++r) {
        const int64_t n = visible.data()[r];
        if (n < 0 || n > keys) {
            throw std::invalid_argument("indexer: row " + std::to_string(r) + " sees " + std::to_string(n) + " of " +
                                        std::to_string(keys) + " keys");
        }
        std::copy(scores.data() + (size_t)r * keys, scores.data() + (size_t)(r + 1) * keys, row.begin());
        select_row(row.data(), (int)n, top_k, scratch.data(), bits.data() + (size_t)r * bytes, bytes);
    }
}

// Attention with the indexer's selection, loss and gradients in one pass; returns (loss, recall).
std::tuple<double, double> indexed(const F32 &q, const F32 &kv, const F32 &shared, int heads, int nope, int value,
                                   const F32 &index_q, const F32 &index_k, const F32 &index_w, int top_k,
                                   bool restricted, bool choose, U8 &bits, std::optional<F32> out,
                                   std::optional<F32> lse, F32 &d_q, F32 &d_k, F32 &d_w) {
    const IndexerShape s = shape_of(index_q, index_k, index_w, top_k);
    const size_t rows = (size_t)s.batch * s.tokens;
    if (q.ndim() != 4 || q.shape(0) != (size_t)s.batch || q.shape(1) != (size_t)s.tokens ||
        q.shape(2) != (size_t)heads || q.shape(3) < (size_t)nope) {
        throw std::invalid_argument("indexer: q must be [B, T, num_heads, nope + rope] with index_q's B and T");
    }
    const AttentionShape a{s.batch, s.tokens, heads, nope, (int)q.shape(3) - nope, value};
    expect("kv", kv.size(), rows * heads * a.block());
    expect("shared_key", shared.size(), rows * a.rope);
    expect("bits", bits.size(), rows * selection_bytes(s.tokens));
    if (out) expect("out", out->size(), rows * heads * value);
    if (lse) expect("lse", lse->size(), rows * heads);
    expect("d_q", d_q.size(), index_q.size());
    expect("d_k", d_k.size(), index_k.size());
    expect("d_w", d_w.size(), index_w.size());
    static thread_local panels::Scratch memory;
    Indexer indexer(s, ATTENTION_QUERIES, index_q.data(), index_k.data(), index_w.data());
    indexer.use(memory.get(Indexer::scratch(s, ATTENTION_QUERIES)));
    indexer.want_gradients(d_q.data(), d_k.data(), d_w.data());
    IndexerPass pass{indexer, choose ? bits.data() : nullptr, restricted};
    attention_forward(a, q.data(), kv.data(), shared.data(), choose ? nullptr : bits.data(), selection_bytes(s.tokens),
                      out ? out->data() : nullptr, lse ? lse->data() : nullptr, &pass);
    return {indexer.loss() / (double)rows, pass.chosen == 0 ? 1.0 : pass.recall / (double)pass.chosen};
}

}  // namespace

void bind_indexer(nb::module_ &m) {
    m.def("indexer_select", &choose_keys, nb::arg("q").noconvert(), nb::arg("k").noconvert(), nb::arg("w").noconvert(),
          nb::arg("top_k"), nb::arg("bits").noconvert(), NoGIL());
    m.def("indexer_select_scores", &select_scores, nb::arg("scores").noconvert(), nb::arg("visible").noconvert(),
          nb::arg("top_k"), nb::arg("bits").noconvert(), NoGIL());
    m.def("indexer_attention", &indexed, nb::arg("q").noconvert(), nb::arg("kv").noconvert(),
          nb::arg("shared").noconvert(), nb::arg("heads"), nb::arg("nope"), nb::arg("value"),
          nb::arg("index_q").noconvert(), nb::arg("index_k").noconvert(), nb::arg("index_w").noconvert(),
          nb::arg("top_k"), nb::arg("restricted"), nb::arg("choose"), nb::arg("bits").noconvert(),
          nb::arg("out").noconvert().none(), nb::arg("lse").noconvert().none(), nb::arg("d_q").noconvert(),
          nb::arg("d_k").noconvert(), nb::arg("d_w").noconvert(), NoGIL());
}
