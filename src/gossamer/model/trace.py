"""What a caller may ask a forward pass to collect besides the logits."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(kw_only=True)
class Trace:
    """Pass one to `Transformer.forward`; it is filled during that pass.

    Attributes:
        want_indexer_loss: Collect `indexer_losses`; this makes the attention weights explicit, which is slow.
        indexer_losses: Layer to scalar KL loss, with gradients to the indexer's own weights only.
        expert_loads: Layer to [E] int64, (token, slot) pairs per routed expert.
        want_mix: Collect `candidates` of the residual mix that this layer's attention reads; the number of
            layers stands for the output head's.
        candidates: [C, B, T, D], what that mix chooses from: snapshots, oldest first, then the prefix.
    """

    want_indexer_loss: bool = False
    indexer_losses: dict[int, Tensor] = field(default_factory=dict)
    expert_loads: dict[int, Tensor] = field(default_factory=dict)
    want_mix: int | None = None
    candidates: Tensor | None = None

    def see_mix(self, layer: int, candidates: list[Tensor]) -> None:
        """Called before each mix with what it chooses from."""
        if layer == self.want_mix:
            self.candidates = torch.stack(candidates)
