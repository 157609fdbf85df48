"""Kimi Delta Attention in chunks: matrix products inside a chunk, only the state scan is serial.

Shape legend: B batch, T tokens, H heads, M = B*H, N chunks, C chunk size, K key channels, V value channels.
README.md in this folder derives the formulas.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gossamer.ops.errors import ShapeError
from gossamer.ops.kda.products import decayed_products
from gossamer.ops.kda.scan import linear_scan
from gossamer.ops.kda.triangular import unit_lower_inverse

DEFAULT_CHUNK_SIZE = 32


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor | None = None,
    *,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    gate_lower_bound: float | None = None,
) -> tuple[Tensor, Tensor]:
    """The recurrence of `gossamer.ops.kda.naive.naive_kda`, C tokens at a time; same arguments and results.

    Args:
        q: [B, T, H, K], normalised and scaled.
        k: [B, T, H, K], normalised.
        v: [B, T, H, V].
        g: [B, T, H, K], log decay.
        beta: [B, T, H].
        state: [B, H, K, V] or None for zeros.
        chunk_size: C, a power of two; it changes speed, not the result.
        gate_lower_bound: A bound on g known in advance; it allows a cheaper, still safe factorisation.

    Returns:
        o [B, T, H, V] and the final state [B, H, K, V], both float32.

    Raises:
        ShapeError: chunk_size is not a power of two.
    """
    if chunk_size < 1 or chunk_size & (chunk_size - 1):
        raise ShapeError(f"chunk_size must be a power of two, got {chunk_size}")
    batch, tokens, heads, _ = q.shape
    with torch.autocast("cpu", enabled=False):
        # Padding tokens have k = 0, beta = 0 and g = 0, so they leave the state as it is.
        q, k, v, g = (_to_chunks(x.float(), chunk_size) for x in (q, k, v, g))
        beta = _to_chunks(beta.float().unsqueeze(-1), chunk_size)  # [M, N, C, 1]
        if state is None:
            start = q.new_zeros(batch * heads, q.shape[-1], v.shape[-1])
        else:
            start = state.float().flatten(0, 1)
        o, end = _chunked(q, k, v, g, beta, start, gate_lower_bound)
    o = o.reshape(batch, heads, -1, v.shape[-1])[:, :, :tokens].transpose(1, 2)
    return o, end.unflatten(0, (batch, heads))


def _to_chunks(x: Tensor, size: int) -> Tensor:
    """[B, T, H, D] -> [B*H, N, C, D], zero-padded to whole chunks."""
    batch, tokens, heads, width = x.shape
    padding = -tokens % size
    if padding:
        x = F.pad(x, (0, 0, 0, 0, 0, padding))
    return x.transpose(1, 2).reshape(batch * heads, -1, size, width)


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, start: Tensor, bound: float | None
) -> tuple[Tensor, Tensor]:
    """Takes q, k, g [M, N, C, K], v [M, N, C, V], beta [M, N, C, 1]; o [M, N, C, V] and end [M, K, V]."""
    size, width = q.shape[-2], q.shape[-1]
    # A product with a triangle of ones is a cumulative sum that runs at matrix speed.
    decay = torch.matmul(torch.ones(size, size).tril(), g)  # G, inclusive [M, N, C, K]
    qk, kk = decayed_products(q, k, decay, bound)  # [M, N, C, C]; lower, strictly lower
    inverse = unit_lower_inverse(beta * kk)
    grown = decay.exp()
    # A = inverse diag(beta); W = A (k exp(G)) and U = A v share one product.
    wu = inverse @ (beta * torch.cat([k * grown, v], -1))  # [M, N, C, K+V]
    w, u = wu.split([width, v.shape[-1]], -1)
    last = decay[..., -1:, :]
    step = (k * torch.exp(last - decay)).transpose(-1, -2) @ wu  # [M, N, K, K+V]
    outflow, inflow = step.split([width, v.shape[-1]], -1)
    transition = torch.diag_embed(last.squeeze(-2).exp()) - outflow
    states, end = linear_scan(transition, inflow, start)  # S before each chunk [M, N, K, V]
    new = u - w @ states
    return (q * grown) @ states + qk @ new, end
