"""Latent mixture of experts: router at full width, routed experts at a narrower width, shared experts.

Shape legend: B batch, T tokens, M = B*T, D hidden width, Z latent width, I intermediate width, E experts,
A experts per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from gossamer.config.model import ModelConfig
from gossamer.model.dense_mlp import DenseMLP
from gossamer.model.errors import ModelError
from gossamer.model.layers import RMSNorm, activation, linear
from gossamer.model.trace import Trace
from gossamer.mx.tensor import decode4, fake_quant
from gossamer.ops.experts import grouped_experts
from gossamer.ops.router import expert_load, route

ExpertStorage = Literal["dense", "packed"]


@dataclass(frozen=True, kw_only=True)
class ExpertOptions:
    """How the routed experts are held and computed; not part of the architecture.

    Attributes:
        storage: "dense" float parameters, or "packed" MXFP4 bytes decoded when used.
        fake_quant: Dense only: compute with the values MXFP4 would store, gradients straight through.
        mxfp8_activations: Round the input of both expert products to MXFP8 (E4M3).  The published checkpoint
            declares weights only, so this is off by default.
        activation_rule: Scale rule of that rounding.
    """

    storage: ExpertStorage = "dense"
    fake_quant: bool = False
    mxfp8_activations: bool = False
    activation_rule: Literal["floor", "even", "rceil"] = "floor"

    def __post_init__(self) -> None:
        """Refuse combinations that mean nothing."""
        if self.storage not in ("dense", "packed"):
            raise ModelError(f"experts must be 'dense' or 'packed', got {self.storage!r}")
        if self.fake_quant and self.storage == "packed":
            raise ModelError("packed experts are already MXFP4: expert_fake_quant needs experts='dense'")


class LatentMoE(nn.Module):
    """up(norm(sum_e weight_e expert_e(down x))) + shared(x)."""

    def __init__(self, config: ModelConfig, layer: int, options: ExpertOptions) -> None:
        super().__init__()
        moe = config.moe
        self.layer, self.config = layer, moe
        self.gate = Router(moe.num_experts, config.hidden_size)
        if moe.latent_size is not None:
            self.routed_expert_down_proj = linear(config.hidden_size, moe.latent_size)
            self.routed_expert_up_proj = linear(moe.latent_size, config.hidden_size)
            if moe.latent_norm:
                self.routed_expert_norm = RMSNorm(moe.latent_size, config.rms_norm_eps)
        if moe.num_shared_experts:
            self.shared_experts = DenseMLP(config, moe.intermediate_size * moe.num_shared_experts)
        self.experts = Experts(config, options)

    def forward(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        """X [B, T, D], the normed input, to [B, T, D]."""
        moe = self.config
        routing = route(
            x.flatten(0, -2),
            self.gate.weight,
            self.gate.e_score_correction_bias,
            experts_per_token=moe.experts_per_token,
            num_groups=moe.num_groups,
            top_k_groups=moe.top_k_groups,
            renormalize=moe.renormalize,
            scaling_factor=moe.routed_scaling_factor,
        )
        if trace is not None:
            trace.expert_loads[self.layer] = expert_load(routing.indices, moe.num_experts)
        z = x if moe.latent_size is None else self.routed_expert_down_proj(x)
        y = self.experts(z.flatten(0, -2), routing.indices, routing.weights).to(x.dtype).view(z.shape)
        if moe.latent_size is not None:
            if moe.latent_norm:
                y = self.routed_expert_norm(y)
            y = self.routed_expert_up_proj(y)
        return y + self.shared_experts(x) if moe.num_shared_experts else y


class Router(nn.Module):
    """weight [E, D]; e_score_correction_bias [E] float32 moves the selection and gets no gradient."""

    def __init__(self, num_experts: int, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_experts, hidden))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(num_experts), requires_grad=False)


class Experts(nn.Module):
    """All routed experts of a layer, stacked: w1 (gate) and w3 (up) [E, I, Z], w2 (down) [E, Z, I]."""

    w1: Tensor
    w2: Tensor
    w3: Tensor

    def __init__(self, config: ModelConfig, options: ExpertOptions) -> None:
        super().__init__()
        moe, width = config.moe, config.expert_width
        self.options = options
        self.weight_rule: Literal["floor", "even", "rceil"] = (
            config.quant.scale_rule if config.quant else "even"
        )
        self.activation = activation(config)
        shapes = {
            "w1": (moe.num_experts, moe.intermediate_size, width),
            "w2": (moe.num_experts, width, moe.intermediate_size),
            "w3": (moe.num_experts, moe.intermediate_size, width),
        }
        for name, (num, rows, columns) in shapes.items():
            if options.storage == "dense":
                self.register_parameter(name, nn.Parameter(torch.zeros(num, rows, columns)))
            else:
                packed = torch.zeros(num, rows, columns // 2, dtype=torch.uint8)
                scale = torch.full((num, rows, columns // 32), 127, dtype=torch.uint8)
                self.register_buffer(f"{name}_packed", packed)
                self.register_buffer(f"{name}_scale", scale)

    def forward(self, z: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        """Z [M, Z], indices [M, A], weights [M, A] float32; [M, Z] float32."""
        if self.options.storage == "packed":
            used, indices = indices.unique(return_inverse=True)
            w1, w3, w2 = (self._decoded(name, used, z.dtype) for name in ("w1", "w3", "w2"))
        else:
            w1, w3, w2 = self.w1, self.w3, self.w2
            if self.options.fake_quant:
                w1, w3, w2 = (fake_quant(w, "mxfp4", self.weight_rule) for w in (w1, w3, w2))
        quantise = self._round_activations if self.options.mxfp8_activations else None
        return grouped_experts(z, indices, weights, w1, w3, w2, self.activation, quantise)

    def _decoded(self, name: str, used: Tensor, dtype: torch.dtype) -> Tensor:
        packed, scale = getattr(self, f"{name}_packed"), getattr(self, f"{name}_scale")
        return decode4(packed[used], scale[used], dtype)

    def _round_activations(self, x: Tensor) -> Tensor:
        return fake_quant(x, "mxfp8_e4m3", self.options.activation_rule)
