"""Frozen dataclasses that hold one model's architecture, whatever file it came from.

Layer numbers are 0-based here; the published ``config.json`` lists them 1-based and
`gossamer.config.hf` converts.  Nothing in this file imports torch or numpy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gossamer.errors import GossamerError

LayerType = Literal["kda", "full"]


class ConfigError(GossamerError, ValueError):
    """An architecture that cannot exist, or a config file that does not describe one."""


@dataclass(frozen=True, kw_only=True)
class KDAConfig:
    """Kimi Delta Attention, a gated linear recurrence (K = V = head_dim)."""

    num_heads: int
    head_dim: int
    conv_kernel_size: int = 4
    full_rank_gate: bool = True
    """True: one g_proj [D, hidden] (K3).  False: g_a_proj/g_b_proj through head_dim (Kimi-Linear)."""
    gate_lower_bound: float | None = -5.0
    """Set: g = bound * sigmoid(exp(A_log) z).  None: g = -exp(A_log) softplus(z).  Different formulas."""
    l2_norm_eps: float = 1e-6
    a_log_multiple: int = 128
    """A_log is stored zero-padded to a multiple of this (K3: 96 heads in [128]); 1 means unpadded."""

    @property
    def width(self) -> int:
        """num_heads * head_dim."""
        return self.num_heads * self.head_dim

    @property
    def a_log_size(self) -> int:
        """Stored length of A_log."""
        return -(-self.num_heads // self.a_log_multiple) * self.a_log_multiple


@dataclass(frozen=True, kw_only=True)
class MLAConfig:
    """Multi-head latent attention without position encoding; the "rope" part is never rotated."""

    num_heads: int
    q_lora_rank: int | None
    """None: one q_proj instead of q_a/q_b (Kimi-Linear)."""
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    output_gate: bool = True
    lora_norm_eps: float = 1e-6
    """eps of q_a_layernorm and kv_a_layernorm; the reference code uses 1e-6, engines 1e-5."""

    @property
    def qk_head_dim(self) -> int:
        """Width of one query or key head."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def latent_width(self) -> int:
        """Values cached per token and layer: normed latent plus the shared raw key part."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, kw_only=True)
class DSAConfig:
    """Lightning indexer of gated DSA: picks top_k past tokens for each query."""

    num_heads: int
    head_dim: int
    top_k: int
    layers: tuple[int, ...]
    """0-based layers that carry an indexer."""
    k_norm_eps: float = 1e-5
    k_norm_bias: bool | None = None
    """Whether k_norm has a bias tensor; None where no source settles it (K3.1-Pro)."""


@dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """Mixture of experts: sigmoid router with selection bias, optional latent width."""

    num_experts: int
    experts_per_token: int
    num_shared_experts: int
    intermediate_size: int
    latent_size: int | None
    """Width the routed experts work at; None means hidden_size and no down/up projections."""
    latent_norm: bool = True
    renormalize: bool = True
    routed_scaling_factor: float = 1.0
    first_dense_layers: int = 1
    layer_freq: int = 1
    num_groups: int = 1
    top_k_groups: int = 1


@dataclass(frozen=True, kw_only=True)
class QuantConfig:
    """How the routed experts are stored; decided for real by which tensors exist on disk."""

    expert_format: Literal["mxfp4", "bf16"] = "mxfp4"
    group_size: int = 32
    scale_rule: Literal["floor", "even", "rceil"] = "even"
    ignore: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """MoonViT-V2 and its projector."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    qkv_size: int
    patch_size: int = 14
    pos_emb_height: int = 64
    pos_emb_width: int = 64
    pos_emb_time: int = 4
    merge_size: tuple[int, int] = (2, 2)
    projector_hidden_size: int = 1024
    projector_eps: float = 1e-5
    text_hidden_size: int = 7168


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A whole model.  ``extra`` keeps every config key that is not understood, by dotted path."""

    name: str
    family: Literal["k3", "k3.1", "kimi-linear"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    full_attention_layers: tuple[int, ...]
    """0-based; every other layer is KDA."""
    activation: Literal["situ", "silu"]
    situ_beta: float | None = 4.0
    situ_linear_beta: float | None = 25.0
    rms_norm_eps: float = 1e-5
    max_context: int = 1_048_576
    tie_word_embeddings: bool = False
    attn_res_block_size: int | None = 12
    """None or 0: the usual residual stream (Kimi-Linear)."""
    kda: KDAConfig
    mla: MLAConfig
    dsa: DSAConfig | None = None
    moe: MoEConfig
    vision: VisionConfig | None = None
    quant: QuantConfig | None = None
    initializer_range: float = 0.02
    num_mtp_layers: int = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None
    media_token_id: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    spelling: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where each value stood in the file it was read from, so that writing keeps the file's own keys."""

    def __post_init__(self) -> None:
        """Refuse shapes that cannot be built, naming the value."""
        _check(self)

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of each layer: kda or full."""
        full = set(self.full_attention_layers)
        return tuple("full" if i in full else "kda" for i in range(self.num_layers))

    @property
    def expert_width(self) -> int:
        """Input and output width of a routed expert."""
        return self.moe.latent_size or self.hidden_size

    @property
    def has_packed_experts(self) -> bool:
        """Whether the routed experts are stored as MXFP4."""
        return self.quant is not None and self.quant.expert_format == "mxfp4"

    def is_moe_layer(self, layer: int) -> bool:
        """Whether this layer's feed-forward part is a mixture of experts."""
        m = self.moe
        return layer >= m.first_dense_layers and layer % m.layer_freq == 0

    def has_indexer(self, layer: int) -> bool:
        """Whether this layer is gated DSA rather than dense MLA."""
        return self.dsa is not None and layer in self.dsa.layers


def _check(c: ModelConfig) -> None:
    for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers"):
        value = getattr(c, name)
        if not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} must be a positive integer, got {value!r}")
    _check_layers(c)
    _check_moe(c)
    if c.dsa:
        stray = [i for i in c.dsa.layers if i not in c.full_attention_layers]
        if stray:
            raise ConfigError(f"dsa layers {stray} are not full-attention layers")
        if c.mla.q_lora_rank is None:
            raise ConfigError("a DSA indexer needs q_lora_rank: it reads the normed query latent")


def _check_layers(c: ModelConfig) -> None:
    out = [i for i in c.full_attention_layers if not 0 <= i < c.num_layers]
    if out:
        raise ConfigError(
            f"full_attention_layers names layers {out}, but the model has layers 0..{c.num_layers - 1}"
        )
    if len(set(c.full_attention_layers)) != len(c.full_attention_layers):
        raise ConfigError(f"full_attention_layers repeats a layer: {c.full_attention_layers}")


def _check_moe(c: ModelConfig) -> None:
    m = c.moe
    if not 1 <= m.experts_per_token <= m.num_experts:
        raise ConfigError(
            f"experts_per_token must be in 1..{m.num_experts} (num_experts), got {m.experts_per_token}"
        )
    if m.num_groups < 1 or m.num_experts % m.num_groups:
        raise ConfigError(f"num_experts {m.num_experts} is not divisible by num_groups {m.num_groups}")
    if not 1 <= m.top_k_groups <= m.num_groups:
        raise ConfigError(f"top_k_groups must be in 1..{m.num_groups} (num_groups), got {m.top_k_groups}")
    if c.quant is not None and c.has_packed_experts:
        for name, width in (("latent_size", c.expert_width), ("intermediate_size", m.intermediate_size)):
            if width % c.quant.group_size:
                raise ConfigError(
                    f"moe {name} {width} is not a multiple of the MXFP4 block {c.quant.group_size}"
                )
