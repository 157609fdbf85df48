"""Texts out of binary containers: SWORD commentaries, R data files, dictd dictionaries."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from gossamer.train import strip

R_CHARACTER_VECTOR = 16
WRAPPED_LINE = 40
"""A line this long that is followed by another one was wrapped there, not ended."""


def sword_blocks(index: Path) -> Iterator[tuple[str, str]]:
    """The texts of a compressed SWORD module, one per block (a book or a chapter).

    The index holds (offset, compressed bytes, bytes) per block, each a little-endian uint32; the blocks are
    zlib streams of OSIS XML in the file of the same name that ends in z.
    """
    packed = index.with_suffix(index.suffix[:-1] + "z").read_bytes()
    for number, (start, size, _) in enumerate(struct.iter_unpack("<III", index.read_bytes())):
        if size:
            raw = zlib.decompress(packed[start : start + size]).decode("utf-8", "replace")
            yield f"{index.stem}#{number}", osis_text(raw)


def osis_text(markup: str) -> str:
    """Plain text of OSIS XML: paragraphs kept, everything else reduced to its words."""
    markup = re.sub(
        r'<div [^>]*type="x-p"[^>]*>|<(?:lb|/?item|/?p|/?list|/title|/lg|/l)\b[^>]*>', "\n\n", markup
    )
    text = strip.html_text(markup)
    text = "\n\n".join(re.sub(r"[ \t\n]+", " ", part).strip() for part in re.split(r"\n\s*\n", text))
    return strip.tidy(text)


def r_character_vectors(path: Path) -> Iterator[list[str]]:
    """The character vectors of an R lazy-load database (.rdb), in file order.

    Each record is a big-endian uint32 size and a zlib stream with an object in R's XDR serialisation
    ("R Internals", 1.8 Serialization formats).
    """
    data = path.read_bytes()
    while data:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(data[4:]) + unpacker.flush()
        data = unpacker.unused_data
        vector = _character_vector(raw)
        if vector is not None:
            yield vector


def _character_vector(raw: bytes) -> list[str] | None:
    if raw[:2] != b"X\n":
        return None
    (version,) = struct.unpack_from(">I", raw, 2)
    at = 14
    if version >= 3:  # the native encoding's name follows
        at += 4 + struct.unpack_from(">I", raw, at)[0]
    flags, count = struct.unpack_from(">II", raw, at)
    if flags & 0xFF != R_CHARACTER_VECTOR:
        return None
    at += 8
    out: list[str] = []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", raw, at + 4)
        at += 8
        out.append(raw[at : at + max(size, 0)].decode("utf-8", "replace"))
        at += max(size, 0)
    return out


def dictd_text(path: Path) -> str:
    """The text of a dictd dictionary (gzip with a random-access table that plain gzip ignores)."""
    return strip.tidy(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"))


def book_text(raw: str) -> str:
    """A plain-text book: an archive's notices cut off, wrapped lines joined to paragraphs."""
    start = re.search(r"\*\*\* ?START OF [^\n]*\n", raw)
    end = re.search(r"\*\*\* ?END OF |\nEnd of (?:the )?Project ", raw)
    raw = raw[start.end() if start else 0 : end.start() if end else len(raw)]
    paragraphs = re.split(r"\n[ \t]*\n", strip.tidy(raw))
    return strip.tidy("\n\n".join(_joined(p) for p in paragraphs))


def _joined(paragraph: str) -> str:
    out = ""
    last = ""
    for line in paragraph.split("\n"):
        wrapped = len(last) >= WRAPPED_LINE and not line.startswith((" ", "\t"))
        out += (" " if wrapped else "\n" if out else "") + line
        last = line
    return out
