"""Names for prefixes: a block's name covers its tokens and, through its parent's name, all before them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from gossamer.engine.api import Embeddings

DIGEST_BYTES = 32
"""Long enough that nobody can make two prefixes of one name, so tokens need not be compared."""


def root_hash(fingerprint: str, salt: str) -> bytes:
    """The parent of a sequence's first block.

    Args:
        fingerprint: Of the model and of how it computes; prefixes of two models never meet.
        salt: Requests share prefixes only with requests of the same salt.
    """
    parts = (fingerprint.encode(), salt.encode())
    return blake2b(
        b"".join(len(part).to_bytes(8, "little") + part for part in parts), digest_size=DIGEST_BYTES
    ).digest()


class BlockHasher:
    """The names of one growing sequence's full blocks, each computed once.

    Args:
        root: See `root_hash`.
        block_size: Tokens of a block.
        embeddings: What some tokens have instead of their own; two images fill the same token ids, so it is
            their digest that tells blocks apart.
    """

    def __init__(self, root: bytes, block_size: int, embeddings: Sequence[Embeddings] = ()):
        self._last = root
        self._block_size = block_size
        self._embeddings = tuple(embeddings)
        self._digests: list[bytes] = []

    def digests(self, token_ids: Sequence[int], num_blocks: int) -> list[bytes]:
        """Names of the first ``num_blocks`` blocks of ``token_ids``, which holds at least those.

        ``token_ids`` may have grown since the last call and must not have changed otherwise.
        """
        size = self._block_size
        for index in range(len(self._digests), num_blocks):
            tokens = np.asarray(token_ids[index * size : (index + 1) * size], "<i8")
            assert len(tokens) == size, f"block {index} is not full: {len(tokens)} of {size} tokens"
            named = self._last + tokens.tobytes() + self._given(index * size, (index + 1) * size)
            self._last = blake2b(named, digest_size=DIGEST_BYTES).digest()
            self._digests.append(self._last)
        return self._digests[:num_blocks]

    def _given(self, begin: int, end: int) -> bytes:
        """Which rows of what stand in for tokens begin .. end - 1; empty where none do."""
        return b"".join(
            struct.pack("<qqq", max(begin, part.start) - begin, max(0, begin - part.start), len(part.digest))
            + part.digest
            for part in self._embeddings
            if part.start < end and part.end > begin
        )
