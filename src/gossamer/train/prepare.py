"""Everything a run needs before its first step: corpus, vocabulary, encoded text, the data streams."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gossamer.text.tokenizer import RANKS_FILE, Tokenizer
from gossamer.train import corpus, heldout, overlap, sources, vocab
from gossamer.train.dialogue.generate import Generator
from gossamer.train.dialogue.lookup import Lookups
from gossamer.train.dialogue.remembering import Remembering
from gossamer.train.dialogue.values import WORDS
from gossamer.train.document import Document
from gossamer.train.drill import Drills
from gossamer.train.errors import TrainError
from gossamer.train.plan import Plan
from gossamer.train.streams import (
    CopyRows,
    DialogueRows,
    DrillRows,
    MixedRows,
    RowSource,
    TextRows,
    encode_corpus,
)

VOCAB_CHARS = 6_000_000
"""Of each category."""
VOCAB_SCHEMAS = 4000
VOCAB_DIALOGUES = 6000
STAGE_SEED_OFFSET = 7_000_003
"""Between the seeds of the two stages."""
EASY = 0.4
"""Difficulty of the easy dialogues: up to three tools and two arguments, mostly one turn."""
WORD = re.compile(r"\b[a-z]{3,12}\b")
WORD_COUNT = 12
"""How often a word of the training text must occur to be used in drills and dialogues."""
HELD_OUT_SEED_OFFSET = 1_000_003
"""Held-out dialogues come from the seed plus this."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The data of a run."""

    folder: Path
    tokenizer: Tokenizer
    manifest: list[dict]
    glossary: list[tuple[str, str]]
    words: list[str]


def prepare(
    folder: Path,
    *,
    cache: Path,
    seed: int,
    vocab_size: int,
    data_dir: Path | None = None,
    vocabulary_of: Path | None = None,
) -> Prepared:
    """Build the data below `folder`, or read it when it is there already.

    Args:
        folder: of the data.
        cache: of the unpacked data packages.
        seed: of the order of documents and of the dialogues the vocabulary learns from.
        vocab_size: of a vocabulary that is learned.
        data_dir: a folder of .txt files instead of the data packages.
        vocabulary_of: an export whose vocabulary is used instead of learning one.

    Raises:
        TrainError: data is missing, or what lies there was encoded with another vocabulary.
    """
    if not all((folder / name).exists() for name in ("words.json", "glossary.json")):
        documents, manifest = corpus.build(sources.gather(cache, data_dir), seed)
        corpus.save(documents, manifest, folder)
        heldout.save(documents, folder)
        (folder / "overlap.json").write_text(json.dumps(overlap.report(documents), indent=2) + "\n")
        entries = glossary(documents)
        if vocabulary_of is None:
            tokenizer = _learn(documents, Generator(seed, entries), vocab_size)
        else:
            tokenizer = Tokenizer.load(vocabulary_of)
        tokenizer.save(folder / "tokenizer")
        encode_corpus(documents, tokenizer, folder)
        (folder / "words.json").write_text(json.dumps(vocabulary(documents)))
        (folder / "glossary.json").write_text(json.dumps(entries))
    if vocabulary_of is not None:
        own, wanted = (path / RANKS_FILE for path in (folder / "tokenizer", vocabulary_of))
        if own.read_bytes() != wanted.read_bytes():
            raise TrainError(
                f"{folder} was encoded with another vocabulary than {vocabulary_of}; "
                "take another --run folder"
            )
    entries = [(word, meaning) for word, meaning in json.loads((folder / "glossary.json").read_text())]
    return Prepared(
        folder=folder,
        tokenizer=Tokenizer.load(folder / "tokenizer"),
        manifest=json.loads((folder / "manifest.json").read_text()),
        glossary=entries,
        words=json.loads((folder / "words.json").read_text()),
    )


def streams(prepared: Prepared, plan: Plan) -> dict[str, MixedRows]:
    """The rows of every stage; the stages share no dialogue, no drill and no order of the text."""
    found: dict[str, MixedRows] = {}
    for number, (stage, shares) in enumerate(plan.stages.items()):
        seed = plan.seed + number * STAGE_SEED_OFFSET
        known = rows(prepared, plan, seed)
        unknown = [name for name, _ in shares if name not in known]
        if unknown:
            raise TrainError(f"the plan asks for rows of kind {unknown[0]!r}; there are {', '.join(known)}")
        found[stage] = MixedRows({name: (known[name], share) for name, share in shares}, seed)
    return found


def rows(prepared: Prepared, plan: Plan, seed: int) -> dict[str, RowSource]:
    """Every kind of row by name, from one seed."""
    tokenizer, length = Remembering(prepared.tokenizer), plan.length
    generator = Generator(seed, prepared.glossary, words=prepared.words)
    return {
        "text": TextRows(prepared.folder, dict(plan.text_shares), length, seed),
        "copy": CopyRows(prepared.folder, length, seed, prepared.tokenizer.num_ranks),
        "drill": DrillRows(Drills(seed, prepared.words), tokenizer, length),
        "easy drill": DrillRows(Drills(seed + 1, prepared.words, 0.3), tokenizer, length),
        "dialogue": DialogueRows(generator, tokenizer, length),
        "look-up": DialogueRows(Lookups(seed, prepared.words), tokenizer, length),
        "easy dialogue": DialogueRows(
            Generator(seed + 2, prepared.glossary, words=prepared.words, difficulty=EASY),
            tokenizer,
            length,
        ),
        "dialogue whole": DialogueRows(
            Generator(seed + 1, prepared.glossary, words=prepared.words), tokenizer, length, everything=True
        ),
    }


def vocabulary(documents: list[Document]) -> list[str]:
    """Words of the training text for drills and dialogues, most common first: 3 to 12 letters, not rare."""
    counts: Counter[str] = Counter()
    for document in documents:
        if not document.held_out:
            counts.update(WORD.findall(document.text))
    common = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [word for word, count in common if count >= WORD_COUNT]


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
