"""One text of the corpus."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.train.sources import Category


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text with the package it came from."""

    package: str
    category: Category
    path: str
    text: str
    held_out: bool

    @property
    def num_bytes(self) -> int:
        """Length in UTF-8."""
        return len(self.text.encode())
