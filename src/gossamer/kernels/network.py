"""The native forward pass: built from a config and weights, run over paged caches.

Shape legend: M tokens of a pass, V vocabulary, R rows whose logits are wanted, L layers, E experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from gossamer.config.model import ModelConfig
from gossamer.errors import GossamerError
from gossamer.kernels import backend
from gossamer.kernels.cache_rows import CacheType, StateType
from gossamer.kernels.weights import Weight

Activations = Literal["exact", "bf16", "mxfp8", "int8"]
Trunk = Literal["stored", "int8"]


class NetworkError(GossamerError, ValueError):
    """Weights or caches that make no network."""


@dataclass(frozen=True, kw_only=True)
class CacheSize:
    """Room for sequences.

    Attributes:
        block_size: Tokens of a block of latent KV and indexer keys.
        num_blocks: Blocks of every full-attention layer.
        num_slots: Sequences whose KDA state and convolution tails fit.
        dtype: Of latent KV and indexer keys: bf16, f32, or fp8 (E4M3 with a scale for each 128 values; the
            shared part of the key stays BF16).
        state: Of KDA state and convolution tails: f32, or bf16, where every token leaves its state rounded.
    """

    block_size: int = 64
    num_blocks: int
    num_slots: int
    dtype: CacheType = "bf16"
    state: StateType = "f32"

    def __post_init__(self) -> None:
        """Refuse sizes that hold nothing."""
        for name in ("block_size", "num_blocks", "num_slots"):
            if getattr(self, name) < 1:
                raise NetworkError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name, known in (("dtype", get_args(CacheType)), ("state", get_args(StateType))):
            if getattr(self, name) not in known:
                raise NetworkError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What products are computed with; the default rounds nothing.

    Attributes:
        activations: Inputs of packed experts: exact (float32), mxfp8 (E4M3 in blocks of 32, scale by the
            floor rule), or int8 (blocks of 32, scale of the largest magnitude), which is the fastest.  bf16
            rounds them to BF16, and those of experts and trunk matrices that are stored as BF16 too.
        trunk: stored, or int8: attention's, dense networks', shared experts', latent projections' and the
            head's matrices become int8 in blocks of 32 at load, in memory of their own, and so do their
            inputs.  The router, the indexer, the embedding and small projections stay as stored.
    """

    activations: Activations = "exact"
    trunk: Trunk = "stored"

    def __post_init__(self) -> None:
        """Refuse other names."""
        for name, known in (("activations", get_args(Activations)), ("trunk", get_args(Trunk))):
            if getattr(self, name) not in known:
                raise NetworkError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class Given:
    """Rows that stand in for the embeddings of some tokens of a pass, such as an image's.

    Attributes:
        rows: [G] int64, of the pass, each at most once.
        values: [G, D] float32.
    """

    rows: NDArray[np.int64]
    values: NDArray[np.float32]

    def check(self, num_tokens: int, hidden_size: int) -> None:
        """Refuse rows that are not of the pass, and values of another width.

        Raises:
            NetworkError: naming the row or the shape.
        """
        if self.rows.ndim != 1 or self.values.shape != (self.rows.size, hidden_size):
            raise NetworkError(
                f"given embeddings must be [{self.rows.size}, {hidden_size}], got {list(self.values.shape)}"
            )
        outside = self.rows[(self.rows < 0) | (self.rows >= num_tokens)]
        if outside.size:
            raise NetworkError(f"given row {int(outside[0])} does not exist in a pass of {num_tokens} tokens")


class Network:
    """The text network of K3, K3.1 and Kimi-Linear; weights stay where the checkpoint has them.

    The bits of a row's logits depend on the tokens of its sequence alone: not on the rest of the batch, on
    how the tokens were split into passes, or on the number of threads.

    Args:
        config: The architecture.
        weights: Every weight, as `gossamer.kernels.weights` gives them.
        cache: Room for sequences.
        threads: That compute; at least 1.
        precision: Of products.
        instructions: A backend of `gossamer.kernels.backend`; None takes the best that runs here.

    Raises:
        BackendError: the kernels are not built.
        NetworkError: a weight is missing or has another shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Iterable[Weight],
        *,
        cache: CacheSize,
        threads: int = 1,
        precision: Precision | None = None,
        instructions: str | None = None,
    ) -> None:
        if threads < 1:
            raise NetworkError(f"threads must be at least 1, got {threads}")
        self.config, self.cache, self.precision = config, cache, precision or Precision()
        if self.precision.activations in ("mxfp8", "int8") and not config.has_packed_experts:
            raise NetworkError(
                f"activations {self.precision.activations!r} want experts packed as MXFP4, "
                f"which {config.name} has not; use 'exact' or 'bf16'"
            )
        layers = range(config.num_layers)
        module: Any = backend.load(instructions)
        try:
            self._native: Any = module.infer.Model(
                {**_sizes(config, cache), **_modes(self.precision)},
                [config.layer_types[i] == "kda" for i in layers],
                [config.has_indexer(i) for i in layers],
                [config.is_moe_layer(i) for i in layers],
                threads,
            )
            for weight in weights:
                self._add(weight)
            self._native.finish()
        except MemoryError:
            raise NetworkError(
                f"there is no memory for caches of {cache.num_slots} sequences and "
                f"{cache.num_blocks} blocks; give them less"
            ) from None
        except ValueError as error:
            if isinstance(error, GossamerError):
                raise
            raise NetworkError(str(error)) from None
        except RuntimeError as error:
            raise NetworkError(f"the system gives no {threads} threads ({error}); ask for fewer") from None

    def _add(self, weight: Weight) -> None:
        match weight.kind:
            case "bf16":
                self._native.half(weight.name, weight.data)
            case "f32":
                self._native.full(weight.name, weight.data)
            case "mxfp4":
                self._native.packed(weight.name, weight.data, weight.scales)
            case "vector":
                self._native.vector(weight.name, weight.data)
        if self.config.tie_word_embeddings and weight.name == "model.embed_tokens":
            self._add(replace(weight, name="lm_head"))

    @property
    def slot_bytes(self) -> int:
        """Memory of one slot over all layers."""
        return int(self._native.slot_bytes)

    @property
    def block_bytes(self) -> int:
        """Memory of one block over all layers."""
        return int(self._native.block_bytes)

    @property
    def threads(self) -> int:
        """Threads that compute."""
        return int(self._native.threads)

    def run(
        self,
        token_ids: NDArray[np.int64],
        spans: NDArray[np.int64],
        tables: NDArray[np.int32],
        given: Given | None = None,
    ) -> NDArray[np.float32]:
        """One pass.

        Args:
            token_ids: [M], span after span.
            spans: [n, 5]: tokens, position of the first, slot, blocks in its table, whether the logits after
                its last token are wanted.  No two spans share a slot.
            tables: The block tables, joined.
            given: Embeddings of tokens whose ids are not looked up.

        Returns:
            [R, V].

        Raises:
            NetworkError: a token, slot, block or row that does not exist, or a table that is too short.
        """
        if given is None:
            given = Given(
                rows=np.empty(0, np.int64), values=np.empty((0, self.config.hidden_size), np.float32)
            )
        given.check(token_ids.size, self.config.hidden_size)
        logits = np.empty((int(np.count_nonzero(spans[:, 4])), self.config.vocab_size), np.float32)
        try:
            self._native.run(token_ids, spans, tables, given.rows, given.values, logits)
        except ValueError as error:
            raise NetworkError(str(error)) from None
        return logits

    def clear_slot(self, slot: int) -> None:
        """Bring a slot to the state before position 0."""
        self._native.clear_slot(slot)

    def save_slot(self, slot: int) -> NDArray[np.uint8]:
        """A copy of a slot's state, [slot_bytes]."""
        out = np.empty(self.slot_bytes, np.uint8)
        self._native.save_slot(slot, out)
        return out

    def restore_slot(self, slot: int, saved: NDArray[np.uint8]) -> None:
        """Bring a slot to a saved state."""
        self._native.restore_slot(slot, saved)

    def read_block(self, block: int) -> NDArray[np.uint8]:
        """A copy of a block's rows, [block_bytes]."""
        out = np.empty(self.block_bytes, np.uint8)
        self._native.read_block(block, out)
        return out

    def write_block(self, block: int, saved: NDArray[np.uint8]) -> None:
        """Bring a block to saved rows."""
        self._native.write_block(block, saved)

    def expert_loads(self) -> NDArray[np.int64]:
        """Tokens that each expert of each layer has worked on, [L, E]; zero in layers without experts."""
        out = np.zeros((self.config.num_layers, self.config.moe.num_experts), np.int64)
        self._native.loads(out)
        return out


def tables_of(blocks: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    """Block tables joined as `Network.run` takes them."""
    return np.fromiter((b for table in blocks for b in table), np.int32, sum(map(len, blocks)))


def _sizes(config: ModelConfig, cache: CacheSize) -> dict[str, float]:
    """The numbers that native/infer/model_bind.cpp asks for; 0 where a part is absent."""
    kda, mla, moe, dsa = config.kda, config.mla, config.moe, config.dsa
    bound = kda.gate_lower_bound
    return {
        "vocab": config.vocab_size,
        "hidden": config.hidden_size,
        "layers": config.num_layers,
        "intermediate": config.intermediate_size,
        "residual_block": config.attn_res_block_size or 0,
        "eps": config.rms_norm_eps,
        "situ": config.activation == "situ",
        "situ_beta": config.situ_beta or 1.0,
        "situ_linear_beta": config.situ_linear_beta or 0.0,
        "kda_heads": kda.num_heads,
        "kda_width": kda.head_dim,
        "taps": kda.conv_kernel_size,
        "full_rank_gate": kda.full_rank_gate,
        "bounded_decay": bound is not None,
        "decay_bound": bound or 0.0,
        "l2_eps": kda.l2_norm_eps,
        "heads": mla.num_heads,
        "query_rank": mla.q_lora_rank or 0,
        "rank": mla.kv_lora_rank,
        "nope": mla.qk_nope_head_dim,
        "rope": mla.qk_rope_head_dim,
        "value": mla.v_head_dim,
        "output_gate": mla.output_gate,
        "latent_eps": mla.lora_norm_eps,
        "index_heads": dsa.num_heads if dsa else 0,
        "index_width": dsa.head_dim if dsa else 0,
        "top_k": dsa.top_k if dsa else 0,
        "index_eps": dsa.k_norm_eps if dsa else 0.0,
        "experts": moe.num_experts,
        "per_token": moe.experts_per_token,
        "groups": moe.num_groups,
        "top_groups": moe.top_k_groups,
        "expert_width": config.expert_width,
        "expert_inner": moe.intermediate_size,
        "shared_inner": moe.intermediate_size * moe.num_shared_experts,
        "latent_experts": moe.latent_size is not None,
        "latent_norm": moe.latent_norm,
        "renormalize": moe.renormalize,
        "scaling": moe.routed_scaling_factor,
        "block_size": cache.block_size,
        "blocks": cache.num_blocks,
        "slots": cache.num_slots,
        "cache": get_args(CacheType).index(cache.dtype),
        "half_state": cache.state == "bf16",
    }


def _modes(precision: Precision) -> dict[str, float]:
    return {
        "mxfp8_inputs": precision.activations == "mxfp8",
        "int8_inputs": precision.activations == "int8",
        "half_inputs": precision.activations == "bf16",
        "int8_trunk": precision.trunk == "int8",
    }
