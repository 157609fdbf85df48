"""Kimi Delta Attention layer.

Shape legend: B batch, T tokens, D hidden width, H heads, K head width (key and value), W convolution taps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gossamer.config.model import ModelConfig
from gossamer.model.cache import KDAState
from gossamer.model.layers import joint_linear, linear
from gossamer.ops.kda import chunk_kda, log_decay, recurrent_kda
from gossamer.ops.rmsnorm import l2_normalise
from gossamer.ops.short_conv import short_conv

_RECURRENT_TOKENS = 8


class KimiDeltaAttention(nn.Module):
    """A gated linear recurrence per head; its memory of the past has a fixed size.

    A_log, dt_bias, the convolutions and o_norm are float32 parameters whatever the model's dtype.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        kda, hidden = config.kda, config.hidden_size
        self.config, self.norm_eps = kda, config.rms_norm_eps
        self.q_proj = linear(hidden, kda.width)
        self.k_proj = linear(hidden, kda.width)
        self.v_proj = linear(hidden, kda.width)
        self.q_conv1d = ConvWeight(kda.width, kda.conv_kernel_size)
        self.k_conv1d = ConvWeight(kda.width, kda.conv_kernel_size)
        self.v_conv1d = ConvWeight(kda.width, kda.conv_kernel_size)
        self.f_a_proj = linear(hidden, kda.head_dim)
        self.f_b_proj = linear(kda.head_dim, kda.width)
        self.b_proj = linear(hidden, kda.num_heads)
        self.A_log = nn.Parameter(torch.zeros(kda.num_heads))
        self.dt_bias = nn.Parameter(torch.zeros(kda.width))
        if kda.full_rank_gate:
            self.g_proj = linear(hidden, kda.width)
        else:
            self.g_a_proj = linear(hidden, kda.head_dim)
            self.g_b_proj = linear(kda.head_dim, kda.width)
        self.o_norm = HeadNorm(kda.head_dim)
        self.o_proj = linear(kda.width, hidden)

    def forward(self, x: Tensor, cache: KDAState | None = None) -> Tensor:
        """X [B, T, D], the normed layer input, to [B, T, D]; continues from the cache and updates it."""
        kda = self.config
        heads = (kda.num_heads, kda.head_dim)
        gate_in = self.g_proj if kda.full_rank_gate else self.g_a_proj
        q, k, v, f, gate, b = joint_linear(
            x, self.q_proj, self.k_proj, self.v_proj, self.f_a_proj, gate_in, self.b_proj
        )
        taps = torch.cat([self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight])
        mixed, tail = short_conv(torch.cat([q, k, v], -1), taps, None if cache is None else cache.conv_tail)
        q, k, v = (part.unflatten(-1, heads) for part in mixed.chunk(3, -1))  # [B, T, H, K] float32
        q = l2_normalise(q, kda.l2_norm_eps) * kda.head_dim**-0.5
        k = l2_normalise(k, kda.l2_norm_eps)
        beta = torch.sigmoid(b.float())  # [B, T, H]
        z = (self.f_b_proj(f).float() + self.dt_bias.float()).unflatten(-1, heads)
        g = log_decay(z, self.A_log, kda.gate_lower_bound)
        state = None if cache is None else cache.state
        if x.shape[1] <= _RECURRENT_TOKENS:
            o, state = recurrent_kda(q, k, v, g, beta, state)
        else:
            o, state = chunk_kda(q, k, v, g, beta, state, gate_lower_bound=kda.gate_lower_bound)
        if cache is not None:
            cache.store(tail, state)
        if not kda.full_rank_gate:
            gate = self.g_b_proj(gate)
        o = self.o_norm(o, gate.unflatten(-1, heads), self.norm_eps)
        return self.o_proj(o.flatten(-2).to(x.dtype))


class ConvWeight(nn.Module):
    """The weight of one depthwise convolution, [H*K, 1, W]."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, taps))


class HeadNorm(nn.Module):
    """RMS norm of each head times the output gate's sigmoid, in float32; the weight is shared by heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, o: Tensor, gate: Tensor, eps: float) -> Tensor:
        """O and gate [B, T, H, K] to float32 [B, T, H, K]."""
        unit = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps)
        return unit * self.weight.float() * torch.sigmoid(gate.float())
