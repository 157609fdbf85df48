"""Write the published sharded safetensors layout, one tensor in memory at a time.

A file appears under its final name complete or not at all: data goes to a hidden temporary file, the
header is put in front of it when the shard is full, and only `finish` renames.  The order of tensors is
the order of `add`, so equal input gives equal bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gossamer.checkpoint.errors import CheckpointError
from gossamer.checkpoint.header import DTYPE_BITS, MAX_HEADER_BYTES
from gossamer.checkpoint.index import INDEX_FILE, SINGLE_FILE, SUFFIX

if TYPE_CHECKING:
    import numpy as np

DEFAULT_SHARD_BYTES = 5_000_000_000

# The numpy dtype each safetensors dtype is written from; see reader._NUMPY.
_ACCEPTS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "uint8",
    "F8_E5M2": "uint8",
    "F8_E8M0": "uint8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "uint16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}


class CheckpointWriter:
    """Add tensors, then `finish`; a ``with`` statement does that, or on an error leaves nothing."""

    def __init__(
        self,
        directory: str | Path,
        *,
        shard_bytes: int = DEFAULT_SHARD_BYTES,
        metadata: dict[str, str] | None = None,
        overwrite: bool = False,
    ) -> None:
        """Start a checkpoint.

        Args:
            directory: created when absent.
            shard_bytes: a shard is closed before a tensor that would make its data larger than this; a
                larger tensor gets a shard of its own.
            metadata: written to every shard; ``format: pt`` is what other readers expect and is the default.
            overwrite: replace the checkpoint that is there; otherwise its presence is an error.

        Raises:
            CheckpointError: for a directory that already holds a checkpoint or cannot be written.
        """
        if shard_bytes < 1:
            raise CheckpointError(f"shard_bytes must be positive, got {shard_bytes}")
        self._directory = Path(directory)
        self._shard_bytes = shard_bytes
        self._metadata = {"format": "pt"} if metadata is None else dict(metadata)
        if not all(isinstance(v, str) for kv in self._metadata.items() for v in kv):
            raise CheckpointError(f"metadata must map strings to strings, got {self._metadata!r}")
        self._stem = f".{os.getpid()}-{id(self):x}"
        self._names: dict[str, int] = {}
        self._shards: list[Path] = []
        self._entries: dict[str, dict[str, Any]] = {}
        self._data: IO[bytes] | None = None
        self._position = 0
        self._total = 0
        self._closed = False
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"cannot be created: {error}", file=str(directory)) from None
        old = self._existing()
        if old and not overwrite:
            raise CheckpointError(
                f"already holds {old[0].name}; choose an empty folder or pass overwrite=True",
                file=str(directory),
            )

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is not None:
            self.abort()
        elif not self._closed:
            self.finish()

    def add(self, name: str, array: np.ndarray[Any, Any], dtype: str) -> None:
        """Write one tensor.

        Args:
            name: its published name; each only once.
            array: little-endian; BF16 as uint16 and 8-bit floats as uint8 bit patterns.
            dtype: the safetensors dtype.

        Raises:
            CheckpointError: for a name used twice, an array that does not fit the dtype, or a failed
                write; after a failed write nothing is left behind.
        """
        if self._closed:
            raise CheckpointError("the checkpoint is already finished", tensor=name)
        self._check(name, array, dtype)
        if self._entries and self._position + array.nbytes > self._shard_bytes:
            self._guard(self._close_shard, name)
        self._guard(lambda: self._write(array), name)
        self._entries[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [self._position - array.nbytes, self._position],
        }
        self._names[name] = len(self._shards)

    def finish(self) -> Path:
        """Give every file its final name; the index comes last.

        Returns:
            The index, or the single file.

        Raises:
            CheckpointError: when nothing was added, or a write fails.
        """
        if self._closed:
            raise CheckpointError("the checkpoint is already finished", file=str(self._directory))
        if not self._names:
            self.abort()
            raise CheckpointError("no tensor was added", file=str(self._directory))
        return self._guard(self._publish, None)

    def abort(self) -> None:
        """Remove the temporary files; nothing with a final name was touched."""
        self._closed = True
        if self._data is not None:
            with contextlib.suppress(OSError):
                self._data.close()
        for path in self._directory.glob(f"{self._stem}-*"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _existing(self) -> list[Path]:
        found = [p for p in self._directory.glob(f"*{SUFFIX}") if not p.name.startswith(".")]
        return sorted(found + [p for p in [self._directory / INDEX_FILE] if p.exists()])

    def _check(self, name: str, array: np.ndarray[Any, Any], dtype: str) -> None:
        def fail(problem: str) -> CheckpointError:
            return CheckpointError(problem, file=str(self._directory), tensor=name)

        if name in self._names:
            raise fail("was already added")
        if not name or name == "__metadata__" or not _is_utf8(name):
            raise fail("is not a usable tensor name")
        if dtype not in _ACCEPTS:
            known = ", ".join(_ACCEPTS)
            raise fail(f"cannot write dtype {dtype!r}; choose one of {known}")
        if array.dtype.name != _ACCEPTS[dtype] or not array.dtype.isnative:
            raise fail(f"{dtype} is written from a native {_ACCEPTS[dtype]} array, got {array.dtype.str}")
        if array.size * DTYPE_BITS[dtype] != array.nbytes * 8:
            raise fail(f"array of shape {array.shape} has {array.nbytes} bytes")

    def _guard(self, step: Any, name: str | None) -> Any:
        try:
            return step()
        except BaseException as error:
            self.abort()
            if isinstance(error, OSError):
                raise CheckpointError(
                    f"writing failed: {error.strerror or error}", file=str(self._directory), tensor=name
                ) from error
            raise

    def _write(self, array: np.ndarray[Any, Any]) -> None:
        import numpy as np

        if self._data is None:
            self._data = (self._directory / f"{self._stem}-data").open("wb")
            self._position = 0
        self._data.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        self._position += array.nbytes
        self._total += array.nbytes

    def _close_shard(self) -> None:
        assert self._data is not None
        self._data.close()
        self._data = None
        source = self._directory / f"{self._stem}-data"
        target = self._directory / f"{self._stem}-{len(self._shards):05d}"
        with target.open("wb") as out, source.open("rb") as data:
            out.write(encode_header(self._entries, self._metadata))
            shutil.copyfileobj(data, out, 1 << 22)
            out.flush()
            os.fsync(out.fileno())
        source.unlink()
        self._shards.append(target)
        self._entries = {}

    def _publish(self) -> Path:
        self._close_shard()
        count = len(self._shards)
        finals = (
            [SINGLE_FILE]
            if count == 1
            else [f"model-{i:05d}-of-{count:05d}{SUFFIX}" for i in range(1, count + 1)]
        )
        stale = [p for p in self._existing() if p.name not in finals and p.name != INDEX_FILE]
        # Everything is on disk before the first final name changes, so a full disk cannot stop half-way.
        staged = list(zip(self._shards, finals, strict=True))
        if count > 1:
            weight_map = {name: finals[shard] for name, shard in self._names.items()}
            staged.append((self._stage_index(weight_map), INDEX_FILE))
        # Without its index a half-replaced set of shards is refused by the reader instead of being mixed up.
        (self._directory / INDEX_FILE).unlink(missing_ok=True)
        for temporary, final in staged:
            temporary.replace(self._directory / final)
        for path in stale:
            path.unlink()
        _fsync_directory(self._directory)
        self._closed = True
        return self._directory / staged[-1][1]

    def _stage_index(self, weight_map: dict[str, str]) -> Path:
        tree = {"metadata": {"total_size": self._total}, "weight_map": dict(sorted(weight_map.items()))}
        raw = (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
        temporary = self._directory / f"{self._stem}-index"
        with temporary.open("wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        return temporary


def encode_header(entries: dict[str, dict[str, Any]], metadata: dict[str, str]) -> bytes:
    """Length and JSON of a shard's header, padded with spaces so that the data starts at a multiple of 8."""
    tree: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    raw = json.dumps(tree | entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    raw += b" " * (-len(raw) % 8)
    if len(raw) > MAX_HEADER_BYTES:
        raise CheckpointError(f"the header of one shard has {len(raw)} bytes; use a smaller shard_bytes")
    return len(raw).to_bytes(8, "little") + raw


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _fsync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
