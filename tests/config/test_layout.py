"""Which tensors a config stands for, beyond the totals of test_count."""

from gossamer.config import count, layout, presets


def test_the_names_decide_how_experts_are_stored():
    packed = presets.load("debug")
    names = [spec.name for spec in count.tensors(packed)]
    assert layout.with_storage_of(packed, names) is packed
    plain = layout.with_storage_of(packed, ["model.layers.1.block_sparse_moe.experts.0.w1.weight"])
    assert plain.quant
    assert plain.quant.expert_format == "bf16"
    assert not any(group.dtype == "U8" for group in layout.groups(plain))
    assert layout.with_storage_of(plain, names) == packed


def test_prefixes_follow_the_family():
    assert layout.text_prefix(presets.load("k3")) == "language_model."
    assert layout.text_prefix(presets.load("kimi-linear-48b")) == ""
