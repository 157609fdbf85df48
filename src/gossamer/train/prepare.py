"""Everything a run needs before its first step: corpus, vocabulary, encoded text, the data streams."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from gossamer.text.tokenizer import Tokenizer
from gossamer.train import corpus, heldout, overlap, sources, vocab
from gossamer.train.dialogue.generate import Generator
from gossamer.train.dialogue.values import WORDS
from gossamer.train.document import Document
from gossamer.train.plan import Plan
from gossamer.train.streams import DialogueRows, MixedRows, TextRows, encode_corpus

VOCAB_CHARS = 6_000_000
"""Of each category."""
VOCAB_SCHEMAS = 4000
VOCAB_DIALOGUES = 6000
HELD_OUT_SEED_OFFSET = 1_000_003
"""Held-out dialogues come from the seed plus this."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data of a run."""

    folder: Path
    tokenizer: Tokenizer
    manifest: list[dict]
    glossary: list[tuple[str, str]]


def prepare(
    folder: Path, *, cache: Path, seed: int, vocab_size: int, data_dir: Path | None = None
) -> Prepared:
    """Build the data below `folder`, or read it when it is there already."""
    if not (folder / "glossary.json").exists():
        documents, manifest = corpus.build(sources.gather(cache, data_dir), seed)
        corpus.save(documents, manifest, folder)
        heldout.save(documents, folder)
        (folder / "overlap.json").write_text(json.dumps(overlap.report(documents), indent=2) + "\n")
        entries = glossary(documents)
        tokenizer = _learn(documents, Generator(seed, entries), vocab_size)
        tokenizer.save(folder / "tokenizer")
        encode_corpus(documents, tokenizer, folder)
        (folder / "glossary.json").write_text(json.dumps(entries))
    entries = [(word, meaning) for word, meaning in json.loads((folder / "glossary.json").read_text())]
    return Prepared(
        folder=folder,
        tokenizer=Tokenizer.load(folder / "tokenizer"),
        manifest=json.loads((folder / "manifest.json").read_text()),
        glossary=entries,
    )


def streams(prepared: Prepared, plan: Plan) -> dict[str, MixedRows]:
    """The rows of both stages."""
    text = TextRows(prepared.folder, dict(plan.text_shares), plan.length, plan.seed)
    generator = Generator(plan.seed, prepared.glossary, plan.drill_share)
    # The text stage takes its dialogues from another seed, so that none is seen in both stages.
    whole = DialogueRows(
        Generator(plan.seed + 7_000_003, prepared.glossary), prepared.tokenizer, plan.length, everything=True
    )
    asked = DialogueRows(generator, prepared.tokenizer, plan.length)
    return {
        "text": MixedRows(text, whole, plan.dialogue_share_in_text, plan.seed),
        "dialogue": MixedRows(
            TextRows(prepared.folder, dict(plan.text_shares), plan.length, plan.seed + 1),
            asked,
            1 - plan.text_replay,
            plan.seed,
        ),
    }


def glossary(documents: list[Document]) -> list[tuple[str, str]]:
    """Short meanings of everyday words, from the dictionary's training part; empty without a dictionary."""
    wanted = set(WORDS)
    found: dict[str, str] = {}
    for document in documents:
        if document.category != "dictionary" or document.held_out:
            continue
        for line in document.text.splitlines():
            head, _, gloss = line.partition("): ")
            word = head.partition(" (")[0].partition(",")[0]
            meaning = gloss.partition(";")[0].rstrip(".").strip()
            if word in wanted and word not in found and 12 < len(meaning) < 60 and '"' not in meaning:
                found[word] = meaning
    return sorted(found.items())


def _learn(documents: list[Document], generator: Generator, vocab_size: int) -> Tokenizer:
    training = [d for d in documents if not d.held_out and d.category != "dictionary"]
    texts = vocab.balanced(training, VOCAB_CHARS) + vocab.schemas(VOCAB_SCHEMAS)
    bytes_only = Tokenizer.bytes_only()
    for index in range(VOCAB_DIALOGUES):
        rendered = generator.dialogue(index).render(bytes_only)
        texts += [segment.text for segment in rendered.segments if not segment.control]
    return vocab.learn(texts, vocab_size=vocab_size)
