"""What a caller may ask a forward pass to collect besides the logits."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(kw_only=True)
class Trace:
    """Pass one to `Transformer.forward`; it is filled during that pass.

    Attributes:
        want_indexer_loss: Collect `indexer_losses`; this makes the attention weights explicit, which is slow.
        indexer_losses: Layer to scalar KL loss, with gradients to the indexer's own weights only.
        expert_loads: Layer to [E] int64, (token, slot) pairs per routed expert.
    """

    want_indexer_loss: bool = False
    indexer_losses: dict[int, Tensor] = field(default_factory=dict)
    expert_loads: dict[int, Tensor] = field(default_factory=dict)
