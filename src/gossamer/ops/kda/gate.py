"""The two decay gates of Kimi Delta Attention.

Shape legend: B batch, T tokens, H heads, K key channels.  They are different formulas, not one with a clamp:
which one a model uses follows from whether its config sets ``gate_lower_bound``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def bounded_decay(z: Tensor, a_log: Tensor, lower_bound: float) -> Tensor:
    """lower_bound * sigmoid(exp(A_log) z): log decay in (lower_bound, 0).

    Args:
        z: [B, T, H, K] float32, gate projection plus dt_bias.
        a_log: [H] float32.
        lower_bound: Negative.

    Returns:
        [B, T, H, K] float32.
    """
    return lower_bound * torch.sigmoid(a_log.float().exp().unsqueeze(-1) * z.float())


def softplus_decay(z: Tensor, a_log: Tensor) -> Tensor:
    """-exp(A_log) softplus(z): log decay in (-inf, 0).  Shapes as in `bounded_decay`."""
    return -a_log.float().exp().unsqueeze(-1) * F.softplus(z.float())


def log_decay(z: Tensor, a_log: Tensor, lower_bound: float | None) -> Tensor:
    """`bounded_decay` where a bound is set, `softplus_decay` where it is None."""
    if lower_bound is None:
        return softplus_decay(z, a_log)
    return bounded_decay(z, a_log, lower_bound)
