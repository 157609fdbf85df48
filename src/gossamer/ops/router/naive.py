"""The definition of routing, one token at a time, in float32.

Shape legend: M tokens, D width, E experts, A experts per token.
"""

from __future__ import annotations

import torch
from torch import Tensor


def naive_route(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    experts_per_token: int,
    num_groups: int = 1,
    top_k_groups: int = 1,
    renormalize: bool = True,
    scaling_factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Sigmoid scores; the bias decides who is selected, never the weight.  Ties go to the lower expert index.

    Groups are ranked by the sum of their two best biased scores; only experts of the best groups compete.

    Args:
        x: [M, D].
        weight: [E, D].
        bias: [E], e_score_correction_bias.
        experts_per_token: A.
        num_groups: Equal groups of neighbouring experts.
        top_k_groups: How many groups may be used per token.
        renormalize: Make the chosen scores sum to one before scaling.
        scaling_factor: Multiplies the weights.

    Returns:
        Expert indices [M, A] int64, best first, and weights [M, A] float32.
    """
    num_experts = weight.shape[0]
    size = num_experts // num_groups
    all_indices, all_weights = [], []
    for row in x.float():
        score = torch.sigmoid(weight.float() @ row)
        biased = (score.detach() + bias.float()).tolist()
        rank = [sum(sorted(biased[i * size : (i + 1) * size])[-2:]) for i in range(num_groups)]
        groups = sorted(range(num_groups), key=lambda i: (-rank[i], i))[:top_k_groups]
        open_experts = [e for e in range(num_experts) if e // size in groups]
        chosen = sorted(open_experts, key=lambda e: (-biased[e], e))[:experts_per_token]
        picked = score[chosen]
        if renormalize:
            picked = picked / (picked.sum() + 1e-20)
        all_indices.append(torch.tensor(chosen))
        all_weights.append(picked * scaling_factor)
    return torch.stack(all_indices), torch.stack(all_weights)
