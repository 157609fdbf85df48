"""Routing of many tokens at once.

Shape legend: M tokens, D width, E experts, A experts per token.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Routing(NamedTuple):
    """Where each token goes: indices [M, A] int64 (best first) and weights [M, A] float32."""

    indices: Tensor
    weights: Tensor


def route(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    experts_per_token: int,
    num_groups: int = 1,
    top_k_groups: int = 1,
    renormalize: bool = True,
    scaling_factor: float = 1.0,
) -> Routing:
    """As `gossamer.ops.router.naive.naive_route`, vectorised; the product with the router is in float32."""
    with torch.autocast("cpu", enabled=False):
        scores = torch.sigmoid(F.linear(x.float(), weight.float()))
    biased = scores.detach() + bias.float()
    if num_groups > 1 and num_groups > top_k_groups:
        grouped = biased.unflatten(-1, (num_groups, -1))
        rank = grouped.topk(min(2, grouped.shape[-1]), -1).values.sum(-1)
        kept = torch.zeros_like(rank, dtype=torch.bool)
        kept.scatter_(-1, rank.sort(dim=-1, descending=True, stable=True).indices[..., :top_k_groups], True)
        biased = grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(-2)
    indices = best(biased, experts_per_token)
    weights = scores.gather(-1, indices)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return Routing(indices, weights * scaling_factor)


def best(biased: Tensor, experts_per_token: int) -> Tensor:
    """Experts by biased score [M, E], highest first, ties to the lower index: [M, A] int64."""
    return biased.sort(dim=-1, descending=True, stable=True).indices[..., :experts_per_token]


def expert_load(indices: Tensor, num_experts: int) -> Tensor:
    """How many (token, slot) pairs each expert received, [E] int64."""
    return torch.bincount(indices.flatten(), minlength=num_experts)
