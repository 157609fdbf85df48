"""The dense gated feed-forward network: layer 0, and the shared experts as one of their joint width."""

from __future__ import annotations

from torch import Tensor, nn

from gossamer.config.model import ModelConfig
from gossamer.model.layers import activation, joint_linear, linear


class DenseMLP(nn.Module):
    """down(act(gate(x), up(x)))."""

    def __init__(self, config: ModelConfig, intermediate_size: int) -> None:
        super().__init__()
        self.gate_proj = linear(config.hidden_size, intermediate_size)
        self.up_proj = linear(config.hidden_size, intermediate_size)
        self.down_proj = linear(intermediate_size, config.hidden_size)
        self.activation = activation(config)

    def forward(self, x: Tensor) -> Tensor:
        """X [B, T, D] to [B, T, D]."""
        gate, up = joint_linear(x, self.gate_proj, self.up_proj)
        return self.down_proj(self.activation(gate, up))
