"""The tensors of a checkpoint as groups: one entry per name pattern, not per tensor.

Names, shapes and dtypes follow the released files; the K3 and Kimi-Linear inventories are held by
golden totals in the tests.  Shapes are [out, in].

    D hidden  V vocab  H heads  E experts  Z expert intermediate  I expert width (latent)  F dense width
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gossamer.config.model import ModelConfig, QuantConfig, VisionConfig

BYTES_PER_ELEMENT = {"BF16": 2, "F32": 4, "U8": 1}

COMPONENTS = (
    "embedding",
    "kda",
    "mla",
    "indexer",
    "norms",
    "attn_res",
    "dense_ffn",
    "router",
    "latent_proj",
    "shared_experts",
    "routed_experts",
    "lm_head",
    "vision_tower",
    "projector",
)
"""Every component a tensor can belong to, in the order of the tables."""


@dataclass(frozen=True, kw_only=True)
class TensorGroup:
    """All tensors that share a name pattern, a shape and a dtype."""

    pattern: str
    """Published name with "{layer}" and "{expert}" left open."""
    shape: tuple[int, ...]
    dtype: str
    component: str
    layers: tuple[int, ...] | None = None
    """Layers (or vision blocks) that have it; None for a tensor that stands once."""
    num_experts: int | None = None
    values_per_element: int = 1
    """2 for packed MXFP4 codes, 0 for block scales: what one stored element counts as a parameter."""
    is_matmul: bool = False
    """Whether each used token multiplies by it; norms, biases, convolutions and lookups do not count."""
    is_optional: bool = False
    """Its presence is settled by no source; a file with or without it is complete."""

    @property
    def num_tensors(self) -> int:
        """How many tensors the pattern stands for."""
        return (1 if self.layers is None else len(self.layers)) * (self.num_experts or 1)

    @property
    def num_parameters(self) -> int:
        """Model parameters in the whole group."""
        return math.prod(self.shape) * self.values_per_element * self.num_tensors

    @property
    def num_bytes(self) -> int:
        """Stored bytes of the whole group."""
        return math.prod(self.shape) * BYTES_PER_ELEMENT[self.dtype] * self.num_tensors


def groups(config: ModelConfig) -> Iterator[TensorGroup]:
    """Every tensor group of a model, embedding first, vision last."""
    hidden, vocab = config.hidden_size, config.vocab_size
    root = text_prefix(config)
    yield TensorGroup(
        pattern=f"{root}model.embed_tokens.weight",
        shape=(vocab, hidden),
        dtype="BF16",
        component="embedding",
    )
    for group in _layer_groups(config, f"{root}model.layers.{{layer}}."):
        if group.layers:
            yield group
    yield _vector(f"{root}model.norm.weight", hidden, "norms")
    if config.attn_res_block_size:
        yield _vector(f"{root}model.output_attn_res_norm.weight", hidden, "attn_res")
        yield _matrix(f"{root}model.output_attn_res_proj.weight", 1, hidden, "attn_res")
    if not config.tie_word_embeddings:
        yield _matrix(f"{root}lm_head.weight", vocab, hidden, "lm_head")
    if config.vision is not None:
        yield from _vision(config.vision)


def text_prefix(config: ModelConfig) -> str:
    """What stands before "model.layers": K3 nests the text model, Kimi-Linear does not."""
    return "" if config.family == "kimi-linear" else "language_model."


def with_storage_of(config: ModelConfig, names: Iterable[str]) -> ModelConfig:
    """The config with the expert format that the tensor names of a checkpoint show.

    What decides how experts are stored is whether ``weight_packed`` exists, not what the config file
    declares: its ignore list leaves several unpacked matrices out.
    """
    packed = any(name.endswith(".weight_packed") for name in names)
    if packed == (config.quant is not None and config.quant.expert_format == "mxfp4"):
        return config
    quant = config.quant or QuantConfig()
    return replace(config, quant=replace(quant, expert_format="mxfp4" if packed else "bf16"))


def _matrix(
    pattern: str, out: int, width: int, component: str, layers: tuple[int, ...] | None = None
) -> TensorGroup:
    return TensorGroup(
        pattern=pattern, shape=(out, width), dtype="BF16", component=component, layers=layers, is_matmul=True
    )


def _vector(
    pattern: str, size: int, component: str, layers: tuple[int, ...] | None = None, dtype: str = "BF16"
) -> TensorGroup:
    return TensorGroup(pattern=pattern, shape=(size,), dtype=dtype, component=component, layers=layers)


def _layer_groups(config: ModelConfig, prefix: str) -> Iterator[TensorGroup]:
    hidden = config.hidden_size
    every = tuple(range(config.num_layers))
    yield _vector(f"{prefix}input_layernorm.weight", hidden, "norms", every)
    if config.attn_res_block_size:
        for name in ("self_attention_res", "mlp_res"):
            yield _vector(f"{prefix}{name}_norm.weight", hidden, "attn_res", every)
            yield _matrix(f"{prefix}{name}_proj.weight", 1, hidden, "attn_res", every)
    kda = tuple(i for i in every if config.layer_types[i] == "kda")
    yield from _kda(config, f"{prefix}self_attn.", kda)
    yield from _mla(config, f"{prefix}self_attn.", tuple(sorted(config.full_attention_layers)))
    if config.dsa is not None:
        yield from _indexer(config, f"{prefix}self_attn.indexer.")
    yield _vector(f"{prefix}post_attention_layernorm.weight", hidden, "norms", every)
    dense = tuple(i for i in every if not config.is_moe_layer(i))
    yield from _ffn(f"{prefix}mlp.", hidden, config.intermediate_size, "dense_ffn", dense)
    sparse = tuple(i for i in every if config.is_moe_layer(i))
    yield from _moe(config, f"{prefix}block_sparse_moe.", sparse)


def _kda(config: ModelConfig, prefix: str, layers: tuple[int, ...]) -> Iterator[TensorGroup]:
    kda, hidden, width = config.kda, config.hidden_size, config.kda.width
    # Kimi-Linear keeps convolutions and the output norm in BF16, K3 in F32.
    small = "BF16" if config.family == "kimi-linear" else "F32"
    for name in ("q", "k", "v"):
        yield _matrix(f"{prefix}{name}_proj.weight", width, hidden, "kda", layers)
        yield TensorGroup(
            pattern=f"{prefix}{name}_conv1d.weight",
            shape=(width, 1, kda.conv_kernel_size),
            dtype=small,
            component="kda",
            layers=layers,
        )
    yield _matrix(f"{prefix}f_a_proj.weight", kda.head_dim, hidden, "kda", layers)
    yield _matrix(f"{prefix}f_b_proj.weight", width, kda.head_dim, "kda", layers)
    yield _matrix(f"{prefix}b_proj.weight", kda.num_heads, hidden, "kda", layers)
    a_log = (1, 1, kda.num_heads, 1) if config.family == "kimi-linear" else (kda.a_log_size,)
    yield TensorGroup(pattern=f"{prefix}A_log", shape=a_log, dtype="F32", component="kda", layers=layers)
    yield _vector(f"{prefix}dt_bias", width, "kda", layers, "F32")
    if kda.full_rank_gate:
        yield _matrix(f"{prefix}g_proj.weight", width, hidden, "kda", layers)
    else:
        yield _matrix(f"{prefix}g_a_proj.weight", kda.head_dim, hidden, "kda", layers)
        yield _matrix(f"{prefix}g_b_proj.weight", width, kda.head_dim, "kda", layers)
    yield _vector(f"{prefix}o_norm.weight", kda.head_dim, "kda", layers, small)
    yield _matrix(f"{prefix}o_proj.weight", hidden, width, "kda", layers)


def _mla(config: ModelConfig, prefix: str, layers: tuple[int, ...]) -> Iterator[TensorGroup]:
    mla, hidden = config.mla, config.hidden_size
    queries = mla.num_heads * mla.qk_head_dim
    if mla.q_lora_rank is None:
        yield _matrix(f"{prefix}q_proj.weight", queries, hidden, "mla", layers)
    else:
        yield _matrix(f"{prefix}q_a_proj.weight", mla.q_lora_rank, hidden, "mla", layers)
        yield _vector(f"{prefix}q_a_layernorm.weight", mla.q_lora_rank, "mla", layers)
        yield _matrix(f"{prefix}q_b_proj.weight", queries, mla.q_lora_rank, "mla", layers)
    yield _matrix(f"{prefix}kv_a_proj_with_mqa.weight", mla.latent_width, hidden, "mla", layers)
    yield _vector(f"{prefix}kv_a_layernorm.weight", mla.kv_lora_rank, "mla", layers)
    per_head = mla.qk_nope_head_dim + mla.v_head_dim
    yield _matrix(f"{prefix}kv_b_proj.weight", mla.num_heads * per_head, mla.kv_lora_rank, "mla", layers)
    values = mla.num_heads * mla.v_head_dim
    if mla.output_gate:
        yield _matrix(f"{prefix}g_proj.weight", values, hidden, "mla", layers)
    yield _matrix(f"{prefix}o_proj.weight", hidden, values, "mla", layers)


def _indexer(config: ModelConfig, prefix: str) -> Iterator[TensorGroup]:
    dsa, rank = config.dsa, config.mla.q_lora_rank
    assert dsa is not None
    assert rank is not None
    layers = tuple(sorted(dsa.layers))
    yield _matrix(f"{prefix}wq_b.weight", dsa.num_heads * dsa.head_dim, rank, "indexer", layers)
    yield _matrix(f"{prefix}wk.weight", dsa.head_dim, config.hidden_size, "indexer", layers)
    yield _matrix(f"{prefix}weights_proj.weight", dsa.num_heads, config.hidden_size, "indexer", layers)
    yield _vector(f"{prefix}k_norm.weight", dsa.head_dim, "indexer", layers)
    if dsa.k_norm_bias is not False:
        yield TensorGroup(
            pattern=f"{prefix}k_norm.bias",
            shape=(dsa.head_dim,),
            dtype="BF16",
            component="indexer",
            layers=layers,
            is_optional=dsa.k_norm_bias is None,
        )


def _ffn(
    prefix: str, hidden: int, width: int, component: str, layers: tuple[int, ...]
) -> Iterator[TensorGroup]:
    yield _matrix(f"{prefix}gate_proj.weight", width, hidden, component, layers)
    yield _matrix(f"{prefix}up_proj.weight", width, hidden, component, layers)
    yield _matrix(f"{prefix}down_proj.weight", hidden, width, component, layers)


def _moe(config: ModelConfig, prefix: str, layers: tuple[int, ...]) -> Iterator[TensorGroup]:
    moe, hidden = config.moe, config.hidden_size
    bias_dtype = "BF16" if config.family == "kimi-linear" else "F32"
    yield _matrix(f"{prefix}gate.weight", moe.num_experts, hidden, "router", layers)
    yield _vector(f"{prefix}gate.e_score_correction_bias", moe.num_experts, "router", layers, bias_dtype)
    if moe.latent_size:
        yield _matrix(
            f"{prefix}routed_expert_down_proj.weight", moe.latent_size, hidden, "latent_proj", layers
        )
        if moe.latent_norm:
            yield _vector(f"{prefix}routed_expert_norm.weight", moe.latent_size, "latent_proj", layers)
        yield _matrix(f"{prefix}routed_expert_up_proj.weight", hidden, moe.latent_size, "latent_proj", layers)
    if moe.num_shared_experts:
        width = moe.intermediate_size * moe.num_shared_experts
        yield from _ffn(f"{prefix}shared_experts.", hidden, width, "shared_experts", layers)
    yield from _experts(config, f"{prefix}experts.{{expert}}.", layers)


def _experts(config: ModelConfig, prefix: str, layers: tuple[int, ...]) -> Iterator[TensorGroup]:
    moe, width = config.moe, config.expert_width
    packed = config.quant is not None and config.quant.expert_format == "mxfp4"
    block = config.quant.group_size if config.quant is not None else 0
    shapes = {
        "w1": (moe.intermediate_size, width),
        "w2": (width, moe.intermediate_size),
        "w3": (moe.intermediate_size, width),
    }
    for name, (out, inner) in shapes.items():
        # The codes and scales of a matrix: low nibble = even column, one scale byte per block.
        parts = (
            [("weight_packed", inner // 2, "U8", 2), ("weight_scale", inner // block, "U8", 0)]
            if packed
            else [("weight", inner, "BF16", 1)]
        )
        for part, columns, dtype, values in parts:
            yield TensorGroup(
                pattern=f"{prefix}{name}.{part}",
                shape=(out, columns),
                dtype=dtype,
                component="routed_experts",
                layers=layers,
                num_experts=moe.num_experts,
                values_per_element=values,
                is_matmul=True,
            )


def _vision(vision: VisionConfig) -> Iterator[TensorGroup]:
    width, patch = vision.hidden_size, vision.patch_size
    tower, blocks = "vision_tower.", tuple(range(vision.num_layers))
    for name, shape in (
        ("patch_embed.proj.weight", (width, 3, patch, patch)),
        ("patch_embed.pos_emb.weight", (vision.pos_emb_height, vision.pos_emb_width, width)),
    ):
        yield TensorGroup(pattern=tower + name, shape=shape, dtype="BF16", component="vision_tower")
    block = f"{tower}encoder.blocks.{{layer}}."
    for name, shape in (
        ("norm0.weight", (width,)),
        ("wqkv.weight", (3 * vision.qkv_size, width)),
        ("wo.weight", (width, vision.qkv_size)),
        ("norm1.weight", (width,)),
        ("mlp.fc0.weight", (vision.intermediate_size, width)),
        ("mlp.fc1.weight", (width, vision.intermediate_size)),
    ):
        yield TensorGroup(
            pattern=block + name, shape=shape, dtype="BF16", component="vision_tower", layers=blocks
        )
    yield _vector(f"{tower}encoder.final_layernorm.weight", width, "vision_tower")
    merged = vision.projector_hidden_size * math.prod(vision.merge_size)
    for name, shape in (
        ("proj.0.weight", (merged, merged)),
        ("proj.2.weight", (vision.text_hidden_size, merged)),
        ("post_norm.weight", (vision.text_hidden_size,)),
    ):
        yield TensorGroup(pattern=f"mm_projector.{name}", shape=shape, dtype="BF16", component="projector")
