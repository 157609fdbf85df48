"""SiTU, the bounded gated activation, and SiLU beside it under one signature.

Shape legend: ``...`` any leading axes, I intermediate width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Activation = Callable[[Tensor, Tensor], Tensor]


def situ(gate: Tensor, up: Tensor, beta: float, linear_beta: float | None) -> Tensor:
    """[beta tanh(gate/beta) sigmoid(gate)] * [linear_beta tanh(up/linear_beta)], in float32.

    Args:
        gate: [..., I].
        up: [..., I].
        beta: Bound of the gate branch.
        linear_beta: Bound of the up branch; None leaves it unbounded.

    Returns:
        [..., I] in gate's dtype.
    """
    g, u = gate.float(), up.float()
    bounded = beta * torch.tanh(g / beta) * torch.sigmoid(g)
    if linear_beta is not None:
        u = linear_beta * torch.tanh(u / linear_beta)
    return (bounded * u).to(gate.dtype)


def silu_gate(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, in float32, cast to gate's dtype."""
    return (F.silu(gate.float()) * up.float()).to(gate.dtype)
