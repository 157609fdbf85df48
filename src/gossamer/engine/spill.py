"""Blocks and states on disk, one file each, named by the hash of the prefix they end.

A file: magic, fingerprint hash, name, kind, length and hash of the payload, payload.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections import OrderedDict
from hashlib import blake2b
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from gossamer.engine.block_hash import DIGEST_BYTES
from gossamer.engine.settings import SpillSettings

LOG = logging.getLogger("gossamer.engine")
MAGIC = b"gossamer spill 1"
HEADER_BYTES = len(MAGIC) + 3 * DIGEST_BYTES + 8 + 8

Kind = Literal["block", "state"]


@runtime_checkable
class BlockIO(Protocol):
    """A runner whose blocks can be copied out and in; `Runner.block_bytes` each."""

    def read_block(self, block: int) -> NDArray[np.uint8]:
        """A copy of what ``block`` holds in all layers, [block_bytes]."""
        ...

    def write_block(self, block: int, data: NDArray[np.uint8]) -> None:
        """Fill ``block`` with what `read_block` gave."""
        ...


class SpillStore:
    """A folder of files that no failure of the disk turns into a failure of the engine.

    Files are written aside and renamed, so that a crash leaves none half written under its name; a file that
    is damaged, or another model's, is deleted with a warning.

    Args:
        settings: See `SpillSettings`.
    """

    def __init__(self, settings: SpillSettings):
        self._directory = settings.directory
        self._max_bytes = settings.max_bytes
        self._fingerprint = blake2b(settings.fingerprint.encode(), digest_size=DIGEST_BYTES).digest()
        # File name -> bytes, the one unused for longest first.
        self._files: OrderedDict[str, int] = OrderedDict()
        self._num_bytes = 0
        self._failing = False
        self._scan()

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return self._num_bytes

    @property
    def num_files(self) -> int:
        """Files there are."""
        return len(self._files)

    def has(self, digest: bytes, kind: Kind) -> bool:
        """Whether there is such a file; whether it is sound shows `get`."""
        return _name(digest, kind) in self._files

    def touch(self, digest: bytes, *, lasting: bool = True) -> None:
        """Count what is stored under ``digest`` as used now; ``lasting`` if a restart shall know it too."""
        for name in (_name(digest, "state"), _name(digest, "block")):
            if name in self._files:
                self._files.move_to_end(name)
                if lasting:
                    with contextlib.suppress(OSError):
                        os.utime(self._directory / name)

    def put(self, digest: bytes, kind: Kind, payload: NDArray[np.uint8]) -> bool:
        """Store ``payload`` unless it is there already; False where it cannot be kept."""
        name, size = _name(digest, kind), HEADER_BYTES + payload.nbytes
        if name in self._files:
            return True
        if size > self._max_bytes:
            return False
        while self._num_bytes + size > self._max_bytes:
            self._delete(next(iter(self._files)))
        data = np.ascontiguousarray(payload)
        temporary = self._directory / f"{name}.tmp"
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(self._header(digest, kind, data))
                file.write(data.data)
            os.replace(temporary, self._directory / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            self._warn_once(error)
            return False
        self._failing = False
        self._files[name] = size
        self._num_bytes += size
        return True

    def get(self, digest: bytes, kind: Kind, num_bytes: int) -> NDArray[np.uint8] | None:
        """What is stored, [num_bytes]; None where there is nothing of use."""
        name = _name(digest, kind)
        if name not in self._files:
            return None
        try:
            # Twice what is wanted shows that a file is no use, without reading all that it may have grown to.
            content = np.fromfile(self._directory / name, np.uint8, HEADER_BYTES + 2 * num_bytes)
        except OSError as error:
            self._reject(name, f"it cannot be read ({error})")
            return None
        header, data = content[:HEADER_BYTES].tobytes(), content[HEADER_BYTES:]
        if not header.startswith(MAGIC):
            self._reject(name, "it is not a file of this format")
        elif header[len(MAGIC) :][:DIGEST_BYTES] != self._fingerprint:
            self._reject(name, "it belongs to another model")
        elif header != self._header(digest, kind, data):
            self._reject(name, "it is damaged")
        elif len(data) != num_bytes:
            self._reject(name, f"it holds {len(data)} bytes, this model's {kind}s have {num_bytes}")
        else:
            return data
        return None

    def _header(self, digest: bytes, kind: Kind, data: NDArray[np.uint8]) -> bytes:
        checksum = blake2b(data.data, digest_size=DIGEST_BYTES).digest()
        length = data.nbytes.to_bytes(8, "little")
        return MAGIC + self._fingerprint + digest + kind.encode().ljust(8) + length + checksum

    def _scan(self) -> None:
        found = []
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths = list(self._directory.iterdir())
        except OSError as error:
            LOG.warning("prefix cache on disk: %s; beginning without what it holds", error)
            paths = []
        for path in paths:
            try:
                if path.name.endswith((".block.tmp", ".state.tmp")):
                    path.unlink(missing_ok=True)  # what a crash left
                elif path.suffix in (".block", ".state"):
                    status = path.stat()  # before anything else: what cannot be looked at is said
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    found.append((status.st_mtime_ns, path.name, status.st_size))
            except OSError as error:
                LOG.warning("prefix cache on disk: %s; going on without it", error)
        for _, name, size in sorted(found):
            self._files[name] = size
            self._num_bytes += size
        while self._num_bytes > self._max_bytes:
            self._delete(next(iter(self._files)))

    def _reject(self, name: str, why: str) -> None:
        LOG.warning("prefix cache on disk: %s is ignored and deleted: %s", self._directory / name, why)
        self._delete(name)

    def _delete(self, name: str) -> None:
        self._num_bytes -= self._files.pop(name)
        with contextlib.suppress(OSError):
            (self._directory / name).unlink(missing_ok=True)

    def _warn_once(self, error: OSError) -> None:
        # A full disk fails every write; one line until a write succeeds again is enough.
        if not self._failing:
            LOG.warning(
                "prefix cache on disk: cannot write (%s); serving goes on without it; free space in %s",
                error,
                self._directory,
            )
        self._failing = True


def _name(digest: bytes, kind: Kind) -> str:
    return f"{digest.hex()}.{kind}"
