"""Shared text: 13-grams of words between held-out and training documents, and copies within training.

A 13-gram is 13 words in a row (letters, digits and underscores, in lower case) within one document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from gossamer.train.document import Document
from gossamer.train.errors import TrainError

N = 13
LIMIT = 0.01
"""Share of a held-out set's 13-grams that may occur in training."""
COPY_SHARE = 0.5
"""A training document with this share of its 13-grams in earlier ones is a copy."""
LEAK_SHARE = 0.02
"""A training document with this share of its 13-grams held out is dropped at once."""
LEAK_COUNT = 100
WORD = re.compile(r"\w+")


class Grams:
    """Turns documents into 64-bit hashes of their 13-grams, with one table of words for all of them."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        rng = np.random.default_rng(13)
        self._weights = rng.integers(1, 2**63, N, dtype=np.uint64) | np.uint64(1)

    def of(self, text: str) -> np.ndarray:
        """Hashes [max(0, W - 12)] uint64 of the W words of a text."""
        table = self._ids
        ids = [table.setdefault(word, len(table) + 1) for word in WORD.findall(text.lower())]
        if len(ids) < N:
            return np.zeros(0, dtype=np.uint64)
        mixed = np.array(ids, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        count = len(ids) - N + 1
        sums = np.zeros(count, dtype=np.uint64)
        for k, weight in enumerate(self._weights):
            sums += mixed[k : k + count] * weight
        return sums


def clean(documents: list[Document]) -> list[int]:
    """Positions of the documents to keep: no copies, no empty ones, none that leaks held-out text.

    Raises:
        TrainError: more than 1 % of a held-out set's 13-grams stay in training.
    """
    grams = Grams()
    hashes = [grams.of(d.text) for d in documents]
    secret = _unique(hashes[i] for i, d in enumerate(documents) if d.held_out)
    candidates = [
        i for i, d in enumerate(documents) if d.text and not d.held_out and not _leaks(hashes[i], secret)
    ]
    repeated = _repeated_share([hashes[i] for i in candidates])
    exact: set[str] = set()
    kept = [i for i, d in enumerate(documents) if d.held_out and d.text]
    for i, share in zip(candidates, repeated, strict=True):
        if share <= COPY_SHARE and documents[i].text not in exact:
            exact.add(documents[i].text)
            kept.append(i)
    for name, share in _shares(documents, hashes, kept).items():
        if share >= LIMIT:
            raise TrainError(f"{share:.2%} of the 13-grams of the held-out {name} set occur in training text")
    return sorted(kept)


def _repeated_share(hashes: list[np.ndarray]) -> list[float]:
    """Per document: the share of its 13-grams that an earlier document holds."""
    sizes = [len(own) for own in hashes]
    owner = np.repeat(np.arange(len(hashes)), sizes)
    every = np.concatenate(hashes) if hashes else np.zeros(0, dtype=np.uint64)
    _, first, inverse = np.unique(every, return_index=True, return_inverse=True)
    again = owner[first][inverse] < owner
    counts = np.bincount(owner[again], minlength=len(hashes))
    return [count / size if size else 0.0 for count, size in zip(counts, sizes, strict=True)]


def report(documents: list[Document]) -> dict[str, float]:
    """Per held-out set: the share of its 13-grams that occur in the training documents."""
    grams = Grams()
    hashes = [grams.of(d.text) for d in documents]
    return _shares(documents, hashes, range(len(documents)))


def _shares(documents: list[Document], hashes: list[np.ndarray], kept: Iterable[int]) -> dict[str, float]:
    kept = list(kept)
    training = _unique(hashes[i] for i in kept if not documents[i].held_out)
    shares: dict[str, float] = {}
    for name in sorted({documents[i].category for i in kept if documents[i].held_out}):
        parts = [hashes[i] for i in kept if documents[i].held_out and documents[i].category == name]
        own = np.concatenate(parts)
        shares[name] = float(_within(own, training).mean()) if len(own) else 0.0
    return shares


def _leaks(own: np.ndarray, secret: np.ndarray) -> bool:
    hits = int(_within(own, secret).sum())
    return hits > LEAK_COUNT or hits > LEAK_SHARE * len(own)


def _unique(parts: Iterable[np.ndarray]) -> np.ndarray:
    every = list(parts)
    return np.unique(np.concatenate(every)) if every else np.zeros(0, dtype=np.uint64)


def _within(own: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which of `own` are in the sorted array."""
    if not len(ordered):
        return np.zeros(len(own), dtype=bool)
    at = np.minimum(np.searchsorted(ordered, own), len(ordered) - 1)
    return ordered[at] == own
