"""The learned query of one attention-residual mix.

The published names are ``<where>_norm.weight`` [D] and ``<where>_proj.weight`` [1, D], so both are plain
modules beside the sub-layer they feed; this file only names the pair.
"""

from __future__ import annotations

from torch import Tensor, nn

from gossamer.model.layers import RMSNorm
from gossamer.ops.attn_residual import mix


def mixed(prefix: Tensor, blocks: list[Tensor], norm: RMSNorm, proj: nn.Linear) -> Tensor:
    """The input of a sub-layer: snapshots of earlier blocks and the running prefix, mixed by their scores.

    Args:
        prefix: [B, T, D].
        blocks: Snapshots [B, T, D], oldest first.
        norm: Its weight and eps.
        proj: Its weight [1, D].

    Returns:
        [B, T, D].
    """
    return mix([*blocks, prefix], norm.weight, proj.weight, norm.eps)
