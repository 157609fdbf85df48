"""Held-out prompts that a draft head is measured on: prose, code, a tool's result said again, an edit.

None of their text is in a training row: prose and code are held-out documents, the edits are made from
held-out code, and the dialogues come from the held-out seed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

from gossamer.text.chat import render
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import heldout
from gossamer.train.dialogue.generate import Dialogue, Generator
from gossamer.train.document import Document
from gossamer.train.errors import TrainError
from gossamer.train.prepare import HELD_OUT_SEED_OFFSET, Prepared

NAME = re.compile(r"[A-Za-z_]{3,}")
PROMPT_TOKENS = 256
EDIT_LINES = 24
ECHO_BASE = 20 * 100_000
"""First dialogue number of the echoes, beyond those the evaluation asks."""


def workloads(prepared: Prepared, seed: int, count: int) -> dict[str, list[list[int]]]:
    """`count` prompts as ids for each of prose, code, tool-result echo and repetitive edit.

    Raises:
        TrainError: the run has too little held-out text.
    """
    generator = Generator(seed + HELD_OUT_SEED_OFFSET, prepared.glossary, words=prepared.words)
    tokenizer = prepared.tokenizer
    return {
        "prose": _openings(prepared.folder, "prose", tokenizer, count),
        "code": _openings(prepared.folder, "python", tokenizer, count),
        "tool-result echo": [_answer_prompt(d, tokenizer) for d in _echoes(generator, count)],
        "repetitive edit": _edits(prepared.folder, tokenizer, seed, count),
    }


def _documents(folder: Path, category: str, count: int, chars: int) -> list[Document]:
    """Documents of at least `chars` characters, spread over the set."""
    long = [d for d in heldout.read(folder).get(category, []) if len(d.text) >= chars]
    if len(long) < count:
        raise TrainError(
            f"{folder} has {len(long)} held-out {category} documents of {chars:,} characters; "
            f"{count} are needed: ask for fewer prompts"
        )
    step = len(long) // count
    return [long[i * step] for i in range(count)]


def _openings(folder: Path, category: str, tokenizer: Tokenizer, count: int) -> list[list[int]]:
    documents = _documents(folder, category, count, 6 * PROMPT_TOKENS)
    return [tokenizer.encode(d.text[: 6 * PROMPT_TOKENS])[:PROMPT_TOKENS] for d in documents]


def _echoes(generator: Generator, count: int) -> Iterator[Dialogue]:
    """Dialogues whose last message is an answer right after a tool's result."""
    index = ECHO_BASE
    while count:
        dialogue = generator.dialogue(index)
        index += 1
        if len(dialogue.messages) > 1 and dialogue.messages[-2]["role"] == "tool":
            count -= 1
            yield dialogue


def _answer_prompt(dialogue: Dialogue, tokenizer: Tokenizer) -> list[int]:
    rendered = render(
        dialogue.messages[:-1],
        tokenizer=tokenizer,
        tools=dialogue.tools or None,
        reasoning_effort=dialogue.effort,
    )
    return list(rendered.ids)


def _edits(folder: Path, tokenizer: Tokenizer, seed: int, count: int) -> list[list[int]]:
    """Some lines of code, then the first third of them again with one of their names changed everywhere."""
    prompts = []
    third = EDIT_LINES // 3
    for number, document in enumerate(_documents(folder, "python", count, 40 * EDIT_LINES)):
        rng = random.Random(f"{seed}/edit/{number}")
        lines = [line for line in document.text.splitlines() if NAME.search(line)]
        start = rng.randrange(max(1, len(lines) - EDIT_LINES))
        piece = lines[start : start + EDIT_LINES]
        old = rng.choice(NAME.findall("\n".join(piece[:third])))
        again = [line.replace(old, "renamed") for line in piece[:third]]
        prompts.append(tokenizer.encode("\n".join([*piece, "", *again]) + "\n"))
    return prompts
