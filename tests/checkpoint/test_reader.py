import json

import numpy as np
import pytest

from gossamer.checkpoint import CheckpointError, CheckpointReader, CheckpointWriter
from gossamer.checkpoint.index import INDEX_FILE


@pytest.fixture
def sharded(tmp_path):
    """Three shards of two tensors each."""
    with CheckpointWriter(tmp_path, shard_bytes=64, metadata={"k": "v"}) as writer:
        for i in range(6):
            writer.add(f"layers.{i}.weight", np.full((2, 4), i, np.float32), "F32")
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    return tmp_path


def edit_index(folder, change):
    path = folder / INDEX_FILE
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))


def read_all(folder):
    with CheckpointReader.open(folder) as reader:
        return {info.name: reader.array(info.name) for info in reader.infos()}


def test_reads_across_shards(sharded):
    with CheckpointReader.open(sharded) as reader:
        assert reader.names() == [f"layers.{i}.weight" for i in range(6)]
        assert len(reader) == 6
        assert "layers.3.weight" in reader
        assert reader.metadata == {"k": "v"}
        info = reader.info("layers.3.weight")
        assert (info.dtype, info.shape, info.file, info.nbytes) == (
            "F32",
            (2, 4),
            "model-00002-of-00003.safetensors",
            32,
        )
        whole = (sharded / info.file).read_bytes()
        assert whole[info.begin : info.end] == bytes(reader.read("layers.3.weight"))
        assert (reader.array("layers.3.weight") == 3).all()


def test_opens_by_index_and_single_file(sharded):
    with CheckpointReader.open(sharded / INDEX_FILE) as reader:
        assert len(reader) == 6
    with CheckpointReader.open(sharded / "model-00002-of-00003.safetensors") as reader:
        assert reader.names() == ["layers.2.weight", "layers.3.weight"]


def test_headers_are_read_when_needed(sharded):
    """A damaged shard does not stop the others, and is reported when it is touched."""
    (sharded / "model-00003-of-00003.safetensors").write_bytes(b"junk")
    with CheckpointReader.open(sharded) as reader:
        assert (reader.array("layers.0.weight") == 0).all()
        for _ in range(2):
            with pytest.raises(CheckpointError, match=r"model-00003-of-00003.safetensors: is truncated"):
                reader.read("layers.5.weight")


def test_byte_ranges(sharded):
    with CheckpointReader.open(sharded) as reader:
        whole = bytes(reader.read("layers.1.weight"))
        assert bytes(reader.read("layers.1.weight", (4, 12))) == whole[4:12]
        assert bytes(reader.read("layers.1.weight", (32, 32))) == b""
        for bad in [(-1, 4), (0, 33), (9, 8)]:
            with pytest.raises(
                CheckpointError, match=r"'layers.1.weight': byte range .* outside its 32 bytes"
            ):
                reader.read("layers.1.weight", bad)


def test_arrays_are_read_only_and_outlive_the_reader(sharded):
    with CheckpointReader.open(sharded) as reader:
        array = reader.array("layers.4.weight")
    assert (array == 4).all()
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


def test_unknown_tensor(sharded):
    with (
        CheckpointReader.open(sharded) as reader,
        pytest.raises(CheckpointError, match="'nope': no such tensor"),
    ):
        reader.info("nope")


def test_unaligned_data_is_copied(tmp_path):
    with CheckpointWriter(tmp_path) as writer:
        writer.add("odd", np.arange(3, dtype=np.uint8), "U8")
        writer.add("values", np.arange(4, dtype=np.float64), "F64")
    with CheckpointReader.open(tmp_path) as reader:
        array = reader.array("values")
        assert array.flags.aligned
        assert not array.flags.writeable
        assert array.tolist() == [0, 1, 2, 3]


def test_missing_shard(sharded):
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"model-00002-of-00003.safetensors: is missing; .* 2 tensor.*'layers.2"
    ):
        CheckpointReader.open(sharded)


def test_tensor_the_index_promises_in_vain(sharded):
    edit_index(sharded, lambda t: t["weight_map"].update(ghost="model-00001-of-00003.safetensors"))
    with pytest.raises(
        CheckpointError, match=r"model-00001-of-00003.safetensors: tensor 'ghost': .* says it is here"
    ):
        read_all(sharded)


def test_tensor_the_index_does_not_know(sharded):
    edit_index(sharded, lambda t: t["weight_map"].pop("layers.1.weight"))
    with pytest.raises(CheckpointError, match=r"'layers.1.weight': is here but not in"):
        read_all(sharded)


def test_tensor_in_two_shards(sharded):
    first, second = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"
    (sharded / second).write_bytes((sharded / first).read_bytes())
    edit_index(sharded, lambda t: [t["weight_map"].pop(f"layers.{i}.weight") for i in (2, 3)])
    edit_index(sharded, lambda t: t["weight_map"].update({"layers.1.weight": second}))
    with pytest.raises(
        CheckpointError, match=r"'layers.1.weight': is here too, while .* keeps it in model-00002"
    ):
        read_all(sharded)


@pytest.mark.parametrize(
    "shard",
    ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", "c:\\x.safetensors",
     "x\0.safetensors", ".hidden.safetensors", "model.bin", "", 7, None, ["model.safetensors"]],
)  # fmt: skip
def test_index_cannot_point_elsewhere(sharded, shard):
    edit_index(sharded, lambda t: t["weight_map"].update({"layers.0.weight": shard}))
    with pytest.raises(CheckpointError, match=r"tensor 'layers.0.weight': weight_map sends it to") as caught:
        CheckpointReader.open(sharded)
    assert caught.value.tensor == "layers.0.weight"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("[]", "a JSON list"),
        ("{}", "weight_map must be a non-empty object"),
        ('{"weight_map": {}}', "weight_map must be a non-empty object"),
        ('{"weight_map": []}', "weight_map must be a non-empty object"),
        ('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "names 'a' twice"),
        ("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
)
def test_damaged_index(sharded, content, message):
    (sharded / INDEX_FILE).write_text(content)
    with pytest.raises(CheckpointError, match=rf"index\.json: .*{message}"):
        CheckpointReader.open(sharded)


def test_folders_that_are_no_checkpoint(tmp_path, sharded):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CheckpointError, match=r"holds no \.safetensors file"):
        CheckpointReader.open(empty)
    with pytest.raises(CheckpointError, match="does not exist"):
        CheckpointReader.open(tmp_path / "nowhere")
    (sharded / INDEX_FILE).unlink()
    with pytest.raises(CheckpointError, match=r"holds 3 \.safetensors files but no"):
        CheckpointReader.open(sharded)


def test_another_store_of_bytes(sharded):
    """The seam: any folder of byte sources serves, and a short answer is caught."""

    class Memory:
        def __init__(self, content, lost=0):
            self.content, self.size, self.lost = content, len(content), lost

        def read(self, begin, end):
            return self.content[begin : end - (self.lost if begin > 1000 or end - begin == 32 else 0)]

        def close(self):
            self.size = -1

    class Store:
        location = "memory"

        def __init__(self, lost=0):
            self.lost = lost

        def names(self):
            return sorted(p.name for p in sharded.iterdir())

        def open(self, name):
            return Memory((sharded / name).read_bytes(), self.lost)

    reader = CheckpointReader(Store())
    assert (reader.array("layers.5.weight") == 5).all()
    with pytest.raises(CheckpointError, match=r"'layers.5.weight': got 31 of 32 bytes"):
        CheckpointReader(Store(lost=1)).read("layers.5.weight")
