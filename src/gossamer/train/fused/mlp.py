"""The dense gated feed-forward network of the fused network.

Shape legend: M tokens, D hidden width, F intermediate width.
"""

from __future__ import annotations

from torch import Tensor

from gossamer.train.fused.linear import joint_linear, linear
from gossamer.train.fused.pointwise import situ


def gated_mlp(
    x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, beta: float, linear_beta: float | None
) -> Tensor:
    """The product w_down situ(w_gate x, w_up x).

    Args:
        x: [M, D].
        w_gate: [F, D].
        w_up: [F, D].
        w_down: [D, F].
        beta: of SiTU.
        linear_beta: of SiTU.

    Returns:
        [M, D].

    Raises:
        ValueError: the shapes do not fit.
    """
    gate, up = joint_linear(x, w_gate, w_up)
    return linear(situ(gate, up, beta, linear_beta), w_down)
