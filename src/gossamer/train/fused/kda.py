"""The KDA mixer between its projections as one operation with a native forward and backward pass.

Shape legend: B batch, T tokens, H heads, K head width, W = H*K, N chunks of all heads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gossamer.train.fused.native import kernels

_NUM_INPUTS = 12


def kda_mixer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_taps: Tensor,
    k_taps: Tensor,
    v_taps: Tensor,
    z: Tensor,
    dt_bias: Tensor,
    a_log: Tensor,
    b: Tensor,
    gate: Tensor,
    o_norm_weight: Tensor,
    *,
    num_heads: int,
    lower_bound: float | None,
    l2_eps: float,
    norm_eps: float,
) -> Tensor:
    """What `gossamer.model.kda.KimiDeltaAttention` computes between its projections, from an empty state.

    Short convolution with SiLU, L2 norm of q and k, decay, delta rule, head norm and output gate.  All
    tensors are float32 on the CPU; the wide inputs may be slices of one wider tensor.  README.md of
    `gossamer.ops.kda` derives the chunked form.

    Args:
        q: [B, T, W], the projection before the convolution.
        k: [B, T, W], likewise.
        v: [B, T, W], likewise.
        q_taps: [W, 1, taps], the last tap is the current token.
        k_taps: [W, 1, taps].
        v_taps: [W, 1, taps].
        z: [B, T, W], the decay projection before dt_bias.
        dt_bias: [W].
        a_log: [H].
        b: [B, T, H], write strength before the sigmoid.
        gate: [B, T, W], output gate before the sigmoid.
        o_norm_weight: [K].
        num_heads: H.
        lower_bound: Negative bound of the log decay, or None for the softplus decay.
        l2_eps: Added to the sum of squares of q and k.
        norm_eps: Added to the mean square of the output.

    Returns:
        [B, T, W], the input of the output projection.

    Raises:
        ValueError: shapes do not fit, or lower_bound is not negative.
    """
    if b.shape[-1] != num_heads:
        raise ValueError(f"kda_mixer: b has {b.shape[-1]} heads, expected num_heads = {num_heads}")
    inputs = q, k, v, q_taps, k_taps, v_taps, z, dt_bias, a_log, b, gate, o_norm_weight
    return _Mixer.apply(*inputs, lower_bound, l2_eps, norm_eps, torch.is_grad_enabled())


class _Mixer(torch.autograd.Function):
    """Forward keeps the state before each chunk; backward recomputes the rest of a chunk from the inputs."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        inputs = [_rows(x) for x in arguments[:_NUM_INPUTS]]
        lower_bound, l2_eps, norm_eps, graded = arguments[_NUM_INPUTS:]
        q, b = inputs[0], inputs[9]
        batch, tokens, width = q.shape
        native = kernels()
        mixer = native.KdaMixer(*inputs, lower_bound, l2_eps, norm_eps)
        starts = torch.empty(batch, tokens + 1, dtype=torch.int32)
        counts = torch.empty(batch, dtype=torch.int32)
        num_chunks = mixer.plan(starts, counts)
        out = torch.empty(batch, tokens, width)
        if not (graded and any(ctx.needs_input_grad)):
            mixer.forward(starts, counts, out, None)
            return out
        kept = torch.empty(num_chunks, native.kda_kept(width // b.shape[-1]))
        mixer.forward(starts, counts, out, kept)
        ctx.mixer, ctx.kept = mixer, (starts, counts, kept)
        ctx.shapes = [x.shape for x in inputs]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        grads = [torch.zeros(shape) if len(shape) == 1 else torch.empty(shape) for shape in ctx.shapes]
        for taps in grads[3:6]:
            taps.zero_()
        ctx.mixer.backward(*ctx.kept, grad_outputs[0].detach().contiguous(), *grads)
        return *grads, None, None, None, None


def _rows(x: Tensor) -> Tensor:
    """The tensor without its graph and without gaps inside its rows."""
    x = x.detach()
    return x if x.dim() == 3 and x.stride(-1) == 1 and x.shape[-1] > 1 and x.shape[1] > 1 else x.contiguous()
