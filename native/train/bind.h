// What the module is put together from: one function per operator, each in its own <operator>_bind.cpp.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

using F32 = nanobind::ndarray<float, nanobind::c_contig, nanobind::device::cpu>;
using I64 = nanobind::ndarray<int64_t, nanobind::c_contig, nanobind::device::cpu>;
using I32 = nanobind::ndarray<int32_t, nanobind::c_contig, nanobind::device::cpu>;
using U8 = nanobind::ndarray<uint8_t, nanobind::c_contig, nanobind::device::cpu>;
using NoGIL = nanobind::call_guard<nanobind::gil_scoped_release>;

void bind_gemm(nanobind::module_ &m);
void bind_pointwise(nanobind::module_ &m);
void bind_kda(nanobind::module_ &m);
void bind_attention(nanobind::module_ &m);
void bind_indexer(nanobind::module_ &m);
void bind_moe(nanobind::module_ &m);
void bind_head(nanobind::module_ &m);
void bind_optimizer(nanobind::module_ &m);
void bind_model(nanobind::module_ &m);
void bind_product(nanobind::module_ &m);
void bind_mx(nanobind::module_ &m);
