"""What a model or checkpoint consists of: the output of `gossamer inspect --json`."""

from __future__ import annotations

from typing import Literal

from gossamer.records.envelope import Count, Record, Text, Value

Basis = Literal["exact", "estimated", "measured", "unsettled"]
"""How a number was come by: counted from the config, computed by a formula with known omissions, read
from files, or left open by every source."""

Source = Literal["preset", "folder"]


class Component(Value, frozen=True, kw_only=True):
    """One part of the network, summed over its layers."""

    name: Text
    num_tensors: Count
    num_parameters: Count
    num_active_parameters: Count
    num_bytes: Count


class Tensor(Value, frozen=True, kw_only=True):
    """One tensor as the architecture wants it."""

    name: Text
    dtype: Text
    shape: tuple[Count, ...]
    component: Text
    is_optional: bool = False


class Flops(Value, frozen=True, kw_only=True):
    """Forward FLOPs of one token at a context length."""

    context: Count
    linear: Count
    attention: Count
    indexer: Count
    kda: Count
    total: Count


class Difference(Value, frozen=True, kw_only=True):
    """One tensor whose header is not what the architecture wants."""

    name: Text
    file: str
    expected: str
    found: str
    """What is expected and found: "shape [64]" or "dtype BF16"."""


class Comparison(Value, frozen=True, kw_only=True):
    """The headers of a checkpoint folder against the architecture."""

    num_files: Count
    num_tensors: Count
    num_bytes: Count
    is_complete: bool
    """No tensor missing and none with a wrong shape or dtype."""
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    differing: tuple[Difference, ...]
    num_missing: Count
    num_extra: Count
    num_differing: Count
    """Full counts; the lists may be cut."""


class Inventory(Record, frozen=True, kw_only=True, tag="gossamer.inventory/1"):
    """Sizes of one model, and what its folder holds when there is one."""

    name: Text
    source: Source
    family: Text
    num_layers: Count
    num_kda_layers: Count
    num_full_attention_layers: Count
    num_tensors: Count | None
    """None where the presence of some tensors is unsettled; low and high then differ."""
    num_tensors_low: Count
    num_tensors_high: Count
    unsettled_tensors: tuple[str, ...]
    num_parameters: Count
    num_unsettled_parameters: Count
    """The part of num_parameters in unsettled tensors."""
    num_active_parameters: Count
    """Per text token; the input embedding, a row lookup, is not counted."""
    num_vision_parameters: Count
    num_bytes: Count
    num_packed_bytes: Count
    components: tuple[Component, ...]
    flops_per_token: Flops
    latent_bytes_per_token: dict[str, Count]
    indexer_bytes_per_token: dict[str, Count]
    cache_bytes_per_token_bf16: Count
    state_bytes_per_sequence: dict[str, Count]
    basis: dict[str, Basis]
    """For every number above, by field name."""
    unknown_config_keys: tuple[str, ...] = ()
    comparison: Comparison | None = None
    tensors: tuple[Tensor, ...] | None = None
