"""Documents of the text stage, split into training and held-out parts before anything is learned."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gossamer.train import sources, strip
from gossamer.train.errors import TrainError

HELD_OUT_PER_MILLE = 10
BOILERPLATE_FILES = 40
"""A line found in this many documents of one package is navigation, not text."""
WORDNET_ENTRIES = 24
MIN_DOCUMENT_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text with the package it came from."""

    package: str
    category: sources.Category
    path: str
    text: str
    held_out: bool


def build(found: list[sources.Unpacked], seed: int) -> tuple[list[Document], list[dict]]:
    """All documents in a seeded order, and the manifest entries with their sizes.

    Raises:
        TrainError: a source yields no text at all.
    """
    documents: list[Document] = []
    manifest: list[dict] = []
    for unpacked in found:
        own = list(_documents(unpacked))
        if not own:
            raise TrainError(
                f"data package {unpacked.source.package} yields no text; is {unpacked.root} empty?"
            )
        documents += own
        manifest.append(
            unpacked.record()
            | {
                "documents": len(own),
                "train_bytes": sum(len(d.text.encode()) for d in own if not d.held_out),
                "held_out_bytes": sum(len(d.text.encode()) for d in own if d.held_out),
            }
        )
    random.Random(seed).shuffle(documents)
    return documents, manifest


def held_out(package: str, path: str) -> bool:
    """Whether a document is held out: decided by its name alone, so it never changes."""
    digest = hashlib.sha256(f"{package}\0{path}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < HELD_OUT_PER_MILLE


def _documents(unpacked: sources.Unpacked) -> Iterator[Document]:
    source = unpacked.source
    texts = dict(_texts(unpacked))
    if source.kind == "html":
        texts = _without_boilerplate(texts)
    for path, text in texts.items():
        if len(text) < MIN_DOCUMENT_CHARS:
            continue
        yield Document(
            package=source.package,
            category=source.category,
            path=path,
            text=text,
            held_out=held_out(source.package, path),
        )


def _texts(unpacked: sources.Unpacked) -> Iterator[tuple[str, str]]:
    for path in sources.files(unpacked):
        name = path.relative_to(unpacked.root).as_posix()
        try:
            raw = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raw = path.read_text(encoding="latin-1")
        match unpacked.source.kind:
            case "html":
                yield name, strip.html_text(raw)
            case "rst":
                yield name, strip.rst_text(raw)
            case "wordnet":
                yield from _wordnet(name, raw)
            case "python" | "text":
                yield name, strip.tidy(raw)


def _wordnet(name: str, raw: str) -> Iterator[tuple[str, str]]:
    entries = list(strip.wordnet_entries(raw))
    for start in range(0, len(entries), WORDNET_ENTRIES):
        yield f"{name}#{start}", "\n".join(entries[start : start + WORDNET_ENTRIES]) + "\n"


def _without_boilerplate(texts: dict[str, str]) -> dict[str, str]:
    seen: Counter[str] = Counter()
    for text in texts.values():
        seen.update({line.strip() for line in text.splitlines() if line.strip()})
    common = {line for line, count in seen.items() if count >= BOILERPLATE_FILES and len(line) > 3}
    return {
        path: strip.tidy("\n".join(line for line in text.splitlines() if line.strip() not in common))
        for path, text in texts.items()
    }


def save(documents: list[Document], manifest: list[dict], folder: Path) -> None:
    """Write the corpus as JSON lines next to its manifest, so that a resumed run reads the same text."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "corpus.jsonl.part"
    with part.open("w", encoding="utf-8") as out:
        for d in documents:
            out.write(json.dumps(d.__dict__, ensure_ascii=False) + "\n")
    part.replace(folder / "corpus.jsonl")
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def read(folder: Path) -> tuple[list[Document], list[dict]]:
    """Read back what `save` wrote."""
    with (folder / "corpus.jsonl").open(encoding="utf-8") as lines:
        documents = [Document(**json.loads(line)) for line in lines]
    return documents, json.loads((folder / "manifest.json").read_text())
