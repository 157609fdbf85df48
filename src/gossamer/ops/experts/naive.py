"""The definition of the routed experts: one token and one expert at a time, in float32.

Shape legend: M tokens, Z expert width (latent), I intermediate width, E experts, A experts per token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.ops.situ import Activation


def naive_experts(
    z: Tensor, indices: Tensor, weights: Tensor, w1: Tensor, w3: Tensor, w2: Tensor, activation: Activation
) -> Tensor:
    """y_m = sum_a weights[m, a] w2_e( activation(w1_e z_m, w3_e z_m) ), e = indices[m, a].

    Args:
        z: [M, Z].
        indices: [M, A] int64.
        weights: [M, A] float32.
        w1: [E, I, Z], gate.
        w3: [E, I, Z], up.
        w2: [E, Z, I], down.
        activation: Takes (gate, up).

    Returns:
        [M, Z] float32.
    """
    rows = []
    for m in range(z.shape[0]):
        total = torch.zeros(z.shape[1])
        for a in range(indices.shape[1]):
            e = int(indices[m, a])
            x = z[m].float()
            hidden = activation(w1[e].float() @ x, w3[e].float() @ x)
            total = total + weights[m, a] * (w2[e].float() @ hidden)
        rows.append(total)
    return torch.stack(rows)
