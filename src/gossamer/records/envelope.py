"""What every result file has in common: a schema tag, strict fields, and one way in and out.

A file is one JSON object (or one per line in a .jsonl log) whose first key is
``"schema": "gossamer.<kind>/<version>"``.  Unknown fields are refused by name unless a record says
otherwise, so that a file of a later version is never half understood.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from gossamer.errors import GossamerError

Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of things, or bytes."""
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
"""A name or id that may not be empty."""
Time = Annotated[
    str,
    msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$", examples=["2026-12-01T09:30:00Z"]),
]
"""RFC 3339 in UTC."""
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16,64}$", examples=["9f86d081884c7d65"])]
"""Lower-case hex of a keyed hash: says that two things are equal without saying what they are."""


class RecordError(GossamerError, ValueError):
    """A result file that is not what it says, naming the file, the field and the value."""


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a record."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="schema"):
    """A whole result file, or one line of a log.  Subclasses set ``tag="gossamer.<kind>/<version>"``."""


R = TypeVar("R", bound=Record)


def schema_of(kind: type[Record]) -> str:
    """The schema tag a record type reads and writes."""
    return str(kind.__struct_config__.tag)


def encode(record: Record, *, is_line: bool = False) -> bytes:
    """JSON of a record, indented for a file or on one line for a log; both end in a newline."""
    data = msgspec.json.encode(record)
    return (data if is_line else msgspec.json.format(data, indent=2)) + b"\n"


def decode(data: bytes | str, kind: type[R], *, where: str = "record") -> R:
    """Check and build a record from JSON.

    Args:
        data: one JSON object.
        kind: the record type that is expected.
        where: what to call the data in errors, for example the file.

    Raises:
        RecordError: not JSON, another schema or version, or a missing, unknown or wrong field.
    """
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordError(f"{where}: not JSON: {error}") from None
    return convert(found, kind, where=where)


def convert(tree: Any, kind: type[R], *, where: str = "record") -> R:
    """As `decode`, from an object that is already parsed."""
    wanted = schema_of(kind)
    if not isinstance(tree, dict):
        raise RecordError(f"{where}: expected an object with schema {wanted!r}, got {type(tree).__name__}")
    found = tree.get("schema")
    if found != wanted:
        raise RecordError(f"{where}: {_explain(found, wanted)}")
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise RecordError(f"{where}: {error}") from None


def _explain(found: Any, wanted: str) -> str:
    if found is None:
        return f'no "schema" field; expected {wanted!r}'
    if isinstance(found, str) and found.rpartition("/")[0] == wanted.rpartition("/")[0]:
        return f"schema {found!r} is another version; this gossamer reads {wanted!r}"
    return f"schema is {found!r}, expected {wanted!r}"


def read(path: str | os.PathLike[str], kind: type[R]) -> R:
    """Read a one-record file.

    Raises:
        RecordError: as `decode`, or the file cannot be read.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RecordError(f"{os.fspath(path)}: {error.strerror}") from None
    return decode(data, kind, where=os.fspath(path))


def write(record: Record, path: str | os.PathLike[str]) -> None:
    """Write a one-record file; a reader sees the old file or the whole new one, never a part."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_bytes(encode(record))
    partial.replace(target)


def read_lines(path: str | os.PathLike[str], kind: type[R]) -> Iterator[R]:
    """The records of a .jsonl log, one at a time; blank lines are skipped.

    Raises:
        RecordError: as `decode`, with the line number.
    """
    where = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield decode(line, kind, where=f"{where}:{number}")
    except OSError as error:
        raise RecordError(f"{where}: {error.strerror}") from None


def append_lines(records: Iterable[Record], path: str | os.PathLike[str]) -> None:
    """Add records to a .jsonl log, each written with one call so that concurrent writers do not mix."""
    with Path(path).open("ab", buffering=0) as file:
        for record in records:
            file.write(encode(record, is_line=True))


def json_schema(kind: type[Record]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a record type, for readers in other languages."""
    schema = msgspec.json.schema(kind)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": schema_of(kind), **schema}
