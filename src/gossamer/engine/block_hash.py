"""Names for prefixes: a block's name covers its tokens and, through its parent's name, all before them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

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
    """

    def __init__(self, root: bytes, block_size: int):
        self._last = root
        self._block_size = block_size
        self._digests: list[bytes] = []

    def digests(self, token_ids: Sequence[int], num_blocks: int) -> list[bytes]:
        """Names of the first ``num_blocks`` blocks of ``token_ids``, which holds at least those.

        ``token_ids`` may have grown since the last call and must not have changed otherwise.
        """
        size = self._block_size
        for index in range(len(self._digests), num_blocks):
            tokens = np.asarray(token_ids[index * size : (index + 1) * size], "<i8")
            assert len(tokens) == size, f"block {index} is not full: {len(tokens)} of {size} tokens"
            self._last = blake2b(self._last + tokens.tobytes(), digest_size=DIGEST_BYTES).digest()
            self._digests.append(self._last)
        return self._digests[:num_blocks]
