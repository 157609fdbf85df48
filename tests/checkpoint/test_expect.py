import dataclasses

import numpy as np
import pytest

from gossamer.checkpoint import CheckpointError, CheckpointReader, CheckpointWriter
from gossamer.checkpoint.expect import check, require
from gossamer.config import count, presets

NUMPY = {"BF16": np.uint16, "F32": np.float32, "U8": np.uint8}


@pytest.fixture(scope="module")
def specs():
    return list(count.tensors(presets.load("debug")))


def write(folder, specs):
    with CheckpointWriter(folder, shard_bytes=100_000) as out:
        for spec in specs:
            out.add(spec.name, np.zeros(spec.shape, NUMPY[spec.dtype]), spec.dtype)
    return CheckpointReader.open(folder)


def named(specs, ending):
    return next(s for s in specs if s.name.endswith(ending))


def test_the_configuration_itself_passes(tmp_path, specs):
    with write(tmp_path, specs) as reader:
        assert len(reader) == len(specs) > 100
        assert check(reader, specs) == []
        require(reader, specs)


def test_every_kind_of_problem_is_named(tmp_path, specs):
    lost, retyped, reshaped = (
        named(specs, e)
        for e in ("experts.3.w2.weight_packed", "q_a_proj.weight", "experts.1.w1.weight_scale")
    )
    changed = {
        lost.name: [],
        retyped.name: [dataclasses.replace(retyped, dtype="F32")],
        reshaped.name: [dataclasses.replace(reshaped, shape=(*reshaped.shape, 1))],
    }
    stored = [new for s in specs for new in changed.get(s.name, [s])]
    stored.append(dataclasses.replace(lost, name="stray"))
    with write(tmp_path, stored) as reader:
        problems = {p.kind: p for p in check(reader, specs)}
        assert {k: p.name for k, p in problems.items()} == {
            "missing": lost.name,
            "dtype": retyped.name,
            "shape": reshaped.name,
            "extra": "stray",
        }
        assert (problems["dtype"].expected, problems["dtype"].found) == ("BF16", "F32")
        assert problems["shape"].file in reader.shards()
        assert all(p.name in str(p) for p in problems.values())
        with pytest.raises(CheckpointError, match="and 3 more") as caught:
            require(reader, specs)
        assert caught.value.tensor in {p.name for p in problems.values()}


def test_extra_tensors_can_be_allowed(tmp_path, specs):
    with write(tmp_path, [*specs, dataclasses.replace(specs[0], name="stray")]) as reader:
        require(reader, specs, allow_extra=True)
        with pytest.raises(CheckpointError, match="'stray': is not part of this configuration"):
            require(reader, specs)


@pytest.mark.parametrize("ending", ["q_conv1d.weight", "o_norm.weight", "A_log"])
def test_precision_no_source_settles_may_be_either(tmp_path, specs, ending):
    spec = named(specs, ending)
    for dtype in ("F32", "BF16"):
        stored = [dataclasses.replace(s, dtype=dtype) if s.name == spec.name else s for s in specs]
        with write(tmp_path / dtype, stored) as reader:
            assert check(reader, specs) == []
    stored = [dataclasses.replace(s, dtype="U8") if s.name == spec.name else s for s in specs]
    with write(tmp_path / "U8", stored) as reader:
        assert [p.expected for p in check(reader, specs)] == ["F32 or BF16"]


def test_optional_tensors_may_be_absent(tmp_path, specs):
    optional = [dataclasses.replace(s, optional=s is specs[2]) for s in specs]
    with write(tmp_path, [s for s in specs if s is not specs[2]]) as reader:
        assert check(reader, optional) == []
        assert [p.kind for p in check(reader, specs)] == ["missing"]
