"""Every kind of damage to one file is one clear error naming file and tensor."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.checkpoint import CheckpointError, CheckpointReader, CheckpointWriter
from gossamer.checkpoint.header import MAX_HEADER_BYTES


def pack(tree, data=b"", *, length=None):
    raw = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def tensor(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def read_everything(path):
    with CheckpointReader.open(path) as reader:
        return {name: bytes(reader.read(name)) for name in reader.names()}


DATA = bytes(range(8))
BYTE = b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
DAMAGE = {
    "empty file": (b"", "is truncated: 0 bytes"),
    "seven bytes": (b"\0" * 7, "is truncated: 7 bytes"),
    "header cut": (pack({"a": tensor()}, DATA)[:30], "is truncated: the header needs"),
    "header beyond file": (pack({}, length=1000), "is truncated: the header needs 1008"),
    "hostile header length": (pack({}, length=2**63), f"the limit is {MAX_HEADER_BYTES}"),
    "just over the limit": (pack({}, length=MAX_HEADER_BYTES + 1), f"the limit is {MAX_HEADER_BYTES}"),
    "LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
    "not JSON": (pack(b"{nonsense"), "not JSON"),
    "not UTF-8": (pack(b'{"\xff": 1}'), "not JSON"),
    "JSON list": (pack(b"[]"), "a JSON list, not an object"),
    "deep JSON": (pack(b"[" * 200_000), "nested too deeply|not JSON"),
    "huge integer": (pack(b'{"a":[' + b"9" * 5000 + b"]}"), "not JSON"),
    "duplicate tensor": (
        pack(b"{" + BYTE + b"," + BYTE + b"}", b"1"),
        "names 'a' twice",
    ),
    "duplicate field": (pack(b'{"a":{"dtype":"U8","dtype":"I8"}}'), "names 'dtype' twice"),
    "metadata not strings": (pack({"__metadata__": {"a": 1}}), "__metadata__ must map"),
    "metadata list": (pack({"__metadata__": []}), "__metadata__ must map"),
    "entry not an object": (pack({"a": 1}), "'a': the entry must have exactly"),
    "missing field": (pack({"a": {"dtype": "F32", "shape": [2]}}), "'a': the entry must have exactly"),
    "unknown field": (pack({"a": tensor(order="F")}, DATA), "'a': the entry must have exactly"),
    "unknown dtype": (pack({"a": tensor("F128")}, DATA), "'a': unknown dtype 'F128'"),
    "dtype not a string": (pack({"a": tensor(["F32"])}, DATA), "'a': unknown dtype"),
    "negative shape": (pack({"a": tensor(shape=(-2,))}, DATA), "'a': shape must be a list"),
    "float shape": (pack({"a": tensor(shape=(2.0,))}, DATA), "'a': shape must be a list"),
    "boolean shape": (pack({"a": tensor(shape=(True, 2))}, DATA), "'a': shape must be a list"),
    "shape not a list": (pack({"a": tensor() | {"shape": 2}}, DATA), "'a': shape must be a list"),
    "too many dimensions": (pack({"a": tensor(shape=[1] * 65)}, DATA), "'a': has 65 dimensions"),
    "product overflows": (pack({"a": tensor(shape=(2**62, 4))}, DATA), "'a': shape .* is too large"),
    "size overflows": (pack({"a": tensor(shape=(2**62,))}, DATA), "'a': shape .* is too large"),
    "dimension overflows": (pack({"a": tensor(shape=(2**64,))}, DATA), "'a': shape must be"),
    "half a byte": (pack({"a": tensor("F4", (3,), (0, 2))}, DATA[:2]), "'a': .* does not fill whole bytes"),
    "shape and bytes differ": (pack({"a": tensor(shape=(3,))}, DATA), "'a': .* needs 12 bytes"),
    "offsets run backwards": (pack({"a": tensor(offsets=(8, 0))}, DATA), "'a': data_offsets 8..0 run"),
    "negative offset": (pack({"a": tensor(offsets=(-8, 0))}, DATA), "'a': data_offsets must be two integers"),
    "three offsets": (pack({"a": tensor(offsets=(0, 4, 8))}, DATA), "'a': data_offsets must be two integers"),
    "offset beyond file": (pack({"a": tensor()}, DATA[:7]), "'a': ends at byte .*; the file is truncated"),
    "gap before": (pack({"a": tensor(offsets=(4, 12))}, DATA + DATA), "'a': leaves a gap of 4 bytes"),
    "gap between": (pack({"a": tensor(), "b": tensor(offsets=(9, 17))}, DATA * 3), "'b': leaves a gap of 1"),
    "overlap": (pack({"a": tensor(), "b": tensor(offsets=(4, 12))}, DATA * 2), "'b': overlaps .* by 4 bytes"),
    "trailing bytes": (pack({"a": tensor()}, DATA + b"x"), "has 1 bytes that belong to no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(tmp_path, kind):
    content, message = DAMAGE[kind]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_everything(path)
    assert caught.value.file == "model.safetensors"
    assert str(caught.value).startswith("model.safetensors: ")
    if "'a': " in message or "'b': " in message:
        assert caught.value.tensor in ("a", "b")


def test_a_file_without_tensors_is_legal(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(pack({"__metadata__": {"k": "v"}}))
    with CheckpointReader.open(tmp_path) as reader:
        assert reader.names() == []


def test_hostile_names_are_quoted(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack({"\x1b[31m\ud800" + "x" * 500: tensor("F128")}))
    with pytest.raises(CheckpointError) as caught:
        read_everything(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact")
    with CheckpointWriter(folder, metadata={"k": "v"}) as writer:
        writer.add("first.weight", np.arange(6, dtype=np.float32).reshape(2, 3), "F32")
        writer.add("second.weight", np.arange(5, dtype=np.uint8), "U8")
        writer.add("third", np.zeros((0, 4), np.int64), "I64")
    return (folder / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return intact(tmp_path_factory)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "model.safetensors"


def survives(path, content):
    """Reading either works or raises CheckpointError."""
    path.write_bytes(content)
    refused = []
    try:
        with CheckpointReader.open(path) as reader:
            for name in reader.names():
                info = reader.info(name)
                assert info.nbytes == len(reader.read(name))
                assert reader.array(name).shape == info.shape
    except CheckpointError as error:
        refused.append(error.file)
    assert refused in ([], [path.name])


@given(st.data())
def test_changed_bytes_never_crash(good, scratch, data):
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255) | st.sampled_from(list(b'{}[]",:0123456789-.eE \\')))
    survives(scratch, bytes(content))


@given(st.data())
def test_cut_inserted_and_repeated_bytes_never_crash(good, scratch, data):
    at = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(at, len(good)))
    survives(scratch, data.draw(st.sampled_from([good[:at], good[:at] + good[end:], good[:end] + good[at:]])))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "BF16", "F4", "BOOL", "C64", "X"]) | json_values,
        "shape": st.lists(st.integers(-1, 4) | st.sampled_from([2**31, 2**62, 2**63, 0]), max_size=4)
        | json_values,
        "data_offsets": st.lists(st.integers(-1, 40), min_size=2, max_size=2) | json_values,
    }
)


@given(
    st.dictionaries(st.text(max_size=6) | st.just("__metadata__"), entries | json_values, max_size=4),
    st.binary(max_size=48),
)
def test_strange_headers_never_crash(scratch, tree, data):
    survives(scratch, pack(tree, data))


@given(st.binary(max_size=200))
def test_random_bytes_never_crash(scratch, content):
    survives(scratch, content)
    survives(scratch, pack(content))
