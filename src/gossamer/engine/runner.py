"""What the engine core asks of a model: run pieces of several sequences, keep their state.  Free of torch.

Shapes: V vocabulary, D width of an embedding, R rows whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gossamer.engine.api import Logits

Snapshot = NDArray[np.uint8]
"""The recurrent state of one sequence at one position, as bytes that only its runner reads."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Neighbouring tokens of one sequence in one forward pass.

    Attributes:
        token_ids: Of positions start, start + 1, ...; at least one.
        start: Position of the first, equal to the tokens that slot and blocks hold already.
        slot: Where the sequence's KDA state and convolution tails live.
        blocks: Block table; block i holds positions i * block_size and up, and the table covers all
            positions up to the segment's end.
        want_logits: Whether the logits after the last token are wanted.
        embeddings: (place in token_ids, rows [N, D]) of tokens that have embeddings of their own.
    """

    token_ids: Sequence[int]
    start: int
    slot: int
    blocks: Sequence[int]
    want_logits: bool
    embeddings: Sequence[tuple[int, NDArray[np.float32]]] = ()


class Runner(Protocol):
    """A model with room for some sequences.

    A sequence's rows do not depend on what else is in the batch, on how its tokens were split into segments,
    or on the number of threads: the bits are the same.
    """

    @property
    def vocab_size(self) -> int:
        """V."""
        ...

    @property
    def hidden_size(self) -> int:
        """D, the width of an embedding."""
        ...

    @property
    def max_context(self) -> int:
        """Positions of one sequence."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens of one block of latent KV and indexer keys."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks there are."""
        ...

    @property
    def num_slots(self) -> int:
        """Slots there are."""
        ...

    @property
    def block_bytes(self) -> int:
        """Memory of one block over all layers."""
        ...

    @property
    def slot_bytes(self) -> int:
        """Memory of one slot, and of one `Snapshot`, over all layers."""
        ...

    def run(self, segments: Sequence[Segment]) -> Logits:
        """One forward pass; no two segments share a slot.

        Returns:
            [R, V] float32, the rows of the segments that want logits in their order.
        """
        ...

    def clear_slot(self, slot: int) -> None:
        """Bring a slot to the state before position 0."""
        ...

    def save_slot(self, slot: int) -> Snapshot:
        """A copy of a slot's state."""
        ...

    def restore_slot(self, slot: int, snapshot: Snapshot) -> None:
        """Bring a slot to a saved state."""
        ...

    def expert_loads(self) -> NDArray[np.int64]:
        """Tokens that each routed expert of each layer has worked on since the start, [layers, experts]."""
        ...
