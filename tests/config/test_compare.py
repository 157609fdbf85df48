"""A folder's headers against its config."""

from dataclasses import replace

from gossamer.config import compare, count, presets


def headers(config):
    return [compare.Found(name=s.name, dtype=s.dtype, shape=s.shape) for s in count.tensors(config)]


def test_a_complete_folder_has_no_differences():
    config = presets.load("debug")
    result = compare.compare(config, headers(config))
    assert result.is_complete
    assert result == compare.Comparison(missing=(), extra=(), differing=())


def test_missing_extra_and_misshapen_tensors_are_named():
    config = presets.load("debug")
    found = headers(config)
    lost, bent, cast = found[3], found[10], found[20]
    changed = [replace(bent, shape=(*bent.shape, 1)), replace(cast, dtype="F16")]
    stray = compare.Found(name="stray", dtype="F32", shape=(1,))
    kept = [tensor for tensor in found if tensor not in (lost, bent, cast)]
    result = compare.compare(config, [*kept, *changed, stray])
    assert result.missing == (lost.name,)
    assert result.extra == ("stray",)
    assert {item.name: item.is_misshapen for item in result.differing} == {bent.name: True, cast.name: False}
    assert not result.is_complete


def test_unsettled_tensors_may_be_absent_but_count_when_present():
    config = presets.load("debug")
    assert config.dsa
    config = replace(config, dsa=replace(config.dsa, k_norm_bias=None))
    found = headers(config)
    without = [tensor for tensor in found if not tensor.name.endswith("k_norm.bias")]
    assert len(found) - len(without) == 2
    assert compare.compare(config, found).is_complete
    assert compare.compare(config, without).is_complete


def test_the_names_decide_how_experts_are_stored():
    packed = presets.load("debug")
    plain = compare.with_storage_of(packed, ["model.layers.1.block_sparse_moe.experts.0.w1.weight"])
    assert plain.quant
    assert plain.quant.expert_format == "bf16"
    assert compare.compare(plain, headers(plain)).is_complete
    assert compare.with_storage_of(plain, [s.name for s in count.tensors(packed)]).quant == packed.quant
    assert compare.with_storage_of(packed, [s.name for s in count.tensors(packed)]) is packed
