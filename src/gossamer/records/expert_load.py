"""How a model's traffic fell on its experts: the output of `gossamer inspect --experts LOG --json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from gossamer.records.envelope import Count, Probability, Record, RecordError, Text, Value


class LayerLoad(Value, frozen=True, kw_only=True):
    """One layer's experts; a token counts once for each expert that worked on it."""

    layer: Count
    """0-based."""
    tokens: tuple[Count, ...]
    """By expert."""
    num_tokens: Count
    """Their sum, at least 1."""
    max_over_mean: Annotated[float, msgspec.Meta(ge=1)]
    """Load of the busiest expert over the mean: 1 is even, the number of experts is all on one."""
    busiest: Count
    """That expert; the first of several."""
    num_idle: Count
    """Experts without a token."""
    evenness: Probability
    """Entropy of the load over that of an even one."""

    def __post_init__(self) -> None:
        """Refuse a load whose parts contradict each other."""
        if sum(self.tokens) != self.num_tokens or self.num_tokens == 0:
            raise RecordError(
                f"layer {self.layer}: {self.num_tokens} tokens, but its experts have {sum(self.tokens)}"
            )
        most, num_idle = max(self.tokens), self.tokens.count(0)
        if self.busiest >= len(self.tokens) or self.tokens[self.busiest] != most or self.num_idle != num_idle:
            raise RecordError(
                f"layer {self.layer}: busiest {self.busiest} and num_idle {self.num_idle} "
                "contradict its tokens"
            )


class ExpertLoad(Record, frozen=True, kw_only=True, tag="gossamer.expert_load/1"):
    """The layers that have worked on tokens, rising."""

    model: Text
    num_experts: Count
    """Of a layer."""
    idle_layers: tuple[Count, ...]
    """Layers of the log without any load: those without experts, as a rule."""
    layers: tuple[LayerLoad, ...]
    basis: Literal["measured"] = "measured"
    """Of every number: counted while serving."""

    def __post_init__(self) -> None:
        """Refuse layers of another width or order, and a load of nothing."""
        if not self.layers:
            raise RecordError("no layer has worked on any token")
        for layer in self.layers:
            if len(layer.tokens) != self.num_experts:
                raise RecordError(
                    f"layer {layer.layer} has {len(layer.tokens)} experts where there are {self.num_experts}"
                )
        numbers = [layer.layer for layer in self.layers]
        if numbers != sorted(set(numbers)):
            raise RecordError(f"layers must rise, got {numbers!r:.200}")


def layer_load(layer: int, tokens: Sequence[int]) -> LayerLoad:
    """The figures of one layer with at least one token."""
    total, most = sum(tokens), max(tokens)
    shares = [count / total for count in tokens if count]
    entropy = -sum(share * math.log(share) for share in shares)
    return LayerLoad(
        layer=layer,
        tokens=tuple(tokens),
        num_tokens=total,
        max_over_mean=max(1.0, most * len(tokens) / total),
        busiest=tokens.index(most),
        num_idle=tokens.count(0),
        evenness=min(1.0, max(0.0, entropy / math.log(len(tokens)))) if len(tokens) > 1 else 1.0,
    )
