"""Documents of the text stage, split into training and held-out parts before anything is learned."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gossamer.train import heldout, overlap, readers, sources, strip
from gossamer.train.document import Document
from gossamer.train.errors import TrainError

BOILERPLATE_FILES = 40
"""A line found in this many documents of one package is navigation, not text."""
WORDNET_ENTRIES = 24
MIN_DOCUMENT_CHARS = 200


def build(found: list[sources.Unpacked], seed: int) -> tuple[list[Document], list[dict]]:
    """All documents in a seeded order, and the manifest entries with their sizes.

    Held-out books are set aside first; copies among the training documents and training documents that
    share text with a held-out one are dropped.  Nothing is learned before that.

    Raises:
        TrainError: a source yields no text at all, a held-out set is too small or overlaps.
    """
    raw: list[Document] = []
    owners: list[int] = []
    for number, unpacked in enumerate(found):
        own = list(_documents(unpacked))
        if not own:
            raise TrainError(
                f"data package {unpacked.source.package} yields no text; is {unpacked.root} empty?"
            )
        raw += own
        owners += [number] * len(own)
    local = any(unpacked.source.client == "local" for unpacked in found)
    documents = heldout.split_by_name(raw) if local else heldout.split_by_book(raw)
    kept = overlap.clean(documents)
    manifest = [
        unpacked.record() | _sizes([documents[i] for i in kept if owners[i] == number])
        for number, unpacked in enumerate(found)
    ]
    documents = [documents[i] for i in kept]
    random.Random(seed).shuffle(documents)
    return documents, manifest


def _sizes(own: list[Document]) -> dict[str, int]:
    return {
        "documents": len(own),
        "train_bytes": sum(d.num_bytes for d in own if not d.held_out),
        "held_out_bytes": sum(d.num_bytes for d in own if d.held_out),
    }


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
            held_out=False,
        )


def _texts(unpacked: sources.Unpacked) -> Iterator[tuple[str, str]]:
    for path in sources.files(unpacked):
        name = path.relative_to(unpacked.root).as_posix()
        match unpacked.source.kind:
            case "sword":
                yield from readers.sword_blocks(path)
            case "r_data":
                yield from _novels(path)
            case "dictd":
                yield name, readers.dictd_text(path)
            case "html":
                yield name, strip.html_text(_read(path))
            case "rst":
                yield name, strip.rst_text(_read(path))
            case "wordnet":
                yield from _wordnet(name, _read(path))
            case "book":
                yield name, readers.book_text(_read(path))
            case "python" | "text" | "speech":
                yield name, strip.tidy(_read(path))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return path.read_text(encoding="latin-1")


def _novels(path: Path) -> Iterator[tuple[str, str]]:
    """Every novel of the package, named by its title line."""
    for lines in readers.r_character_vectors(path):
        title = next((line.strip().lower() for line in lines if line.strip()), "untitled")
        yield title.replace(" ", "_"), readers.book_text("\n".join(lines))


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
