"""Golden sizes.  The K3 and Kimi-Linear totals are those of the released files' own inventories."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest

from gossamer.config import count, layout, presets

K3_TENSORS = 497_220
SMALL = ("nano", "debug")


def test_k3_sizes():
    sums = count.summary(presets.load("k3"))
    assert sums.is_settled
    assert sums.num_tensors_high == K3_TENSORS
    assert sums.num_parameters == 2_779_931_837_184
    assert sums.num_active_parameters == 104_189_614_848
    assert sums.component("vision_tower").num_parameters == 401_214_464
    assert sums.num_bytes == 1_560_860_324_864
    assert sums.num_packed_bytes == 1_446_456_066_048
    assert sums.latent_bytes_per_token == {"bf16": 27_648, "fp8": 13_824, "fp8_ds_mla": 15_744}
    assert sums.indexer_bytes_per_token == {}
    assert sums.state_bytes_per_sequence == {"f32": 449_372_160, "bf16": 232_316_928}


def test_k3_pro_is_k3_plus_indexers_of_unsettled_count():
    sums = count.summary(presets.load("k3.1-pro"))
    assert (sums.num_tensors_low, sums.num_tensors_high) == (497_316, 497_340)
    assert sums.unsettled == ("language_model.model.layers.{layer}.self_attn.indexer.k_norm.bias",)
    assert sums.component("indexer").num_parameters == 178_526_208
    assert sums.num_parameters == 2_779_931_837_184 + 178_526_208
    assert round(sums.num_parameters / 1e9, 2) == 2780.11
    assert round(sums.num_active_parameters / 1e9, 2) == 104.37
    assert round(sums.num_bytes / 1e12, 4) == 1.5612
    assert sums.latent_bytes_per_token["bf16"] == 27_648
    assert sums.indexer_bytes_per_token == {"bf16": 6_144, "fp8": 3_168, "mxfp4": 1_632}
    assert sums.state_bytes_per_sequence["f32"] == 449_372_160


def test_kimi_linear_sizes():
    sums = count.summary(presets.load("kimi-linear-48b"))
    assert sums.num_tensors_high == 20_493
    assert sums.num_parameters == 49_122_681_728
    assert round(sums.num_active_parameters / 1e9, 1) == 3.1


@pytest.mark.parametrize(
    ("component", "parameters"),
    [
        ("embedding", 1_174_405_120),
        ("kda", 30_618_088_704),
        ("mla", 5_572_706_304),
        ("attn_res", 2_680_832),
        ("dense_ffn", 726_663_168),
        ("router", 590_955_008),
        ("latent_proj", 4_727_310_336),
        ("shared_experts", 12_155_092_992),
        ("routed_experts", 2_722_740_830_208),
        ("projector", 46_144_512),
    ],
)
def test_k3_components(component, parameters):
    assert count.summary(presets.load("k3")).component(component).num_parameters == parameters


def test_k3_tensor_counts_by_part():
    counted = Counter(
        group.component for group in layout.groups(presets.load("k3")) for _ in range(group.num_tensors)
    )
    assert counted["kda"] == 69 * 14
    assert counted["mla"] == 24 * 8
    assert counted["norms"] + counted["attn_res"] == 93 * 6 + 3
    assert counted["router"] + counted["latent_proj"] + counted["shared_experts"] == 92 * 8
    assert counted["routed_experts"] == 82_432 * 6
    assert counted["vision_tower"] == 165
    assert counted["projector"] == 3


@pytest.mark.parametrize("name", ["kimi-linear-48b", *SMALL])
def test_enumeration_agrees_with_the_grouped_sums(name):
    config = presets.load(name)
    sums, found = count.summary(config), list(count.tensors(config))
    assert len({spec.name for spec in found}) == len(found) == sums.num_tensors_high
    assert sum(spec.num_bytes for spec in found) == sums.num_bytes
    assert sum(spec.num_parameters for spec in found) == sums.num_parameters
    for row in sums.components:
        assert sum(spec.component == row.component for spec in found) == row.num_tensors


@pytest.mark.slow
def test_k3_enumeration_matches_the_released_element_count():
    found = list(count.tensors(presets.load("k3")))
    assert len(found) == len({spec.name for spec in found}) == K3_TENSORS
    # Elements as a safetensors index counts them: packed bytes and scale bytes once each.
    assert sum(math.prod(spec.shape) for spec in found) == 1_503_647_073_024


@pytest.mark.parametrize(
    ("model", "name", "shape", "dtype"),
    [
        ("k3", "language_model.model.layers.0.self_attn.A_log", (128,), "F32"),
        ("k3", "language_model.model.layers.0.self_attn.q_conv1d.weight", (12288, 1, 4), "F32"),
        ("k3", "language_model.model.layers.0.mlp.down_proj.weight", (7168, 33792), "BF16"),
        ("k3", "language_model.model.layers.92.self_attn.kv_a_proj_with_mqa.weight", (576, 7168), "BF16"),
        ("k3", "language_model.model.layers.92.self_attn.g_proj.weight", (12288, 7168), "BF16"),
        (
            "k3",
            "language_model.model.layers.1.block_sparse_moe.experts.895.w2.weight_packed",
            (3584, 1536),
            "U8",
        ),
        (
            "k3",
            "language_model.model.layers.1.block_sparse_moe.experts.895.w1.weight_scale",
            (3072, 112),
            "U8",
        ),
        ("k3", "vision_tower.encoder.blocks.26.wqkv.weight", (4608, 1024), "BF16"),
        ("k3.1-pro", "language_model.model.layers.3.self_attn.indexer.wq_b.weight", (4096, 1536), "BF16"),
        ("k3.1-pro", "language_model.model.layers.92.self_attn.indexer.wk.weight", (128, 7168), "BF16"),
        ("kimi-linear-48b", "model.layers.0.self_attn.A_log", (1, 1, 32, 1), "F32"),
        ("kimi-linear-48b", "model.layers.0.self_attn.o_norm.weight", (128,), "BF16"),
        ("kimi-linear-48b", "model.layers.0.self_attn.g_b_proj.weight", (4096, 128), "BF16"),
        ("kimi-linear-48b", "model.layers.26.self_attn.q_proj.weight", (6144, 2304), "BF16"),
        ("kimi-linear-48b", "model.layers.1.block_sparse_moe.gate.e_score_correction_bias", (256,), "BF16"),
        ("kimi-linear-48b", "model.layers.26.block_sparse_moe.experts.255.w2.weight", (2304, 1024), "BF16"),
        ("kimi-linear-48b", "lm_head.weight", (163840, 2304), "BF16"),
    ],
)
def test_published_tensors(model, name, shape, dtype):
    # Through the groups: spelling half a million names out for each line would take a second each.
    found = [group for group in layout.groups(presets.load(model)) if stands_for(group, name)]
    assert [(group.shape, group.dtype) for group in found] == [(shape, dtype)]


def stands_for(group: layout.TensorGroup, name: str) -> bool:
    pattern = re.escape(group.pattern)
    pattern = pattern.replace(r"\{layer\}", r"(?P<layer>\d+)").replace(r"\{expert\}", r"(?P<expert>\d+)")
    match = re.fullmatch(pattern, name)
    if match is None:
        return False
    numbers = {key: int(value) for key, value in match.groupdict().items()}
    return (group.layers is None or numbers["layer"] in group.layers) and (
        group.num_experts is None or numbers["expert"] < group.num_experts
    )


def test_the_tensors_of_one_expert_stand_together():
    names = [
        spec.name for spec in count.tensors(presets.load("debug")) if spec.expert == 3 and spec.layer == 1
    ]
    every = [spec.name for spec in count.tensors(presets.load("debug"))]
    start = every.index(names[0])
    assert every[start : start + 6] == names


def test_k_norm_bias_settles_the_count():
    config = presets.load("k3.1-pro")
    assert config.dsa
    for bias, tensors in ((True, 497_340), (False, 497_316)):
        sums = count.summary(replace(config, dsa=replace(config.dsa, k_norm_bias=bias)))
        assert sums.num_tensors_low == sums.num_tensors_high == tensors
        assert sums.unsettled == ()


def test_flops_by_hand_at_the_debug_shape():
    config = presets.load("debug")
    flops = count.flops_per_token(config, context=100)
    # 3 KDA layers of 2 heads x 32: 7 per state value, 2 x 4 taps on each of 3 x 64 channels.
    assert flops.kda == 3 * (7 * 2 * 32 * 32 + 3 * 64 * 8)
    # 2 DSA layers: 16 attended tokens of 100; 2 heads; latent 32 twice plus rope 16.
    assert flops.attention == 2 * (2 * 2 * 16 * (2 * 32 + 16))
    assert flops.indexer == 2 * (2 * 2 * 100 * (16 + 1))
    assert flops.total == flops.linear + flops.attention + flops.indexer + flops.kda
    expanded = count.flops_per_token(config, context=100, is_absorbed=False)
    assert expanded.attention == 2 * (2 * 2 * 16 * (16 + 16 + 16))
    assert expanded.linear == flops.linear


def test_linear_flops_are_twice_the_matrices_a_token_meets():
    config = presets.load("debug")
    used = 0
    for spec in count.tensors(config):
        is_matrix = len(spec.shape) == 2 and spec.component != "embedding"
        if is_matrix and (spec.expert is None or spec.expert < config.moe.experts_per_token):
            used += spec.num_parameters
    assert count.flops_per_token(config, context=1).linear == 2 * used


def test_short_contexts_attend_to_everything():
    dsa = presets.load("nano")
    dense = replace(dsa, dsa=None)
    for context in (1, 128):
        assert (
            count.flops_per_token(dsa, context=context).attention
            == count.flops_per_token(dense, context=context).attention
        )
    assert (
        count.flops_per_token(dsa, context=129).attention
        < count.flops_per_token(dense, context=129).attention
    )


def test_tied_head_and_bf16_experts_change_the_inventory():
    config = presets.load("debug")
    tied = {spec.name for spec in count.tensors(replace(config, tie_word_embeddings=True))}
    assert "language_model.lm_head.weight" not in tied
    plain = replace(config, quant=None)
    names = {spec.name for spec in count.tensors(plain)}
    assert "language_model.model.layers.1.block_sparse_moe.experts.0.w1.weight" in names
    assert not any("packed" in name for name in names)
    assert count.summary(plain).num_parameters == count.summary(config).num_parameters


@pytest.mark.parametrize("name", SMALL)
def test_small_presets_have_every_mechanism(name):
    config = presets.load(name)
    present = {row.component for row in count.summary(config).components}
    assert present == set(layout.COMPONENTS) - {"vision_tower", "projector"}
