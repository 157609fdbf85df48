"""Where checkpoint bytes come from: two small protocols, and their local form.

A remote or cached store implements `Folder` and `ByteSource` and hands the folder to
`gossamer.checkpoint.reader.CheckpointReader`; every check of the format then applies to it unchanged.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gossamer.checkpoint.errors import CheckpointError


class ByteSource(Protocol):
    """One file that can be read in byte ranges."""

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        ...

    def read(self, begin: int, end: int) -> bytes | memoryview:
        """Exactly the bytes [begin, end), with 0 <= begin <= end <= size.

        Either a copy or a view that stays valid as long as it is referenced, also after `close`.
        Raises `CheckpointError` naming the file when they cannot be had.
        """
        ...

    def close(self) -> None:
        """Release what the source holds; views handed out stay valid."""
        ...


class Folder(Protocol):
    """The files of one checkpoint."""

    @property
    def location(self) -> str:
        """What to call it in an error."""
        ...

    def names(self) -> Sequence[str]:
        """The bare names of its files, sorted."""
        ...

    def open(self, name: str) -> ByteSource:
        """Open one file; raises `CheckpointError` naming it when it is not there."""
        ...


class MappedFile:
    """A local file, mapped into memory: only pages that are read cost memory."""

    def __init__(self, path: Path, *, name: str) -> None:
        try:
            with path.open("rb") as handle:
                self.size = handle.seek(0, 2)
                # An empty file cannot be mapped.
                self._view = memoryview(
                    mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
                )
        except OSError as error:
            raise CheckpointError(f"cannot be opened: {error.strerror or error}", file=name) from None

    def read(self, begin: int, end: int) -> memoryview:
        """A read-only view of [begin, end); see `ByteSource.read`."""
        return self._view[begin:end]

    def close(self) -> None:
        """Drop the map; it disappears with the last view into it."""
        self._view = memoryview(b"")


class LocalFolder:
    """A directory, or the one file that is the whole checkpoint."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self._only = None if path.is_dir() else path.name
        self._root = path if path.is_dir() else path.parent
        self.location = str(path)
        if not path.exists():
            raise CheckpointError("does not exist", file=self.location)

    def names(self) -> Sequence[str]:
        """See `Folder.names`."""
        if self._only is not None:
            return [self._only]
        return sorted(p.name for p in self._root.iterdir() if p.is_file())

    def open(self, name: str) -> MappedFile:
        """See `Folder.open`."""
        return MappedFile(self._root / name, name=name)
