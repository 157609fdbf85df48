"""The forward pass in numpy over paged caches, with the interface of `gossamer.kernels.network.Network`.

It is what runs where no kernels are built, and what they are compared with where torch is not.  Slow: every
token of every sequence is computed by itself, which also makes its bits independent of the batch.

Shape legend: D hidden width, V vocabulary, R rows whose logits are wanted, L layers, E experts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.checkpoint.bf16 import bf16_to_f32, f32_to_bf16
from gossamer.config.model import ModelConfig
from gossamer.kernels import plain_ops as ops
from gossamer.kernels.cache_rows import key_layout, latent_layout
from gossamer.kernels.network import CacheSize, Given, NetworkError, Precision
from gossamer.kernels.weights import Weight

F32 = ops.F32


class PlainNetwork:
    """See `gossamer.kernels.network.Network`; `threads` is always 1, precision exact or BF16 activations."""

    threads = 1

    def __init__(
        self,
        config: ModelConfig,
        weights: Iterable[Weight],
        *,
        cache: CacheSize,
        precision: Precision | None = None,
    ) -> None:
        self.config, self.cache, precision = config, cache, precision or Precision()
        if precision not in (Precision(), Precision(activations="bf16")):
            raise NetworkError(
                f"activations {precision.activations!r} with trunk {precision.trunk!r} need native kernels; "
                "install gossamer again with a C++ compiler and cmake, or use 'exact' and 'stored'"
            )
        self._half = precision.activations == "bf16"
        self._weights = {weight.name: weight for weight in weights}
        if self._half and not any(w.kind in ("bf16", "mxfp4") for w in self._weights.values()):
            raise NetworkError(
                "activations 'bf16' want matrices stored as BF16 or MXFP4, and all are float32; use 'exact'"
            )
        if config.tie_word_embeddings:
            self._weights["lm_head"] = self._weights["model.embed_tokens"]
        self._vectors = {w.name: w.data.reshape(-1) for w in self._weights.values() if w.kind == "vector"}
        kda, tokens = config.kda, cache.num_blocks * cache.block_size
        kinds = config.layer_types
        kda_layers = [i for i in range(config.num_layers) if kinds[i] == "kda"]
        shape = (cache.num_slots, kda.num_heads, kda.head_dim, kda.head_dim)
        tail = (cache.num_slots, kda.conv_kernel_size - 1, 3 * kda.width)
        kept = np.dtype(np.float32 if cache.state == "f32" else np.uint16)
        self._state = {i: np.zeros(shape, kept) for i in kda_layers}
        self._tails = {i: np.zeros(tail, kept) for i in kda_layers}
        rows, keys = latent_layout(config, cache.dtype), key_layout(config, cache.dtype)
        self._row_layout, self._key_layout = rows, keys
        full = config.full_attention_layers
        self._rows = {i: np.zeros((tokens, rows.num_bytes), np.uint8) for i in full}
        self._keys = {}
        if config.dsa is not None and keys is not None:
            self._keys = {i: np.zeros((tokens, keys.num_bytes), np.uint8) for i in config.dsa.layers}
        self._loads = np.zeros((config.num_layers, config.moe.num_experts), np.int64)

    @property
    def slot_bytes(self) -> int:
        """Memory of one slot over all layers."""
        parts = [*self._state.values(), *self._tails.values()]
        return sum(part.nbytes for part in parts) // self.cache.num_slots

    @property
    def block_bytes(self) -> int:
        """Memory of one block over all layers."""
        parts = [*self._rows.values(), *self._keys.values()]
        return sum(part.nbytes for part in parts) // self.cache.num_blocks

    def run(
        self,
        token_ids: NDArray[np.int64],
        spans: NDArray[np.int64],
        tables: NDArray[np.int32],
        given: Given | None = None,
    ) -> F32:
        """See `gossamer.kernels.network.Network.run`."""
        self._check(token_ids, spans, tables)
        instead: dict[int, F32] = {}
        if given is not None:
            given.check(token_ids.size, self.config.hidden_size)
            instead = dict(zip(given.rows.tolist(), given.values, strict=True))
        logits, row, table = [], 0, 0
        for count, position, slot, blocks, wanted in spans.tolist():
            places = self._places(tables[table : table + blocks], position + count)
            last = None
            for t in range(count):
                embedding = instead.get(row + t)
                if embedding is None:
                    embedding = self._matrix("model.embed_tokens")[int(token_ids[row + t])]
                last = self._token(embedding, position + t, slot, places)
            if wanted and last is not None:
                logits.append(self._product("lm_head", last))
            row, table = row + count, table + blocks
        return np.stack(logits) if logits else np.empty((0, self.config.vocab_size), np.float32)

    def clear_slot(self, slot: int) -> None:
        """Bring a slot to the state before position 0."""
        for part in (*self._state.values(), *self._tails.values()):
            part[slot] = 0

    def save_slot(self, slot: int) -> NDArray[np.uint8]:
        """A copy of a slot's state."""
        return self._saved([p for i in self._state for p in (self._state[i][slot], self._tails[i][slot])])

    def restore_slot(self, slot: int, saved: NDArray[np.uint8]) -> None:
        """Bring a slot to a saved state."""
        self._restore([p for i in self._state for p in (self._state[i][slot], self._tails[i][slot])], saved)

    def read_block(self, block: int) -> NDArray[np.uint8]:
        """A copy of a block's rows."""
        return self._saved(self._block(block))

    def write_block(self, block: int, saved: NDArray[np.uint8]) -> None:
        """Bring a block to saved rows."""
        self._restore(self._block(block), saved)

    def expert_loads(self) -> NDArray[np.int64]:
        """Tokens that each expert of each layer has worked on, [L, E]."""
        return self._loads.copy()

    def _token(self, embedding: F32, position: int, slot: int, places: NDArray[np.int64]) -> F32:
        """One token through all layers: what the output head reads, [D]."""
        config, prefix = self.config, embedding
        blocks: list[F32] = []
        for i in range(config.num_layers):
            name = f"model.layers.{i}."
            x = self._mixed(prefix, blocks, f"{name}self_attention_res_", f"{name}input_layernorm")
            fresh = bool(config.attn_res_block_size) and i % (config.attn_res_block_size or 1) == 0
            if fresh:
                blocks.append(prefix)
            if config.layer_types[i] == "kda":
                a = self._kda(i, f"{name}self_attn.", x, slot)
            else:
                a = self._latent(i, f"{name}self_attn.", x, position, places)
            prefix = a if fresh else prefix + a
            x = self._mixed(prefix, blocks, f"{name}mlp_res_", f"{name}post_attention_layernorm")
            prefix = prefix + (self._experts(i, name, x) if config.is_moe_layer(i) else self._mlp(name, x))
        return self._mixed(prefix, blocks, "model.output_attn_res_", "model.norm")

    def _mixed(self, prefix: F32, blocks: list[F32], mix: str, norm: str) -> F32:
        if self.config.attn_res_block_size:
            weight = self._vector(f"{mix}norm.weight") * self._vector(f"{mix}proj.weight")
            prefix = ops.residual_mix([*blocks, prefix], weight, self.config.rms_norm_eps)
        return ops.rms_norm(prefix, self._vector(f"{norm}.weight"), self.config.rms_norm_eps)

    def _kda(self, layer: int, name: str, x: F32, slot: int) -> F32:
        kda = self.config.kda
        heads = (kda.num_heads, kda.head_dim)
        qkv = np.concatenate([self._product(f"{name}{p}_proj", x) for p in "qkv"])
        taps = np.concatenate([self._vector(f"{name}{p}_conv1d.weight") for p in "qkv"])
        # What the tails cannot hold must not be seen before they are written either.
        qkv, tail, state = self._value(self._kept(qkv)), self._tails[layer], self._state[layer]
        mixed, past = ops.short_conv(qkv, self._value(tail[slot]), taps.reshape(-1, kda.conv_kernel_size))
        tail[slot] = self._kept(past)
        q, k, v = (part.reshape(heads) for part in np.split(mixed, 3))
        eps = np.float32(kda.l2_norm_eps)
        q = q / np.sqrt(np.sum(q * q, -1, keepdims=True) + eps) * np.float32(kda.head_dim**-0.5)
        k = k / np.sqrt(np.sum(k * k, -1, keepdims=True) + eps)
        z = self._matrix(f"{name}f_b_proj") @ (self._matrix(f"{name}f_a_proj") @ x)
        z = (z + self._vector(f"{name}dt_bias")).reshape(heads)
        decay = ops.kda_decay(z, self._vector(f"{name}A_log"), kda.gate_lower_bound)
        beta = ops.sigmoid(self._matrix(f"{name}b_proj") @ x)
        o, after = ops.kda_step(q, k, v, decay, beta, self._value(state[slot]))
        state[slot] = self._kept(after)
        if kda.full_rank_gate:
            gate = self._product(f"{name}g_proj", x)
        else:
            gate = self._matrix(f"{name}g_b_proj") @ (self._matrix(f"{name}g_a_proj") @ x)
        o = ops.rms_norm(o, self._vector(f"{name}o_norm.weight"), self.config.rms_norm_eps)
        return self._product(f"{name}o_proj", o.reshape(-1) * ops.sigmoid(gate))

    def _latent(self, layer: int, name: str, x: F32, position: int, places: NDArray[np.int64]) -> F32:
        mla, dsa = self.config.mla, self.config.dsa
        row = self._product(f"{name}kv_a_proj_with_mqa", x)
        norm = self._vector(f"{name}kv_a_layernorm.weight")
        row[: mla.kv_lora_rank] = ops.rms_norm(row[: mla.kv_lora_rank], norm, mla.lora_norm_eps)
        self._rows[layer][places[position]] = self._row_layout.keep(row[None])[0]
        query_latent = x
        if mla.q_lora_rank is None:
            q = self._product(f"{name}q_proj", x)
        else:
            norm = self._vector(f"{name}q_a_layernorm.weight")
            query_latent = ops.rms_norm(self._product(f"{name}q_a_proj", x), norm, mla.lora_norm_eps)
            q = self._product(f"{name}q_b_proj", query_latent)
        chosen = np.arange(position + 1)
        layout = self._key_layout
        if dsa is not None and layout is not None and self.config.has_indexer(layer):
            index = f"{name}indexer."
            weight, bias = self._vector(f"{index}k_norm.weight"), self._vectors.get(f"{index}k_norm.bias")
            key = ops.layer_norm(self._matrix(f"{index}wk") @ x, weight, bias, dsa.k_norm_eps)
            self._keys[layer][places[position]] = layout.keep(key[None])[0]
            keys = layout.read(self._keys[layer][places[: position + 1]])
            queries = (self._matrix(f"{index}wq_b") @ query_latent).reshape(dsa.num_heads, dsa.head_dim)
            scores = ops.index_scores(queries, keys, self._matrix(f"{index}weights_proj") @ x)
            chosen = ops.select_best(scores, dsa.top_k)
        rows = self._row_layout.read(self._rows[layer][places[chosen]])
        w_kv = self._matrix(f"{name}kv_b_proj").reshape(mla.num_heads, -1, mla.kv_lora_rank)
        a = ops.absorbed_attention(
            q.reshape(mla.num_heads, -1), rows, w_kv, mla.kv_lora_rank, mla.qk_nope_head_dim
        ).reshape(-1)
        if mla.output_gate:
            a = a * ops.sigmoid(self._product(f"{name}g_proj", x))
        return self._product(f"{name}o_proj", a)

    def _mlp(self, name: str, x: F32) -> F32:
        return self._gated(f"{name}mlp.", ("gate_proj", "up_proj", "down_proj"), x)

    def _gated(self, name: str, parts: tuple[str, str, str], x: F32) -> F32:
        gate, up, down = (name + part for part in parts)
        return self._product(down, ops.activate(self.config, self._product(gate, x), self._product(up, x)))

    def _experts(self, layer: int, name: str, x: F32) -> F32:
        moe, name = self.config.moe, f"{name}block_sparse_moe."
        bias = self._vector(f"{name}gate.e_score_correction_bias")
        chosen, weights = ops.choose_experts(self._matrix(f"{name}gate") @ x, bias, moe)
        self._loads[layer][chosen] += 1
        z = x if moe.latent_size is None else self._product(f"{name}routed_expert_down_proj", x)
        y = np.zeros_like(z)
        for expert, weight in zip(chosen.tolist(), weights, strict=True):
            y += weight * self._gated(f"{name}experts.{expert}.", ("w1", "w3", "w2"), z)
        if moe.latent_size is not None:
            if moe.latent_norm:
                norm = self._vector(f"{name}routed_expert_norm.weight")
                y = ops.rms_norm(y, norm, self.config.rms_norm_eps)
            y = self._product(f"{name}routed_expert_up_proj", y)
        if moe.num_shared_experts:
            y = y + self._gated(f"{name}shared_experts.", ("gate_proj", "up_proj", "down_proj"), x)
        return y

    def _product(self, name: str, x: F32) -> F32:
        """One of the large matrices times x, which is rounded where the mode says so."""
        matrix = self._matrix(name)
        if self._half and self._weights[name].kind in ("bf16", "mxfp4"):
            x = ops.rounded_to_bf16(x)
        return matrix @ x

    def _matrix(self, name: str) -> F32:
        if name not in self._weights:
            raise NetworkError(f"weight {name} is missing")
        return ops.values(self._weights[name])

    def _vector(self, name: str) -> F32:
        if name not in self._vectors:
            raise NetworkError(f"weight {name} is missing")
        return self._vectors[name]

    def _kept(self, values: F32) -> NDArray[np.uint16] | F32:
        """Of a slot, as it is stored."""
        return values if self.cache.state == "f32" else f32_to_bf16(np.ascontiguousarray(values))

    def _value(self, kept: NDArray[Any]) -> F32:
        return kept if self.cache.state == "f32" else bf16_to_f32(np.ascontiguousarray(kept))

    def _places(self, table: NDArray[np.int32], length: int) -> NDArray[np.int64]:
        """Where each position up to `length` lies."""
        position = np.arange(length)
        block = table.astype(np.int64)[position // self.cache.block_size]
        return block * self.cache.block_size + position % self.cache.block_size

    def _block(self, block: int) -> list[NDArray[np.generic]]:
        part = slice(block * self.cache.block_size, (block + 1) * self.cache.block_size)
        return [kept[i][part] for i in sorted(self._rows) for kept in (self._rows, self._keys) if i in kept]

    @staticmethod
    def _saved(parts: list[NDArray[np.generic]]) -> NDArray[np.uint8]:
        return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])

    @staticmethod
    def _restore(parts: list[NDArray[np.generic]], saved: NDArray[np.uint8]) -> None:
        at = 0
        for part in parts:
            part[...] = saved[at : at + part.nbytes].copy().view(part.dtype).reshape(part.shape)
            at += part.nbytes

    def _check(
        self, token_ids: NDArray[np.int64], spans: NDArray[np.int64], tables: NDArray[np.int32]
    ) -> None:
        used: set[int] = set()
        for i, (count, position, slot, blocks, _) in enumerate(spans.tolist()):
            if count < 1 or position < 0:
                raise NetworkError(f"span {i} has no tokens")
            if not 0 <= slot < self.cache.num_slots or slot in used:
                raise NetworkError(f"span {i}: slot {slot} is taken or does not exist")
            if blocks * self.cache.block_size < position + count:
                raise NetworkError(f"span {i}: its block table is too short")
            used.add(slot)
        if spans[:, 0].sum() != token_ids.size or spans[:, 3].sum() > tables.size:
            raise NetworkError("spans, tokens and tables do not fit together")
        for what, array, limit in (
            ("block", tables, self.cache.num_blocks),
            ("token", token_ids, self.config.vocab_size),
        ):
            outside = array[(array < 0) | (array >= limit)]
            if outside.size:
                raise NetworkError(f"{what} {int(outside[0])} does not exist")
