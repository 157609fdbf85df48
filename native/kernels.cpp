// The kernel module of one instruction set; GOSSAMER_MODULE is its name, given by the build.
#include <nanobind/nanobind.h>

#include "train/bind.h"

#define GOSSAMER_EXPAND(name, variable) NB_MODULE(name, variable)

GOSSAMER_EXPAND(GOSSAMER_MODULE, m) {
    m.doc() = "Kernels for one instruction set.";
    // A model that lives until the interpreter ends is no leak.
    nanobind::set_leak_warnings(false);
    auto infer = m.def_submodule("infer", "The forward pass of serving, on a pool of threads.");
    bind_model(infer);
    bind_product(infer);
    auto mx = m.def_submodule("mx", "MX encode and decode, one thread each.");
    bind_mx(mx);
    auto train = m.def_submodule("train", "Forward and backward kernels of training, one thread each.");
    bind_gemm(train);
    bind_pointwise(train);
    bind_kda(train);
    bind_attention(train);
    bind_indexer(train);
    bind_moe(train);
    bind_head(train);
    bind_optimizer(train);
}
