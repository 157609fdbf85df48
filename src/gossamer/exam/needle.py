"""Is a fact found again that was planted far back?  One pass over the text serves several facts.

In each text as many facts as depths are planted, each about another name; the text is read once, in
blocks, and every fact is then asked from the state after it.  So the other facts are distractors, and an
answer counts only if it is the code of the name that was asked for.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import torch

import gossamer
from gossamer.exam.errors import ExamError
from gossamer.exam.statistics import Share, share
from gossamer.exam.words import invented
from gossamer.model.cache import Cache
from gossamer.model.transformer import Transformer
from gossamer.records.envelope import Record
from gossamer.text import specials
from gossamer.text.chat import render
from gossamer.text.stream import parse
from gossamer.text.tokenizer import Tokenizer

Form = Literal["chat", "completion"]
FORMS: tuple[Form, ...] = ("chat", "completion")
DEPTHS = (0.0, 0.25, 0.5, 0.75, 0.95)
BLOCK = 512
MAX_ANSWER = {"chat": 96, "completion": 12}
CHAT_ROOM, MIN_LENGTH = 160, 400
"""Tokens kept free for the chat format and the question; the shortest context that can be asked for."""
MANY_UP_TO, MANY = 8192, 4
"""Contexts of up to this many tokens are tried this many times, longer ones once."""
Progress = Callable[[int, int], None]


class LengthResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one context length gave in one form.

    Attributes:
        tokens: length asked for.
        form: asked as a chat message or as a text to complete.
        found: answers that give the code.
        by_depth: the same for each depth, 0 the beginning.
        read_tokens: mean tokens of a text with its question.
        s_per_1k_tokens: wall time of reading, per 1,000 tokens.
    """

    tokens: int
    form: str
    found: Share
    by_depth: dict[str, Share]
    read_tokens: int
    s_per_1k_tokens: float


class ContextReport(Record, frozen=True, kw_only=True, tag="gossamer.nano_context/1"):
    """Planted facts found, measured, by length and form."""

    model: str
    gossamer_version: str
    seed: int
    filler: str
    threads: int
    block: int
    results: list[LengthResult]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A text with facts.

    Attributes:
        text: filler and facts.
        facts: (name, code) by depth.
    """

    text: str
    facts: tuple[tuple[str, str], ...]


def parse_length(text: str) -> int:
    """Tokens of a length such as "8k" (8,192) or "1000".

    Raises:
        ExamError: not a number, or too short to hold the facts.
    """
    matched = re.fullmatch(r"(\d+)([kK]?)", text.strip())
    if matched is None:
        raise ExamError(f"context length {text!r} is not a number of tokens such as 1k or 2000")
    tokens = int(matched[1]) * (1024 if matched[2] else 1)
    if tokens < MIN_LENGTH:
        raise ExamError(f"a context of {tokens} tokens is too short; ask for at least {MIN_LENGTH}")
    return tokens


def plant(
    rng: random.Random, tokenizer: Tokenizer, filler: Iterator[str], tokens: int, depths: Sequence[float]
) -> Planted:
    """Fill about `tokens` tokens with sentences and put one fact at each depth."""
    names = list(dict.fromkeys(invented(rng).capitalize() for _ in range(4 * len(depths))))[: len(depths)]
    facts = [(name, "".join(rng.choices("0123456789", k=5))) for name in names]
    lines = [f"The access code of {name} is {code}." for name, code in facts]
    room = tokens - CHAT_ROOM - sum(len(tokenizer.encode(line)) + 1 for line in lines)
    parts: list[str] = []
    sizes = 0
    while True:
        sentence = next(filler)
        sizes += len(tokenizer.encode(" " + sentence))
        if sizes > room:
            break
        parts.append(sentence)
    # From the end, so that earlier places keep their numbers.
    for depth, line in sorted(zip(depths, lines, strict=True), reverse=True):
        parts.insert(round(depth * len(parts)), line)
    return Planted(text=" ".join(parts), facts=tuple(facts))


def prompts(planted: Planted, form: Form, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """The token ids of the text with each fact's question."""
    if form == "completion":
        return [
            tuple(tokenizer.encode(f"{planted.text}\n\nThe access code of {name} is"))
            for name, _ in planted.facts
        ]
    asked = (f"{planted.text}\n\nWhat is the access code of {name}?" for name, _ in planted.facts)
    return [
        render([{"role": "user", "content": text}], tokenizer=tokenizer, reasoning_effort="low").ids
        for text in asked
    ]


def is_found(form: Form, ids: Sequence[int], code: str, tokenizer: Tokenizer) -> bool:
    """Whether an answer gives the code: first in a completion, as the only such number in a chat answer."""
    if form == "completion":
        first = re.match(r"\s*(\d+)", tokenizer.decode(ids))
        return first is not None and first[1] == code
    return re.findall(r"\d{4,}", parse(ids, tokenizer=tokenizer)["content"]) == [code]


@torch.inference_mode()
def read(model: Transformer, ids: Sequence[int], cache: Cache, block: int = BLOCK) -> None:
    """Bring `ids` into the cache, block by block."""
    for start in range(0, len(ids), block):
        model(torch.tensor([ids[start : start + block]]), cache, logits_for="last")


@torch.inference_mode()
def answer(model: Transformer, ids: Sequence[int], cache: Cache, stop: int, max_tokens: int) -> list[int]:
    """Greedy continuation after `ids`, from the state of the cache; the cache is left as it was."""
    snapshot = cache.snapshot()
    step, out = torch.tensor([list(ids)]), []
    while len(out) < max_tokens:
        out.append(int(model(step, cache, logits_for="last")[0, -1].argmax()))
        if out[-1] == stop:
            break
        step = torch.tensor([[out[-1]]])
    cache.truncate(snapshot.length, snapshot)
    return out


def _shared(several: Sequence[Sequence[int]]) -> int:
    """Length of the common beginning."""
    shortest = min(map(len, several))
    return next((i for i in range(shortest) if len({ids[i] for ids in several}) > 1), shortest)


@dataclass(frozen=True)
class Tried:
    """One text read and asked about: found by depth, its length, the tokens read and their seconds."""

    found: list[bool]
    length: int
    num_read: int
    duration_s: float


def attempt(model: Transformer, tokenizer: Tokenizer, planted: Planted, form: Form) -> Tried:
    """Read a text once and ask for each of its facts."""
    several = prompts(planted, form, tokenizer)
    # One token at least is left for the questions.
    common = min(_shared(several), min(map(len, several)) - 1)
    cache = model.new_cache(1)
    began = time.perf_counter()
    read(model, several[0][:common], cache)
    duration_s = time.perf_counter() - began
    stop = tokenizer.special(specials.END_OF_MSG)
    found = []
    for ids, (_, code) in zip(several, planted.facts, strict=True):
        given = answer(model, ids[common:], cache, stop, MAX_ANSWER[form])
        found.append(is_found(form, given, code, tokenizer))
    return Tried(found, len(several[0]), common, duration_s)


def measure(
    model: Transformer,
    tokenizer: Tokenizer,
    lengths: Sequence[int],
    *,
    seed: int,
    filler: Callable[[random.Random], Iterator[str]],
    filler_name: str,
    model_name: str,
    threads: int,
    depths: Sequence[float] = DEPTHS,
    progress: Progress | None = None,
) -> ContextReport:
    """Try every length in both forms.

    Args:
        model: in evaluation mode.
        tokenizer: its vocabulary.
        lengths: tokens of the contexts.
        seed: of names, codes and filler.
        filler: makes the sentences of one text.
        filler_name: for the report.
        model_name: for the report.
        threads: for the report.
        depths: where facts are planted, 0 the beginning and 1 the end.
        progress: told how many of how many texts are done.
    """
    plan = [
        (tokens, form, trial)
        for tokens in lengths
        for trial in range(MANY if tokens <= MANY_UP_TO else 1)
        for form in FORMS
    ]
    tried: dict[tuple[int, Form], list[Tried]] = {}
    for number, (tokens, form, trial) in enumerate(plan):
        # Both forms read the same text.
        rng = random.Random(f"gossamer needle {seed}/{tokens}/{trial}")
        planted = plant(rng, tokenizer, filler(rng), tokens, depths)
        tried.setdefault((tokens, form), []).append(attempt(model, tokenizer, planted, form))
        if progress is not None:
            progress(number + 1, len(plan))
    return ContextReport(
        model=model_name,
        gossamer_version=gossamer.__version__,
        seed=seed,
        filler=filler_name,
        threads=threads,
        block=BLOCK,
        results=[_result(tokens, form, some, depths) for (tokens, form), some in tried.items()],
    )


def _result(tokens: int, form: Form, tried: list[Tried], depths: Sequence[float]) -> LengthResult:
    num_read, duration_s = sum(t.num_read for t in tried), sum(t.duration_s for t in tried)
    return LengthResult(
        tokens=tokens,
        form=form,
        found=share([hit for t in tried for hit in t.found]),
        by_depth={f"{depth:g}": share([t.found[i] for t in tried]) for i, depth in enumerate(depths)},
        read_tokens=round(sum(t.length for t in tried) / len(tried)),
        s_per_1k_tokens=round(1000 * duration_s / max(1, num_read), 3),
    )
