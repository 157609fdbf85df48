"""Read a safetensors checkpoint lazily, without torch.

Opening reads the index alone; the header of a shard is read, and compared with the index, when the
first of its tensors is asked for.

`CheckpointReader.read(name, byte_range)` is the seam other code builds on: whatever stores the bytes,
it returns exactly that part of one tensor or raises `CheckpointError`.  Another store (a remote one, a
cache) is added below it, as a `gossamer.checkpoint.source.Folder`, so that every check here applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.checkpoint.errors import CheckpointError
from gossamer.checkpoint.header import Header, TensorInfo, header_size, parse
from gossamer.checkpoint.index import INDEX_FILE, find_single, read_index
from gossamer.checkpoint.source import ByteSource, Folder, LocalFolder

if TYPE_CHECKING:
    import numpy as np

_FIRST_READ = 4096

# numpy names; dtypes that numpy lacks come back as the unsigned integer that holds their bits.
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
    "F8_E8M0": "u1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "BF16": "<u2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}


class CheckpointReader:
    """The tensors of a checkpoint, by name.  Use `open`, best in a ``with`` statement."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._sources: dict[str, ByteSource] = {}
        self._headers: dict[str, Header] = {}
        weight_map = read_index(folder)
        self._indexed = weight_map is not None
        if weight_map is None:
            shard = find_single(folder)
            weight_map = dict.fromkeys(self._load(shard).tensors, shard)
        self._weight_map = weight_map
        self._in_shard: dict[str, list[str]] = {}
        for name, shard in weight_map.items():
            self._in_shard.setdefault(shard, []).append(name)
        present = set(folder.names())
        for shard, names in self._in_shard.items():
            if shard not in present:
                raise CheckpointError(
                    f"is missing; {INDEX_FILE} keeps {len(names)} tensor(s) there, among them {names[0]!r}",
                    file=shard,
                )

    @classmethod
    def open(cls, path: str | Path) -> CheckpointReader:
        """Open a directory in the published sharded layout, or one .safetensors file.

        Raises:
            CheckpointError: when the index is damaged, or a shard it names is missing.
        """
        path = Path(path)
        return cls(LocalFolder(path.parent if path.name == INDEX_FILE else path))

    def __enter__(self) -> CheckpointReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; arrays and views handed out stay valid."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    def names(self) -> list[str]:
        """Every tensor name, in the order of the index or file."""
        return list(self._weight_map)

    def __contains__(self, name: object) -> bool:
        return name in self._weight_map

    def __len__(self) -> int:
        return len(self._weight_map)

    def shards(self) -> list[str]:
        """The file names that hold tensors."""
        return list(self._in_shard)

    def info(self, name: str) -> TensorInfo:
        """Dtype, shape and place of one tensor.

        Raises:
            CheckpointError: for an unknown name, or when its shard is damaged or disagrees with the index.
        """
        shard = self._weight_map.get(name)
        if shard is None:
            raise CheckpointError("no such tensor", file=self._folder.location, tensor=name)
        return self._header(shard).tensors[name]

    def infos(self) -> Iterator[TensorInfo]:
        """Every tensor, shard by shard, in file order; this reads and checks every header."""
        for shard in self._in_shard:
            yield from self._header(shard).tensors.values()

    @property
    def metadata(self) -> dict[str, str]:
        """The free-form metadata of the first shard."""
        return dict(self._header(next(iter(self._in_shard))).metadata) if self._in_shard else {}

    def read(self, name: str, byte_range: tuple[int, int] | None = None) -> bytes | memoryview:
        """The raw bytes of one tensor, or the part [begin, end) of them.

        Args:
            name: the tensor.
            byte_range: half-open, counted from the tensor's first byte; None reads all of it.

        Returns:
            Little-endian row-major bytes; a view into the mapped file when the source is local.

        Raises:
            CheckpointError: for an unknown name, a damaged shard, or a range outside the tensor.
        """
        info = self.info(name)
        begin, end = byte_range if byte_range is not None else (0, info.nbytes)
        if not 0 <= begin <= end <= info.nbytes:
            raise CheckpointError(
                f"byte range {begin}..{end} is outside its {info.nbytes} bytes", file=info.file, tensor=name
            )
        data = self._source(info.file).read(info.begin + begin, info.begin + end)
        if len(data) != end - begin:
            raise CheckpointError(f"got {len(data)} of {end - begin} bytes", file=info.file, tensor=name)
        return data

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """One tensor as a read-only numpy array over the mapped file.

        BF16 comes back as uint16 and 8-bit floats as uint8 bit patterns (see `gossamer.checkpoint.bf16`).
        Data that is not aligned to its element size is copied.

        Raises:
            CheckpointError: as `read`; also for 4- and 6-bit dtypes, which have no array form.
        """
        import numpy as np

        info = self.info(name)
        if info.dtype not in _NUMPY:
            raise CheckpointError(f"{info.dtype} has no array form; use read()", file=info.file, tensor=name)
        flat = np.frombuffer(self.read(name), dtype=_NUMPY[info.dtype])
        try:
            array = flat.reshape(info.shape)
        except ValueError as error:  # a zero-size shape whose other sizes numpy cannot hold
            raise CheckpointError(f"shape {info.shape}: {error}", file=info.file, tensor=name) from None
        if not array.flags.aligned:
            array = array.copy()
            array.flags.writeable = False
        return array

    def _source(self, shard: str) -> ByteSource:
        if shard not in self._sources:
            self._sources[shard] = self._folder.open(shard)
        return self._sources[shard]

    def _load(self, shard: str) -> Header:
        source = self._source(shard)
        prefix = bytes(source.read(0, min(_FIRST_READ, source.size)))
        size = header_size(prefix, file=shard, file_bytes=source.size)
        raw = prefix[8 : 8 + size]
        if len(raw) < size:
            raw += bytes(source.read(8 + len(raw), 8 + size))
        header = parse(raw, file=shard, file_bytes=source.size)
        self._headers[shard] = header
        return header

    def _header(self, shard: str) -> Header:
        if shard in self._headers:
            return self._headers[shard]
        header = self._load(shard)
        try:
            self._compare(shard, header)
        except CheckpointError:
            del self._headers[shard]
            raise
        return header

    def _compare(self, shard: str, header: Header) -> None:
        for name in self._in_shard[shard]:
            if name not in header.tensors:
                raise CheckpointError(
                    f"{INDEX_FILE} says it is here, the header does not", file=shard, tensor=name
                )
        for name in header.tensors:
            home = self._weight_map.get(name)
            if home is None:
                raise CheckpointError(f"is here but not in {INDEX_FILE}", file=shard, tensor=name)
            if home != shard:
                raise CheckpointError(
                    f"is here too, while {INDEX_FILE} keeps it in {home}", file=shard, tensor=name
                )
