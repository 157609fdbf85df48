"""Initial KDA layers that remember and that look back.

With dt_bias = 0 a bounded gate starts at half its bound, -2.5 per token: the state forgets within two tokens,
and a short run never finds its way out.  And with queries and keys from projections of their own, a query
matches no key until both have been learned, which needs values that can be read, which needs a match: runs
of millions of tokens stay on that plateau and copy nothing (docs/nano.md).  Here channels start with memories
from a few tokens to the whole context, and most heads start as look-ups of what followed an earlier token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.transformer import Transformer

SHORTEST_TOKENS = 2.0
LONGEST_TOKENS = 2000.0
LOOK_BACK_SHARE = 0.75
"""Of every layer's heads."""
LOOK_BACK_TOKENS = (64.0, 4000.0)


@torch.no_grad()
def prepare_kda(model: Transformer) -> None:
    """`lengthen_memory`, then `look_back`."""
    lengthen_memory(model)
    look_back(model)


@torch.no_grad()
def lengthen_memory(model: Transformer) -> None:
    """Set dt_bias of every KDA layer so that channel memories run from 2 to 2,000 tokens."""
    for layer in _bounded(model):
        layer.dt_bias.copy_(_bias(layer, SHORTEST_TOKENS, LONGEST_TOKENS).flatten())


@torch.no_grad()
def look_back(model: Transformer) -> None:
    """Let the first heads of every KDA layer begin as one-layer induction heads.

    Query and key share one projection, the query sees the token itself, the key the token before, the value
    the token itself: what comes out at t is the value of the token that followed earlier tokens like t.
    Nothing is tied: all of it is trained from the first step on.
    """
    for layer in _bounded(model):
        heads = round(LOOK_BACK_SHARE * layer.config.num_heads)
        width = heads * layer.config.head_dim
        layer.q_proj.weight[:width] = layer.k_proj.weight[:width]
        for taps, back in ((layer.q_conv1d, 1), (layer.k_conv1d, 2), (layer.v_conv1d, 1)):
            taps.weight[:width] = 0
            taps.weight[:width, :, -back] = 1
        layer.dt_bias[:width] = _bias(layer, *LOOK_BACK_TOKENS)[:heads].flatten()


def _bounded(model: Transformer) -> list[KimiDeltaAttention]:
    layers = [m for m in model.modules() if isinstance(m, KimiDeltaAttention)]
    return [layer for layer in layers if layer.config.gate_lower_bound is not None]


def _bias(layer: KimiDeltaAttention, shortest: float, longest: float) -> Tensor:
    """dt_bias [H, K] for memories spread evenly on a log scale over the channels of each head.

    The gate is g = bound * sigmoid(exp(A_log) * (f + dt_bias)); at f = 0 it shall be -1 / memory.
    """
    bound = layer.config.gate_lower_bound
    assert bound is not None
    memory = shortest * (longest / shortest) ** torch.linspace(0, 1, layer.config.head_dim)  # [K]
    return torch.logit((1 / memory) / -bound).unsqueeze(0) / layer.A_log.float().exp().unsqueeze(1)
