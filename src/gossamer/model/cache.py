"""What a sequence keeps between forward passes: KDA state and convolution tail, latent KV, indexer keys.

Shape legend: B batch, S cached tokens, H KDA heads, K key and V value channels, W convolution taps,
R latent rank, P shared key width, D indexer key width.  Attention residuals keep nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.config.model import ModelConfig
from gossamer.model.errors import CacheError

_FIRST_CAPACITY = 64


class KDAState:
    """One KDA layer: a fixed size whatever the length.

    Attributes:
        conv_tail: [B, W-1, 3*H*K], the last inputs of the q, k and v convolutions.
        state: [B, H, K, V] float32.
    """

    def __init__(self, config: ModelConfig, batch_size: int, dtype: torch.dtype) -> None:
        kda = config.kda
        self.conv_tail = torch.zeros(batch_size, kda.conv_kernel_size - 1, 3 * kda.width, dtype=dtype)
        self.state = torch.zeros(batch_size, kda.num_heads, kda.head_dim, kda.head_dim)

    def store(self, conv_tail: Tensor, state: Tensor) -> None:
        """Replace both parts after a forward pass."""
        self.conv_tail, self.state = conv_tail.detach().clone(), state.detach()


class LatentKV:
    """One full-attention layer: rows that grow with the sequence, in buffers that double.

    Attributes:
        length: S.
    """

    def __init__(self, config: ModelConfig, layer: int, batch_size: int, dtype: torch.dtype) -> None:
        self._rank = config.mla.kv_lora_rank
        self._rows = torch.zeros(batch_size, 0, config.mla.latent_width, dtype=dtype)
        width = config.dsa.head_dim if config.dsa is not None and config.has_indexer(layer) else None
        self._keys = None if width is None else torch.zeros(batch_size, 0, width, dtype=dtype)
        self.length = 0

    def append(self, latent: Tensor, shared_key: Tensor, index_keys: Tensor | None) -> None:
        """Add T tokens: latent [B, T, R], shared_key [B, T, P], index_keys [B, T, D] with an indexer."""
        end = self.length + latent.shape[1]
        self._rows = _grown(self._rows, self.length, end)
        self._rows[:, self.length : end, : self._rank] = latent.detach()
        self._rows[:, self.length : end, self._rank :] = shared_key.detach()
        if self._keys is not None:
            if index_keys is None:
                raise CacheError("this layer has an indexer but no indexer keys were given")
            self._keys = _grown(self._keys, self.length, end)
            self._keys[:, self.length : end] = index_keys.detach()
        self.length = end

    @property
    def latent(self) -> Tensor:
        """Normed latents so far, [B, S, R]."""
        return self._rows[:, : self.length, : self._rank]

    @property
    def shared_key(self) -> Tensor:
        """Shared key part so far, [B, S, P]."""
        return self._rows[:, : self.length, self._rank :]

    @property
    def index_keys(self) -> Tensor:
        """Indexer keys so far, [B, S, D]."""
        if self._keys is None:
            raise CacheError("this layer has no indexer")
        return self._keys[:, : self.length]

    @property
    def tensors(self) -> list[Tensor]:
        """The filled part of every buffer."""
        parts = [self._rows] if self._keys is None else [self._rows, self._keys]
        return [part[:, : self.length] for part in parts]


def _grown(rows: Tensor, used: int, needed: int) -> Tensor:
    """Rows with room for at least `needed` tokens, the first `used` kept."""
    if needed <= rows.shape[1]:
        return rows
    capacity = max(_FIRST_CAPACITY, 2 * rows.shape[1], needed)
    bigger = rows.new_zeros(rows.shape[0], capacity, rows.shape[2])
    bigger[:, :used] = rows[:, :used]
    return bigger


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The recurrent part of a cache at one length; together with the rows kept it restores that moment."""

    length: int
    kda: dict[int, tuple[Tensor, Tensor]]


class Cache:
    """State of B sequences of equal length, passed explicitly to the forward pass, which updates it in place.

    A recurrence cannot be run backwards: `truncate` goes to zero, to the present, or to a `Snapshot`.
    """

    def __init__(self, config: ModelConfig, batch_size: int, dtype: torch.dtype) -> None:
        if batch_size < 1:
            raise CacheError(f"batch_size must be at least 1, got {batch_size}")
        self.config, self.batch_size, self.dtype = config, batch_size, dtype
        self.length = 0
        self.layers: list[KDAState | LatentKV] = []
        self.reset()

    def reset(self) -> None:
        """Back to length 0."""
        self.length = 0
        self.layers = [
            KDAState(self.config, self.batch_size, self.dtype)
            if kind == "kda"
            else LatentKV(self.config, layer, self.batch_size, self.dtype)
            for layer, kind in enumerate(self.config.layer_types)
        ]

    def kda(self, layer: int) -> KDAState:
        """The state of a KDA layer."""
        found = self.layers[layer]
        if not isinstance(found, KDAState):
            raise CacheError(f"layer {layer} is a full-attention layer")
        return found

    def latent(self, layer: int) -> LatentKV:
        """The rows of a full-attention layer."""
        found = self.layers[layer]
        if not isinstance(found, LatentKV):
            raise CacheError(f"layer {layer} is a KDA layer")
        return found

    def snapshot(self) -> Snapshot:
        """Copy the recurrent part; the growing part needs no copy, it is only ever appended to."""
        kda = {
            i: (layer.conv_tail.clone(), layer.state.clone())
            for i, layer in enumerate(self.layers)
            if isinstance(layer, KDAState)
        }
        return Snapshot(length=self.length, kda=kda)

    def truncate(self, length: int, snapshot: Snapshot | None = None) -> None:
        """Forget the tokens from `length` on.

        Args:
            length: Tokens to keep.
            snapshot: Taken from this cache at that length; not needed for 0 or the present length.

        Raises:
            CacheError: the length is ahead of the cache, or the state at that length is not known.
        """
        if length == 0:
            self.reset()
            return
        if length == self.length:
            return
        if not 0 < length < self.length:
            raise CacheError(f"cannot truncate to {length} tokens: the cache holds {self.length}")
        if snapshot is None or snapshot.length != length:
            at = "none" if snapshot is None else f"one of length {snapshot.length}"
            raise CacheError(f"truncating to {length} tokens needs a snapshot taken at {length}; given {at}")
        for i, layer in enumerate(self.layers):
            if isinstance(layer, KDAState):
                tail, state = snapshot.kda[i]
                layer.store(tail, state.clone())
            else:
                layer.length = length
        self.length = length

    def check_integrity(self) -> None:
        """Raise CacheError when a layer disagrees with the length or holds a value that is not finite."""
        for i, layer in enumerate(self.layers):
            if isinstance(layer, LatentKV):
                if layer.length != self.length:
                    raise CacheError(f"layer {i} holds {layer.length} tokens, the cache {self.length}")
                parts = layer.tensors
            else:
                parts = [layer.conv_tail, layer.state]
            if any(p.shape[0] != self.batch_size for p in parts):
                raise CacheError(f"layer {i} does not hold {self.batch_size} sequences")
            if not all(bool(torch.isfinite(p).all()) for p in parts):
                raise CacheError(f"layer {i} holds a value that is not finite")

    @property
    def num_bytes(self) -> int:
        """Bytes of the filled part of every buffer."""
        total = 0
        for layer in self.layers:
            parts = layer.tensors if isinstance(layer, LatentKV) else [layer.conv_tail, layer.state]
            total += sum(p.numel() * p.element_size() for p in parts)
        return total
