"""The routed experts: gated feed-forward networks, each applied to the tokens that chose it."""

from gossamer.ops.experts.grouped import grouped_experts
from gossamer.ops.experts.naive import naive_experts

__all__ = ["grouped_experts", "naive_experts"]
