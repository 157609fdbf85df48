"""The operators of the forward pass in numpy, one token at a time: what runs where no kernels are built.

Everything is float32.  Shape legend: N rows and K columns of a matrix, H heads, C channels of a KDA head, W
taps, R latent rank, P shared key width, G attended tokens, J indexer heads, E experts, A experts per token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer import mx
from gossamer.checkpoint.bf16 import bf16_to_f32, f32_to_bf16
from gossamer.config.model import ModelConfig, MoEConfig
from gossamer.kernels.weights import Weight

F32 = NDArray[Any]
"""float32; numpy's stubs cannot follow that through products."""


def values(weight: Weight) -> F32:
    """A matrix [N, K] decoded."""
    if weight.kind == "mxfp4":
        assert weight.scales is not None
        return mx.decode(mx.unpack4(weight.data), weight.scales, "mxfp4")
    return bf16_to_f32(weight.data) if weight.kind == "bf16" else weight.data


def rounded_to_bf16(x: F32) -> F32:
    """What BF16 keeps of x, nearest even; subnormal values are zeros of their sign, as VCVTNEPS2BF16."""
    return bf16_to_f32(
        f32_to_bf16(np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x))
    )


def sigmoid(x: F32) -> F32:
    """1 / (1 + e^-x)."""
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-x))


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """X rsqrt(mean(x^2) + eps) weight over the last axis."""
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)) * weight


def layer_norm(x: F32, weight: F32, bias: F32 | None, eps: float) -> F32:
    """The mean removed, scaled to variance one, times weight, plus bias."""
    centred = x - x.mean()
    unit = centred / np.sqrt(np.mean(centred * centred) + np.float32(eps))
    return unit * weight + (np.float32(0) if bias is None else bias)


def activate(config: ModelConfig, gate: F32, up: F32) -> F32:
    """SiTU or SiLU of the gate branch times the up branch; see `gossamer.ops.situ`."""
    if config.activation == "silu":
        return gate * sigmoid(gate) * up
    beta = np.float32(config.situ_beta or 1.0)
    if config.situ_linear_beta is not None:
        bound = np.float32(config.situ_linear_beta)
        up = bound * np.tanh(up / bound)
    return beta * np.tanh(gate / beta) * sigmoid(gate) * up


def residual_mix(candidates: list[F32], weight: F32, eps: float) -> F32:
    """Softmax over the candidates' scores, of the candidates themselves; see `gossamer.ops.attn_residual`."""
    if len(candidates) == 1:
        return candidates[0]
    stack = np.stack(candidates)
    scores = (stack @ weight) / np.sqrt(np.mean(stack * stack, -1) + np.float32(eps))
    p = np.exp(scores - scores.max())
    return (p / p.sum()) @ stack


def short_conv(x: F32, tail: F32, taps: F32) -> tuple[F32, F32]:
    """SiLU of the causal convolution: x [3HC], tail [W-1, 3HC], taps [3HC, W]; output and new tail."""
    window = np.concatenate([tail, x[None]])
    y = np.einsum("wc,cw->c", window, taps)
    return y * sigmoid(y), window[1:]


def kda_decay(z: F32, a_log: F32, lower_bound: float | None) -> F32:
    """The factor by which a step shrinks the state: z [H, C], a_log [H]."""
    rate = np.exp(a_log)[:, None]
    if lower_bound is not None:
        return np.exp(np.float32(lower_bound) * sigmoid(rate * z))
    return np.exp(-rate * np.logaddexp(np.float32(0), z))


def kda_step(q: F32, k: F32, v: F32, decay: F32, beta: F32, state: F32) -> tuple[F32, F32]:
    """One token: q, k, v, decay [H, C], beta [H], state [H, C, C]; see `gossamer.ops.kda.recurrent`."""
    decayed = decay[..., None] * state
    write = beta[:, None] * (v - np.einsum("hk,hkv->hv", k, decayed))
    new = decayed + k[..., None] * write[:, None, :]
    return np.einsum("hk,hkv->hv", q, new), new


def index_scores(queries: F32, keys: F32, weights: F32) -> F32:
    """sum_j w_j (J D)^-0.5 relu(q_j . k_s): queries [J, D], keys [S, D], weights [J]; [S]."""
    scale = np.float32(queries.size**-0.5)
    return np.maximum(keys @ queries.T, 0) @ (weights * scale)


def select_best(scores: F32, top_k: int) -> NDArray[np.int64]:
    """Positions of the top_k best, rising; among equals the lower position."""
    if scores.size <= top_k:
        return np.arange(scores.size)
    return np.sort(np.argsort(-scores, kind="stable")[:top_k])


def absorbed_attention(q: F32, rows: F32, w_kv: F32, rank: int, nope: int) -> F32:
    """Attention in the latent space over the given tokens.

    Args:
        q: [H, N+P].
        rows: [G, R+P].
        w_kv: [H, N+V, R].
        rank: R.
        nope: N.

    Returns:
        [H, V].
    """
    moved = np.einsum("hn,hnr->hr", q[:, :nope], w_kv[:, :nope])
    query = np.concatenate([moved, q[:, nope:]], -1)
    scores = query @ rows.T * np.float32(q.shape[-1] ** -0.5)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    mean = p / p.sum(-1, keepdims=True) @ rows[:, :rank]
    return np.einsum("hr,hvr->hv", mean, w_kv[:, nope:])


def choose_experts(logits: F32, bias: F32, moe: MoEConfig) -> tuple[NDArray[np.int64], F32]:
    """Experts [A] of one token, best first, and their weights; see `gossamer.ops.router`."""
    score = sigmoid(logits)
    biased = score + bias
    if moe.num_groups > moe.top_k_groups:
        groups = biased.reshape(moe.num_groups, -1)
        rank = np.sort(groups, -1)[:, -2:].sum(-1)
        closed = np.argsort(-rank, kind="stable")[moe.top_k_groups :]
        groups = groups.copy()
        groups[closed] = -np.inf
        biased = groups.reshape(-1)
    chosen = np.argsort(-biased, kind="stable")[: moe.experts_per_token]
    weights = score[chosen]
    if moe.renormalize:
        weights = weights / (weights.sum() + np.float32(1e-20))
    return chosen, weights * np.float32(moe.routed_scaling_factor)
