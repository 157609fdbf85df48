"""The tokens that text is written in, as far as grammars need them."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.errors import GossamerError


class VocabularyError(GossamerError, ValueError):
    """A vocabulary in which some text cannot be written."""


class Vocabulary:
    """Ordinary tokens by id and by their bytes.

    Args:
        tokens: The bytes of ids 0, 1, ...; every single byte must be among them.

    Raises:
        VocabularyError: a byte has no token of its own.
    """

    def __init__(self, tokens: Sequence[bytes]):
        self.tokens = tuple(tokens)
        self.ids: dict[bytes, int] = {}
        for token_id, token in enumerate(self.tokens):
            self.ids.setdefault(token, token_id)
        missing = [byte for byte in range(256) if bytes([byte]) not in self.ids]
        if missing:
            raise VocabularyError(f"the vocabulary has no token for the byte 0x{missing[0]:02x} alone")
        self.byte_ids = tuple(self.ids[bytes([byte])] for byte in range(256))
        self.longest = max(map(len, self.tokens))

    def __len__(self) -> int:
        return len(self.tokens)
