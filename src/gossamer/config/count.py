"""Exact sizes of a model from its config: tensors, parameters, bytes, cache, state, FLOPs.

`summary` works on groups of like tensors and takes microseconds at any size; `tensors` spells every
tensor out and is only for inventories.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gossamer.config import layout
from gossamer.config.layout import BYTES_PER_ELEMENT, COMPONENTS, TensorGroup
from gossamer.config.model import ModelConfig

VISION_COMPONENTS = ("vision_tower", "projector")


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor as it must stand in a checkpoint."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As in a safetensors header: BF16, F32, U8."""
    component: str
    layer: int | None
    """0-based layer, or vision block; None outside the layers."""
    expert: int | None
    optional: bool
    """True where no source settles whether the file has it."""
    num_parameters: int
    """Model parameters it holds: two per byte of packed codes, none for block scales."""

    @property
    def num_bytes(self) -> int:
        """Stored bytes."""
        return math.prod(self.shape) * BYTES_PER_ELEMENT[self.dtype]


@dataclass(frozen=True, kw_only=True)
class ComponentRow:
    """One component of a model, summed."""

    component: str
    num_tensors: int
    num_parameters: int
    num_active_parameters: int
    """Parameters one text token is multiplied with or looked up in."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Forward FLOPs of one token, 2 per multiply-add; norms, activations and softmax are left out."""

    context: int
    """Tokens in the sequence so far, the current one included."""
    linear: int
    """2 x the parameters of every matrix the token meets (top-k experts, output head included)."""
    attention: int
    """Scores and values of the full-attention layers over the tokens they attend to."""
    indexer: int
    """Index scores over the whole context."""
    kda: int
    """State decay, read, update and query (7 per state value) and the short convolutions."""

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return self.linear + self.attention + self.indexer + self.kda


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a model costs before anything is measured."""

    name: str
    family: str
    num_tensors_low: int
    num_tensors_high: int
    """Differs from low where the presence of some tensors is unsettled."""
    num_parameters: int
    """With vision, and with tensors whose presence is unsettled."""
    num_unsettled_parameters: int
    num_active_parameters: int
    """Text model, top-k experts, output head in, input embedding (a row lookup) and vision out."""
    num_bytes: int
    """Tensor data of the checkpoint, without file headers; unsettled tensors included."""
    num_packed_bytes: int
    """The part of num_bytes in MXFP4 codes and scales."""
    components: tuple[ComponentRow, ...]
    unsettled: tuple[str, ...]
    """Name patterns of tensors that may or may not be there."""
    flops: Flops
    latent_bytes_per_token: dict[str, int]
    """Latent KV cache over all full-attention layers, by storage format."""
    indexer_bytes_per_token: dict[str, int]
    state_bytes_per_sequence: dict[str, int]
    """KDA state and convolution tails over all KDA layers, by recurrent-state dtype; any length."""

    @property
    def is_settled(self) -> bool:
        """Whether the tensor count is one number."""
        return self.num_tensors_low == self.num_tensors_high

    def component(self, name: str) -> ComponentRow:
        """The row of one component; zeros where the model has none."""
        for row in self.components:
            if row.component == name:
                return row
        return ComponentRow(
            component=name, num_tensors=0, num_parameters=0, num_active_parameters=0, num_bytes=0
        )


def tensors(config: ModelConfig) -> Iterator[TensorSpec]:
    """Every tensor of the checkpoint by its published name, layer by layer.

    The tensors of one expert stand next to each other, as in the released shards.
    """
    plain: list[TensorGroup] = []
    layered: list[TensorGroup] = []
    for group in layout.groups(config):
        (plain if group.layers is None else layered).append(group)
    head = [group for group in plain if group.component == "embedding"]
    tail = [group for group in plain if group.component != "embedding"]
    for group in head:
        yield _spec(group, None, None)
    text = [group for group in layered if group.component not in VISION_COMPONENTS]
    vision = [group for group in layered if group.component in VISION_COMPONENTS]
    yield from _walk(text, config.num_layers)
    for group in tail:
        yield _spec(group, None, None)
    if config.vision is not None:
        yield from _walk(vision, config.vision.num_layers)


def summary(config: ModelConfig, *, context: int | None = None) -> Summary:
    """Sizes and costs of a model.

    Args:
        config: the model.
        context: tokens in the sequence for the FLOPs; None takes the model's maximum.
    """
    found = list(layout.groups(config))
    unsettled = [group for group in found if group.is_optional]
    high = sum(group.num_tensors for group in found)
    rows = tuple(_rows(config, found))
    return Summary(
        name=config.name,
        family=config.family,
        num_tensors_low=high - sum(group.num_tensors for group in unsettled),
        num_tensors_high=high,
        num_parameters=sum(row.num_parameters for row in rows),
        num_unsettled_parameters=sum(group.num_parameters for group in unsettled),
        num_active_parameters=sum(row.num_active_parameters for row in rows if row.component != "embedding"),
        num_bytes=sum(row.num_bytes for row in rows),
        num_packed_bytes=sum(group.num_bytes for group in found if group.dtype == "U8"),
        components=rows,
        unsettled=tuple(group.pattern for group in unsettled),
        flops=flops_per_token(config, context=context or config.max_context),
        latent_bytes_per_token=latent_bytes_per_token(config),
        indexer_bytes_per_token=indexer_bytes_per_token(config),
        state_bytes_per_sequence=state_bytes_per_sequence(config),
    )


def flops_per_token(config: ModelConfig, *, context: int, is_absorbed: bool = True) -> Flops:
    """Forward FLOPs of the token that ends a sequence of ``context`` tokens.

    Per layer, with n = min(context, top_k) attended tokens under DSA and n = context otherwise:
    attention 2 H n (2 kv_lora + rope) in the absorbed form used while decoding, or
    2 H n (nope + rope + v) in the expanded form used for prefill; indexer 2 Hi context (di + 1);
    KDA 7 H K V for decay, read, rank-one update and query, plus 2 taps per convolved channel.
    Applying kv_b_proj costs the same in both forms and is part of the linear term.
    """
    mla, dsa, kda = config.mla, config.dsa, config.kda
    per_score = (
        2 * mla.kv_lora_rank + mla.qk_rope_head_dim if is_absorbed else mla.qk_head_dim + mla.v_head_dim
    )
    attention = indexer = 0
    for layer in config.full_attention_layers:
        attended = context
        if dsa is not None and config.has_indexer(layer):
            attended = min(context, dsa.top_k)
            indexer += 2 * dsa.num_heads * context * (dsa.head_dim + 1)
        attention += 2 * mla.num_heads * attended * per_score
    num_kda = config.num_layers - len(config.full_attention_layers)
    recurrence = 7 * kda.num_heads * kda.head_dim**2
    convolution = 3 * kda.width * 2 * kda.conv_kernel_size
    return Flops(
        context=context,
        linear=2 * sum(_used(config, g) for g in layout.groups(config) if g.is_matmul),
        attention=attention,
        indexer=indexer,
        kda=num_kda * (recurrence + convolution),
    )


def latent_bytes_per_token(config: ModelConfig) -> dict[str, int]:
    """Latent KV bytes per token, all full-attention layers together, by storage format.

    fp8_ds_mla is the DeepSeek layout: FP8 latent, one F32 scale per 128 values, BF16 key part.
    """
    mla, layers = config.mla, len(config.full_attention_layers)
    scales = 4 * math.ceil(mla.kv_lora_rank / 128)
    return {
        "bf16": 2 * mla.latent_width * layers,
        "fp8": mla.latent_width * layers,
        "fp8_ds_mla": (mla.kv_lora_rank + scales + 2 * mla.qk_rope_head_dim) * layers,
    }


def indexer_bytes_per_token(config: ModelConfig) -> dict[str, int]:
    """Indexer key bytes per token, all DSA layers together; empty for a model without an indexer.

    FP8 keys carry one F32 scale per 128 values, MXFP4 keys one E8M0 byte per 32.
    """
    if config.dsa is None:
        return {}
    width, layers = config.dsa.head_dim, len(config.dsa.layers)
    return {
        "bf16": 2 * width * layers,
        "fp8": (width + 4 * math.ceil(width / 128)) * layers,
        "mxfp4": (math.ceil(width / 2) + math.ceil(width / 32)) * layers,
    }


def state_bytes_per_sequence(config: ModelConfig) -> dict[str, int]:
    """KDA bytes of one sequence of any length: state [H, K, V] and BF16 tails [3 H K, kernel - 1]."""
    kda = config.kda
    layers = config.num_layers - len(config.full_attention_layers)
    state = kda.num_heads * kda.head_dim**2
    tail = 2 * 3 * kda.width * (kda.conv_kernel_size - 1)
    return {"f32": (4 * state + tail) * layers, "bf16": (2 * state + tail) * layers}


def _rows(config: ModelConfig, found: list[TensorGroup]) -> Iterator[ComponentRow]:
    for component in COMPONENTS:
        members = [group for group in found if group.component == component]
        if members:
            yield ComponentRow(
                component=component,
                num_tensors=sum(group.num_tensors for group in members),
                num_parameters=sum(group.num_parameters for group in members),
                num_active_parameters=sum(_used(config, group) for group in members),
                num_bytes=sum(group.num_bytes for group in members),
            )


def _used(config: ModelConfig, group: TensorGroup) -> int:
    """Parameters of a group that one text token meets."""
    if group.component in VISION_COMPONENTS:
        return 0
    if group.component == "routed_experts":
        # Every expert is the same size, so this is exact.
        return group.num_parameters // config.moe.num_experts * config.moe.experts_per_token
    return group.num_parameters


def _walk(members: list[TensorGroup], num_layers: int) -> Iterator[TensorSpec]:
    by_layer: list[list[TensorGroup]] = [[] for _ in range(num_layers)]
    for group in members:
        for layer in group.layers or ():
            by_layer[layer].append(group)
    for layer, present in enumerate(by_layer):
        experts = [group for group in present if group.num_experts]
        for group in present:
            if not group.num_experts:
                yield _spec(group, layer, None)
        for expert in range(experts[0].num_experts or 0 if experts else 0):
            for group in experts:
                yield _spec(group, layer, expert)


def _spec(group: TensorGroup, layer: int | None, expert: int | None) -> TensorSpec:
    return TensorSpec(
        name=group.pattern.format(layer=layer, expert=expert),
        shape=group.shape,
        dtype=group.dtype,
        component=group.component,
        layer=layer,
        expert=expert,
        optional=group.is_optional,
        num_parameters=math.prod(group.shape) * group.values_per_element,
    )
