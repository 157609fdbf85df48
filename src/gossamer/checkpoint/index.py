"""Which shard holds which tensor: ``model.safetensors.index.json``."""

from __future__ import annotations

from typing import Final

from gossamer.checkpoint.errors import CheckpointError
from gossamer.checkpoint.header import LFS_MARK, load_json
from gossamer.checkpoint.source import Folder

INDEX_FILE: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"
SUFFIX: Final = ".safetensors"
MAX_INDEX_BYTES: Final = 1 << 30


def read_index(folder: Folder) -> dict[str, str] | None:
    """The weight map, tensor name to shard name; None for a folder without an index.

    Raises:
        CheckpointError: for an index that is not one, and for a shard name that is not a bare file name.
    """
    if INDEX_FILE not in folder.names():
        return None
    source = folder.open(INDEX_FILE)
    try:
        if source.size > MAX_INDEX_BYTES:
            raise CheckpointError(f"has {source.size} bytes, the limit is {MAX_INDEX_BYTES}", file=INDEX_FILE)
        raw = bytes(source.read(0, source.size))
    finally:
        source.close()
    if raw.startswith(LFS_MARK):
        raise CheckpointError("is a Git LFS pointer, not the index; run `git lfs pull`", file=INDEX_FILE)
    weight_map = load_json(raw, file=INDEX_FILE, what="index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError("weight_map must be a non-empty object", file=INDEX_FILE)
    checked: set[str] = set()
    for name, shard in weight_map.items():
        if isinstance(shard, str) and shard in checked:
            continue
        _check_shard_name(name, shard)
        checked.add(shard)
    return weight_map


def _check_shard_name(tensor: str, shard: object) -> None:
    if (
        not isinstance(shard, str)
        or not shard.isprintable()
        or set(shard) & set("/\\:")
        or shard.startswith(".")
        or not shard.endswith(SUFFIX)
    ):
        raise CheckpointError(
            f"weight_map sends it to {str(shard)[:200]!r}, which is not a bare {SUFFIX} file name",
            file=INDEX_FILE,
            tensor=tensor,
        )


def find_single(folder: Folder) -> str:
    """The one weight file of a folder without an index.

    Raises:
        CheckpointError: when there is none, or several.
    """
    files = [n for n in folder.names() if n.endswith(SUFFIX) and not n.startswith(".")]
    if SINGLE_FILE in files and len(files) == 1:
        return SINGLE_FILE
    if len(files) == 1:
        return files[0]
    if not files:
        raise CheckpointError(f"holds no {SUFFIX} file and no {INDEX_FILE}", file=folder.location)
    raise CheckpointError(
        f"holds {len(files)} {SUFFIX} files but no {INDEX_FILE} that says which belong together",
        file=folder.location,
    )
