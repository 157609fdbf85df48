"""The header of one safetensors file: parsed strictly, so that damage is named before any byte is used.

Layout: 8 bytes little-endian header length N, N bytes of JSON (may end in spaces), then the data.
The JSON maps a tensor name to dtype, shape and data_offsets (half-open, relative to the data); the
tensors cover the data without gap or overlap.  ``__metadata__`` may map strings to strings.
Source: the safetensors format description.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from gossamer.checkpoint.errors import CheckpointError

MAX_HEADER_BYTES: Final = 100_000_000
MAX_RANK: Final = 64  # numpy's limit, and far above any weight
_MAX_SIZE: Final = (1 << 63) - 1
LFS_MARK: Final = b"version https://git-lfs.github.com/spec/"

DTYPE_BITS: Final[dict[str, int]] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "U16": 16,
    "I16": 16,
    "F16": 16,
    "BF16": 16,
    "U32": 32,
    "I32": 32,
    "F32": 32,
    "U64": 64,
    "I64": 64,
    "F64": 64,
    "C64": 64,
}


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """Where one tensor lies and how to read it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    """The shard's file name."""
    begin: int
    """First byte, counted from the start of the file."""
    end: int
    """One past the last byte."""

    @property
    def nbytes(self) -> int:
        """Size on disk."""
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class Header:
    """Every tensor of one file, in file order, and its free-form metadata."""

    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]


def header_size(prefix: bytes, *, file: str, file_bytes: int) -> int:
    """The length of the JSON part, from the first bytes (at least 8, better 64) of the file.

    Raises:
        CheckpointError: for a file too short, a Git LFS pointer, or a length that cannot be true.
    """
    if prefix.startswith(LFS_MARK):
        raise CheckpointError("is a Git LFS pointer, not the weights; run `git lfs pull`", file=file)
    if len(prefix) < 8:
        raise CheckpointError(f"is truncated: {file_bytes} bytes, a header needs at least 8", file=file)
    size = int.from_bytes(prefix[:8], "little")
    if size > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"claims a header of {size} bytes, the limit is {MAX_HEADER_BYTES}; not a safetensors file?",
            file=file,
        )
    if 8 + size > file_bytes:
        raise CheckpointError(
            f"is truncated: the header needs {8 + size} bytes, the file has {file_bytes}", file=file
        )
    return size


def parse(raw: bytes, *, file: str, file_bytes: int) -> Header:
    """Parse the JSON part of a file of ``file_bytes`` bytes.

    Raises:
        CheckpointError: naming the file and the tensor for anything that breaks the format.
    """
    tree = load_json(raw, file=file, what="header")
    metadata = _metadata(tree.pop("__metadata__", {}), file)
    start = 8 + len(raw)
    tensors = [_tensor(name, entry, file, start) for name, entry in tree.items()]
    tensors.sort(key=lambda t: (t.begin, t.end))
    _check_cover(tensors, file, start, file_bytes)
    return Header(tensors={t.name: t for t in tensors}, metadata=metadata)


def load_json(raw: bytes, *, file: str, what: str) -> dict[str, Any]:
    """Decode a JSON object in which no key may appear twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))
            raise CheckpointError(f"the {what} names {twice[:200]!r} twice", file=file)
        return result

    try:
        tree = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except CheckpointError:
        raise
    except RecursionError:
        raise CheckpointError(f"the {what} is nested too deeply", file=file) from None
    except ValueError as error:
        raise CheckpointError(f"the {what} is not JSON: {str(error)[:200]}", file=file) from None
    if not isinstance(tree, dict):
        raise CheckpointError(f"the {what} is a JSON {type(tree).__name__}, not an object", file=file)
    return tree


def _metadata(tree: Any, file: str) -> dict[str, str]:
    if not isinstance(tree, dict) or not all(isinstance(v, str) for v in tree.values()):
        raise CheckpointError("__metadata__ must map strings to strings", file=file)
    return tree


def _tensor(name: str, entry: Any, file: str, start: int) -> TensorInfo:
    def fail(problem: str) -> CheckpointError:
        return CheckpointError(problem, file=file, tensor=name)

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise fail("the entry must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise fail(f"unknown dtype {str(dtype)[:40]!r}; known are {', '.join(DTYPE_BITS)}")
    if not isinstance(shape, list) or not all(_is_size(n) for n in shape):
        raise fail(f"shape must be a list of integers >= 0, got {str(shape)[:80]}")
    if len(shape) > MAX_RANK:
        raise fail(f"has {len(shape)} dimensions, the limit is {MAX_RANK}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_size(n) for n in offsets):
        raise fail(f"data_offsets must be two integers >= 0, got {str(offsets)[:80]}")
    begin, end = offsets
    if begin > end:
        raise fail(f"data_offsets {begin}..{end} run backwards")
    needed = nbytes(dtype, tuple(shape))
    if needed is None:
        raise fail(f"shape {shape} of {dtype} is too large or does not fill whole bytes")
    if end - begin != needed:
        raise fail(f"shape {shape} of {dtype} needs {needed} bytes, data_offsets give {end - begin}")
    return TensorInfo(
        name=name, dtype=dtype, shape=tuple(shape), file=file, begin=start + begin, end=start + end
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_SIZE


def nbytes(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Bytes of a tensor; None when they overflow 63 bits or are no whole number."""
    count = 0 if 0 in shape else 1
    for n in shape:
        count *= n
        if count > _MAX_SIZE:
            return None
    bits = count * DTYPE_BITS[dtype]
    return None if bits % 8 or bits // 8 > _MAX_SIZE else bits // 8


def _check_cover(tensors: list[TensorInfo], file: str, start: int, file_bytes: int) -> None:
    position = start
    for t in tensors:
        if t.begin < position:
            raise CheckpointError(
                f"overlaps the tensor before it by {position - t.begin} bytes", file=file, tensor=t.name
            )
        if t.begin > position:
            raise CheckpointError(
                f"leaves a gap of {t.begin - position} bytes before it", file=file, tensor=t.name
            )
        position = t.end
        if position > file_bytes:
            raise CheckpointError(
                f"ends at byte {t.end} of a file of {file_bytes} bytes; the file is truncated",
                file=file,
                tensor=t.name,
            )
    if position != file_bytes:
        raise CheckpointError(f"has {file_bytes - position} bytes that belong to no tensor", file=file)
