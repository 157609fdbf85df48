"""The safetensors library reads what we write, and we read what it writes."""

import numpy as np
import pytest

from gossamer.checkpoint import CheckpointReader, CheckpointWriter
from gossamer.checkpoint.bf16 import f32_to_bf16

pytestmark = pytest.mark.oracle


def arrays():
    rng = np.random.default_rng(0)
    print("seed 0")
    return {
        "a.weight": (rng.standard_normal((5, 7)).astype(np.float32), "F32"),
        "odd": (rng.integers(0, 255, 3, dtype=np.uint8), "U8"),
        "b.weight": (f32_to_bf16(rng.standard_normal((4, 6)).astype(np.float32)), "BF16"),
        "half": (rng.standard_normal((2, 2, 2)).astype(np.float16), "F16"),
        "none": (np.zeros((0, 3), np.int64), "I64"),
        "one": (np.array(7, np.int32), "I32"),
    }


def test_the_library_reads_ours(ask, tmp_path):
    content = arrays()
    with CheckpointWriter(tmp_path) as out:
        for name, (array, dtype) in content.items():
            out.add(name, array, dtype)
    theirs = ask("mx", "mx_worker.py", "safetensors_read", {}, path=str(tmp_path / "model.safetensors"))
    assert set(theirs) == set(content)
    for name, (array, _) in content.items():
        assert theirs[name].shape == array.shape
        assert theirs[name].tobytes() == array.tobytes()


def test_we_read_the_librarys(ask, tmp_path):
    content = {name: array for name, (array, dtype) in arrays().items() if dtype != "BF16"}
    path = tmp_path / "theirs.safetensors"
    ask("mx", "mx_worker.py", "safetensors_write", content, path=str(path))
    with CheckpointReader.open(path) as reader:
        assert set(reader.names()) == set(content)
        assert reader.metadata == {"by": "safetensors"}
        for name, array in content.items():
            assert reader.array(name).tobytes() == array.tobytes()
