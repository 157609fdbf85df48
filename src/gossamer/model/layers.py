"""Small parameter holders shared by the mechanisms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gossamer.config.model import ModelConfig
from gossamer.ops.rmsnorm import rms_norm
from gossamer.ops.situ import Activation, silu_gate, situ

_JOINT_ROWS = 32


class Projection(nn.Linear):
    """A linear map without bias, whose weight is undefined until `initialise` or a loader fills it."""

    def reset_parameters(self) -> None:
        """Nothing: torch's own initialisation would cost time and draw from the global generator."""


class Embedding(nn.Embedding):
    """The token table, undefined until filled."""

    def reset_parameters(self) -> None:
        """Nothing; see `Projection`."""


def linear(width_in: int, width_out: int) -> nn.Linear:
    """A projection; the text network has no biases."""
    return Projection(width_in, width_out, bias=False)


def joint_linear(x: Tensor, *layers: nn.Linear) -> tuple[Tensor, ...]:
    """Several projections of one input; one product where many rows make joining the weights worth it."""
    if x.shape[:-1].numel() < _JOINT_ROWS:
        return tuple(layer(x) for layer in layers)
    joined = F.linear(x, torch.cat([layer.weight for layer in layers]))
    return joined.split([layer.out_features for layer in layers], -1)


class RMSNorm(nn.Module):
    """`gossamer.ops.rmsnorm.rms_norm` with its weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] to [..., D]."""
        return rms_norm(x, self.weight, self.eps)


def activation(config: ModelConfig) -> Activation:
    """The gated activation the config names."""
    if config.activation == "silu":
        return silu_gate
    beta, linear_beta = config.situ_beta or 1.0, config.situ_linear_beta
    return lambda gate, up: situ(gate, up, beta, linear_beta)
