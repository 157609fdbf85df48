"""The definition of the short causal convolution.

Shape legend: B batch, T tokens, C channels, W taps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def naive_short_conv(x: Tensor, weight: Tensor, tail: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """y_t = SiLU(sum_j weight[:, j] x_{t-W+1+j}): the last tap is the current token, zeros before the start.

    Args:
        x: [B, T, C].
        weight: [C, 1, W].
        tail: [B, W-1, C], the inputs just before x, oldest first; None for zeros.

    Returns:
        y [B, T, C] float32 and the new tail [B, W-1, C] in x's dtype.
    """
    batch, tokens, channels = x.shape
    taps = weight.shape[-1]
    if tail is None:
        tail = x.new_zeros(batch, taps - 1, channels)
    past = torch.cat([tail.to(x.dtype), x], 1)
    rows = []
    for t in range(tokens):
        total = torch.zeros(batch, channels)
        for j in range(taps):
            total = total + weight[:, 0, j].float() * past[:, t + j].float()
        rows.append(F.silu(total))
    return torch.stack(rows, 1), past[:, tokens:]
