"""Training rows: fixed-length pieces of text, and dialogues packed with a mask of what the model must say.

Every row is a function of (seed, row number), so a run that stopped goes on with exactly the rows it
would have seen.  Shape legend: B rows, T tokens.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.dialogue import decisive
from gossamer.train.dialogue.generate import Dialogue
from gossamer.train.document import Document
from gossamer.train.drill import Drills

DRILLS_PER_ROW = 64
"""Numbers of drills set aside for one row, more than ever fit."""
DIALOGUES_PER_ROW = 10
"""How many dialogues are tried for one row before it is padded."""
MIN_TAIL = 96
"""A dialogue is cut at the end of a row only when at least this many of its tokens fit."""


REPEATED_SHARE = 0.65
"""Of the spans of a copying row."""


class Row(NamedTuple):
    """One row of training data."""

    ids: np.ndarray
    """[T] int64."""
    targets: np.ndarray
    """[T] int64, the next token; -100 where nothing is asked."""
    decisive: np.ndarray
    """[T] int8, what each target decides: an index into `decisive.KINDS`."""


class RowSource(Protocol):
    """Rows by number."""

    def row(self, number: int) -> Row:
        """Row `number`, of T tokens."""
        ...


class Dialogues(Protocol):
    """Dialogues by number."""

    def dialogue(self, index: int) -> Dialogue:
        """Dialogue number `index`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Inputs with their targets."""

    ids: np.ndarray
    """[B, T] int64."""
    targets: np.ndarray
    """[B, T] int64, the next token; -100 where nothing is asked."""
    decisive: np.ndarray
    """[B, T] int8, what each target decides: an index into `decisive.KINDS`."""
    kinds: tuple[str, ...]
    """What each row is, by the name of its stream."""

    @property
    def num_tokens(self) -> int:
        """B * T."""
        return self.ids.size


def encode_corpus(documents: list[Document], tokenizer: Tokenizer, folder: Path) -> None:
    """Write one array of ids per category and split: `train-<category>.npy`, `held_out-<category>.npy`."""
    end = tokenizer.special(specials.EOS)
    kept: dict[tuple[str, str], list[np.ndarray]] = {}
    for document in documents:
        split = "held_out" if document.held_out else "train"
        ids = np.array([*tokenizer.encode(document.text), end], dtype=np.uint16)
        kept.setdefault((split, document.category), []).append(ids)
    for (split, category), parts in kept.items():
        np.save(folder / f"{split}-{category}.npy", np.concatenate(parts))


class TextRows:
    """Rows of text of several categories in given shares, each category walked in a seeded order."""

    def __init__(self, folder: Path, shares: Mapping[str, float], length: int, seed: int):
        self._arrays = {
            category: np.load(folder / f"train-{category}.npy", mmap_mode="r")
            for category in shares
            if (folder / f"train-{category}.npy").exists()
        }
        self._names = sorted(self._arrays)
        weights = np.array([shares[name] for name in self._names])
        self._shares = weights / weights.sum()
        self._length = length
        self._seed = seed
        self._orders = {
            name: np.random.default_rng([seed, i]).permutation(max(1, (len(a) - 1) // length))
            for i, (name, a) in enumerate(sorted(self._arrays.items()))
        }
        self._schedule = np.zeros(0, dtype=np.int64)
        self._ranks = np.zeros(0, dtype=np.int64)

    def row(self, number: int) -> Row:
        """Row `number`, of T tokens."""
        self._extend(number + 1)
        name = self._names[self._schedule[number]]
        order = self._orders[name]
        start = int(order[self._ranks[number] % len(order)]) * self._length
        piece = self._arrays[name][start : start + self._length + 1].astype(np.int64)
        if len(piece) < self._length + 1:
            piece = np.concatenate(
                [piece, self._arrays[name][: self._length + 1 - len(piece)].astype(np.int64)]
            )
        return _plain(piece[:-1], piece[1:])

    def _extend(self, count: int) -> None:
        """Which category each row takes and how many rows of it came before; grown in blocks."""
        if count <= len(self._schedule):
            return
        size = 4096 * (1 + count // 4096)
        draws = np.random.default_rng([self._seed, 77]).random(size)
        self._schedule = np.searchsorted(np.cumsum(self._shares)[:-1], draws, side="right")
        self._ranks = np.zeros(size, dtype=np.int64)
        for category in range(len(self._names)):
            own = self._schedule == category
            self._ranks[own] = np.arange(int(own.sum()))


class DialogueRows:
    """Rows of whole dialogues, separated by the document end; targets are the assistant's own tokens."""

    def __init__(self, generator: Dialogues, tokenizer: Tokenizer, length: int, *, everything: bool = False):
        self._generator = generator
        self._tokenizer = tokenizer
        self._length = length
        self._everything = everything
        self._end = tokenizer.special(specials.EOS)
        self._pad = tokenizer.special(specials.PAD)

    def row(self, number: int) -> Row:
        """Row `number`, of T tokens."""
        ids: list[int] = []
        flags: list[bool] = []
        kinds: list[int] = []
        room = self._length + 1
        for offset in range(DIALOGUES_PER_ROW):
            rendered = self._generator.dialogue(number * DIALOGUES_PER_ROW + offset).render(self._tokenizer)
            left = room - len(ids)
            if len(rendered.ids) + 1 > left and not (ids and left >= MIN_TAIL and offset >= 5) and ids:
                continue
            ids += [*rendered.ids, self._end][:left]
            flags += [*rendered.generated, False][:left]
            kinds += [*decisive.kinds(rendered, self._tokenizer), 0][:left]
            if len(ids) >= room:
                break
        real = len(ids)
        ids += [self._pad] * (room - real)
        flags += [False] * (room - real)
        kinds += [0] * (room - real)
        row = np.array(ids, dtype=np.int64)
        asked = np.arange(room) < real if self._everything else np.array(flags)
        return Row(row[:-1], np.where(asked, row, -100)[1:], np.array(kinds, dtype=np.int8)[1:])


class DrillRows:
    """Rows of copying drills; only what earlier text tells is asked, and a drill that does not fit is cut."""

    def __init__(self, drills: Drills, tokenizer: Tokenizer, length: int):
        self._drills = drills
        self._tokenizer = tokenizer
        self._length = length
        self._end = tokenizer.special(specials.EOS)

    def row(self, number: int) -> Row:
        """Row `number`, of T tokens."""
        ids: list[int] = []
        asked: list[bool] = []
        offset = 0
        while len(ids) < self._length + 1:
            for text, told in self._drills.pieces(number * DRILLS_PER_ROW + offset):
                own = self._tokenizer.encode(text)
                ids += own
                asked += [told] * len(own)
            ids.append(self._end)
            asked.append(False)
            offset += 1
        row = np.array(ids[: self._length + 1], dtype=np.int64)
        return _plain(row[:-1], np.where(asked[: self._length + 1], row, -100)[1:])


class CopyRows:
    """Rows of random tokens said again: nothing but looking back predicts them.

    A row is a chain of spans: new ones, tokens drawn one by one, and earlier ones of the same row said again,
    whole or in part, from any distance.  Only the repetitions are targets, from their third token on.

    Args:
        folder: of the encoded text; tokens are drawn with its frequencies.
        length: T.
        seed: of the rows.
        num_ranks: half of the spans are drawn from all ranks alike, so that rare tokens are copied too.
    """

    def __init__(self, folder: Path, length: int, seed: int, num_ranks: int):
        paths = sorted(folder.glob("train-*.npy"))
        self._arrays = [np.load(path, mmap_mode="r") for path in paths]
        self._length = length
        self._seed = seed
        self._num_ranks = num_ranks

    def row(self, number: int) -> Row:
        """Row `number`, of T tokens."""
        rng = np.random.default_rng([self._seed, 91, number])
        ids: list[np.ndarray] = []
        asked: list[np.ndarray] = []
        spans: list[np.ndarray] = []
        room = self._length + 1
        while room > 0:
            again = len(spans) > 0 and rng.random() < REPEATED_SHARE
            if again:
                span = self._part(rng, spans[int(rng.integers(len(spans)))])
            else:
                span = self._drawn(rng, int(np.exp(rng.uniform(np.log(3), np.log(self._length // 12)))))
                spans.append(span)
            flags = np.full(len(span), again)
            # Where a repetition starts cannot be foreseen, nor can a frequent token tell what follows it.
            flags[:2] = False
            ids.append(span)
            asked.append(flags)
            room -= len(span)
        row = np.concatenate(ids)[: self._length + 1]
        return _plain(row[:-1], np.where(np.concatenate(asked)[: self._length + 1], row, -100)[1:])

    @staticmethod
    def _part(rng: np.random.Generator, span: np.ndarray) -> np.ndarray:
        """The whole span, or a piece of at least four tokens."""
        if len(span) < 8 or rng.random() < 0.5:
            return span
        size = int(rng.integers(4, len(span)))
        start = int(rng.integers(0, len(span) - size + 1))
        return span[start : start + size]

    def _drawn(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """`count` tokens, each from a place of its own."""
        if not self._arrays or rng.random() < 0.5:
            return rng.integers(0, self._num_ranks, count)
        array = self._arrays[int(rng.integers(len(self._arrays)))]
        return np.minimum(array[rng.integers(0, len(array), count)].astype(np.int64), self._num_ranks - 1)


class MixedRows:
    """Several streams in one: each row comes from one of them, drawn by the shares.

    Args:
        streams: name to (rows, share); shares are normalised.
        seed: of the draws.
    """

    def __init__(self, streams: Mapping[str, tuple[RowSource, float]], seed: int):
        self._streams = {name: rows for name, (rows, share) in streams.items() if share > 0}
        self._shares = [share for _, share in streams.values() if share > 0]
        self._seed = seed

    def row(self, number: int) -> tuple[str, Row]:
        """Name of the stream and the row, of T tokens."""
        rng = random.Random(f"{self._seed}/mix/{number}")
        (name,) = rng.choices(list(self._streams), self._shares)
        return name, self._streams[name].row(number)

    def batch(self, first_row: int, num_rows: int) -> Batch:
        """Rows first_row .. first_row + num_rows - 1."""
        rows = [self.row(first_row + i) for i in range(num_rows)]
        return Batch(
            ids=np.stack([row.ids for _, row in rows]),
            targets=np.stack([row.targets for _, row in rows]),
            decisive=np.stack([row.decisive for _, row in rows]),
            kinds=tuple(name for name, _ in rows),
        )


def _plain(ids: np.ndarray, targets: np.ndarray) -> Row:
    """A row without a call in it."""
    return Row(ids, targets, np.zeros(len(ids), dtype=np.int8))
