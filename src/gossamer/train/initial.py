"""Initial decay gates with a long memory.

With dt_bias = 0 a bounded gate starts at half its bound, -2.5 per token: the state forgets within two tokens,
and a short run never finds its way out.  Here the channels of every head start with memories spread
evenly, on a log scale, from a few tokens to the whole context.
"""

from __future__ import annotations

import torch

from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.transformer import Transformer

SHORTEST_TOKENS = 2.0
LONGEST_TOKENS = 2000.0


@torch.no_grad()
def lengthen_memory(model: Transformer) -> None:
    """Set dt_bias of every KDA layer so that channel memories run from 2 to 2,000 tokens.

    The gate is g = bound * sigmoid(exp(A_log) * (f + dt_bias)); at f = 0 it shall be -1 / memory.
    """
    for layer in model.modules():
        if not isinstance(layer, KimiDeltaAttention) or layer.config.gate_lower_bound is None:
            continue
        steps = torch.linspace(0, 1, layer.config.head_dim)
        memory = SHORTEST_TOKENS * (LONGEST_TOKENS / SHORTEST_TOKENS) ** steps  # [K]
        share = (1 / memory) / -layer.config.gate_lower_bound
        bias = torch.logit(share).unsqueeze(0) / layer.A_log.float().exp().unsqueeze(1)  # [H, K]
        layer.dt_bias.copy_(bias.flatten())
