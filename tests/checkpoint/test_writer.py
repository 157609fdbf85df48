import errno
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.checkpoint import CheckpointError, CheckpointReader, CheckpointWriter, writer
from gossamer.checkpoint.index import INDEX_FILE

DTYPES = {
    "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "F8_E8M0": np.uint8,
    "I64": np.int64, "BOOL": np.bool_, "F64": np.float64, "I8": np.int8, "C64": np.complex64,
}  # fmt: skip

characters = st.characters(exclude_categories=["Cs"])
names = st.text(characters, min_size=1, max_size=12).filter(lambda n: n != "__metadata__")
tensors = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda d: st.tuples(
        st.just(d), hnp.arrays(DTYPES[d], hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    )
)


def files(folder):
    return sorted(p.name for p in folder.iterdir())


@given(
    st.dictionaries(names, tensors, min_size=1, max_size=8),
    st.integers(1, 400),
    st.dictionaries(st.text(characters, max_size=5), st.text("ab€", max_size=5), max_size=2),
)
def test_round_trip(tmp_path_factory, content, shard_bytes, metadata):
    folder = tmp_path_factory.mktemp("round")
    with CheckpointWriter(folder, shard_bytes=shard_bytes, metadata=metadata) as out:
        for name, (dtype, array) in content.items():
            out.add(name, array, dtype)
    with CheckpointReader.open(folder) as reader:
        assert sorted(reader.names()) == sorted(content)
        assert reader.metadata == metadata
        for name, (dtype, array) in content.items():
            assert (reader.info(name).dtype, reader.info(name).shape) == (dtype, array.shape)
            assert reader.array(name).tobytes() == array.tobytes()
        assert len(list(reader.infos())) == len(content)
        for shard in reader.shards():
            data = (folder / shard).read_bytes()
            assert int.from_bytes(data[:8], "little") % 8 == 0
    assert all(not n.startswith(".") for n in files(folder))


def test_equal_input_gives_equal_bytes(tmp_path):
    for folder in ("a", "b"):
        with CheckpointWriter(tmp_path / folder, shard_bytes=50) as out:
            for name in ("z", "a", "m"):
                out.add(name, np.arange(10, dtype=np.float32), "F32")
    assert files(tmp_path / "a") == files(tmp_path / "b")
    for name in files(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_published_layout(tmp_path):
    with CheckpointWriter(tmp_path, shard_bytes=40) as out:
        out.add("b", np.zeros(10, np.float32), "F32")
        out.add("a", np.zeros(30, np.float32), "F32")  # larger than a shard: one of its own
        out.add("c", np.zeros(4, np.float32), "F32")
    assert files(tmp_path) == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)] + [INDEX_FILE]
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    assert index["metadata"] == {"total_size": 176}
    assert list(index["weight_map"].items()) == [
        ("a", "model-00002-of-00003.safetensors"),
        ("b", "model-00001-of-00003.safetensors"),
        ("c", "model-00003-of-00003.safetensors"),
    ]


def test_one_shard_needs_no_index(tmp_path):
    out = CheckpointWriter(tmp_path)
    out.add("a", np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)), "I32")
    assert out.finish() == tmp_path / "model.safetensors"
    assert files(tmp_path) == ["model.safetensors"]
    with CheckpointReader.open(tmp_path) as reader:
        assert reader.array("a").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert reader.metadata == {"format": "pt"}


@pytest.mark.parametrize(
    ("name", "array", "dtype", "message"),
    [
        ("a", np.zeros(2, np.float32), "BF16", "'a': BF16 is written from a native uint16 array, got <f4"),
        ("a", np.zeros(2, ">f4"), "F32", "got >f4"),
        ("a", np.zeros(2, object), "F32", r"got \|O"),
        ("a", np.zeros(2, np.float32), "F4", "cannot write dtype 'F4'"),
        ("", np.zeros(2, np.float32), "F32", "not a usable tensor name"),
        ("__metadata__", np.zeros(2, np.float32), "F32", "not a usable tensor name"),
        ("\ud800", np.zeros(2, np.float32), "F32", "not a usable tensor name"),
        ("twice", np.zeros(2, np.float32), "F32", "'twice': was already added"),
    ],
)
def test_what_cannot_be_written_is_named(tmp_path, name, array, dtype, message):
    out = CheckpointWriter(tmp_path)
    out.add("twice", np.zeros(1, np.uint8), "U8")
    with pytest.raises(CheckpointError, match=message):
        out.add(name, array, dtype)
    out.finish()  # a refused tensor does not spoil the rest
    with CheckpointReader.open(tmp_path) as reader:
        assert reader.names() == ["twice"]


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="shard_bytes must be positive"):
        CheckpointWriter(tmp_path, shard_bytes=0)
    with pytest.raises(CheckpointError, match="metadata must map"):
        CheckpointWriter(tmp_path, metadata={"a": 1})
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be created"):
        CheckpointWriter(tmp_path / "file")
    with pytest.raises(CheckpointError, match="no tensor was added"):
        CheckpointWriter(tmp_path).finish()


def test_finished_is_finished(tmp_path):
    out = CheckpointWriter(tmp_path)
    out.add("a", np.zeros(1, np.uint8), "U8")
    out.finish()
    with pytest.raises(CheckpointError, match="already finished"):
        out.add("b", np.zeros(1, np.uint8), "U8")
    with pytest.raises(CheckpointError, match="already finished"):
        out.finish()


def stopped(out):
    with out:
        out.add("a", np.zeros(8, np.uint8), "U8")
        out.add("b", np.zeros(8, np.uint8), "U8")
        raise RuntimeError("stop")


def test_an_exception_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="stop"):
        stopped(CheckpointWriter(tmp_path, shard_bytes=8))
    assert files(tmp_path) == []


class FullDisk:
    """A file on a disk with ``room`` bytes left, a list of one number that all files share."""

    def __init__(self, handle, room):
        self.handle, self.room = handle, room

    def write(self, data):
        self.room[0] -= memoryview(data).nbytes
        if self.room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.handle.write(data)

    def __getattr__(self, name):
        return getattr(self.handle, name)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.handle.close()


def two_shards(folder):
    with CheckpointWriter(folder, shard_bytes=150, overwrite=True) as out:
        out.add("a", np.ones(100, np.uint8), "U8")
        out.add("b", np.ones(100, np.uint8), "U8")


def test_full_disk_keeps_what_was_there(tmp_path, monkeypatch):
    """Whichever write is the one that fails: data, a shard, or the index."""
    with CheckpointWriter(tmp_path) as out:
        out.add("old", np.ones(8, np.uint8), "U8")
    before = (tmp_path / "model.safetensors").read_bytes()
    original = writer.Path.open
    for room in range(0, 700, 20):
        left = [room]

        def opened(path, mode="r", *args, left=left, **kwargs):
            handle = original(path, mode, *args, **kwargs)
            return FullDisk(handle, left) if "w" in mode else handle

        with monkeypatch.context() as patch:
            patch.setattr(writer.Path, "open", opened)
            with pytest.raises(CheckpointError, match="writing failed: No space"):
                two_shards(tmp_path)
        assert files(tmp_path) == ["model.safetensors"]
        assert (tmp_path / "model.safetensors").read_bytes() == before
    two_shards(tmp_path)
    assert len(files(tmp_path)) == 3


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_really_full(tmp_path, monkeypatch):
    monkeypatch.setattr(writer.Path, "open", lambda *_: open("/dev/full", "wb"))  # noqa: SIM115
    out = CheckpointWriter(tmp_path)
    with pytest.raises(CheckpointError, match="No space left"):
        out.add("a", np.zeros(1 << 20, np.uint8), "U8")
    assert files(tmp_path) == []


def test_overwriting_is_asked_for(tmp_path):
    with CheckpointWriter(tmp_path, shard_bytes=8) as out:
        for name in "abc":
            out.add(name, np.zeros(8, np.uint8), "U8")
    with pytest.raises(CheckpointError, match=r"already holds model-00001.*overwrite"):
        CheckpointWriter(tmp_path)
    with CheckpointWriter(tmp_path, overwrite=True) as out:
        out.add("new", np.ones(8, np.uint8), "U8")
    assert files(tmp_path) == ["model.safetensors"]
    with CheckpointWriter(tmp_path, shard_bytes=8, overwrite=True) as out:
        for name in "de":
            out.add(name, np.zeros(8, np.uint8), "U8")
    with CheckpointReader.open(tmp_path) as reader:
        assert reader.names() == ["d", "e"]
    assert len(files(tmp_path)) == 3


def test_a_failed_overwrite_keeps_the_old_checkpoint(tmp_path):
    with CheckpointWriter(tmp_path) as out:
        out.add("old", np.ones(8, np.uint8), "U8")
    with pytest.raises(RuntimeError, match="stop"):
        stopped(CheckpointWriter(tmp_path, shard_bytes=8, overwrite=True))
    with CheckpointReader.open(tmp_path) as reader:
        assert reader.names() == ["old"]
