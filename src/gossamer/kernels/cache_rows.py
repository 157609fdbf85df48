"""How caches store rows of latent KV, indexer keys and KDA state: sizes, and the same in numpy.

An FP8 row is `coded` values in E4M3, then a float32 scale for each 128 of them, then its other values in
BF16: the latent with its shared key part (what engines call fp8_ds_mla), or an indexer key, whose scales are
powers of two.

Shape legend: n rows, W values of a row, B bytes of a stored row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gossamer.checkpoint.bf16 import bf16_to_f32, f32_to_bf16
from gossamer.config.model import ModelConfig
from gossamer.mx.codec import element_table
from gossamer.mx.formats import get

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
CacheType = Literal["f32", "bf16", "fp8"]
"""In the order of the native kernels' numbers for them."""
StateType = Literal["f32", "bf16"]
SCALED = 128
LARGEST = np.float32(448)
SMALLEST = np.float32(2.0**-100)


@dataclass(frozen=True)
class RowLayout:
    """One kind of row.

    Attributes:
        dtype: Of its values.
        width: W.
        coded: Values in E4M3 where dtype is fp8; the others are BF16.
        powers: Whether their scales are powers of two.
    """

    dtype: CacheType
    width: int
    coded: int
    powers: bool = False

    @property
    def num_bytes(self) -> int:
        """B."""
        if self.dtype != "fp8":
            return self.width * (4 if self.dtype == "f32" else 2)
        return self.coded + 4 * -(-self.coded // SCALED) + 2 * (self.width - self.coded)

    def keep(self, rows: F32) -> U8:
        """Rows [n, W] as they are stored, [n, B]."""
        if self.dtype == "f32":
            return np.ascontiguousarray(rows, np.float32).view(np.uint8)
        if self.dtype == "bf16":
            return f32_to_bf16(rows).view(np.uint8)
        codes, scales = [], []
        for at in range(0, self.coded, SCALED):
            part = rows[:, at : min(at + SCALED, self.coded)]
            scale = _scales(part, powers=self.powers)
            lost = np.isnan(scale)[:, None]
            steps = np.where(lost, np.float32(0), part) / np.where(lost, np.float32(1), scale[:, None])
            codes.append(np.where(lost, np.uint8(0), to_e4m3(steps.astype(np.float32))))
            scales.append(scale[:, None].view(np.uint8))
        rest = np.ascontiguousarray(f32_to_bf16(np.ascontiguousarray(rows[:, self.coded :])))
        return np.concatenate([*codes, *scales, rest.view(np.uint8).reshape(len(rows), -1)], axis=1)

    def read(self, kept: U8) -> F32:
        """Rows [n, W] of stored ones, [n, B]."""
        kept = np.ascontiguousarray(kept)
        if self.dtype == "f32":
            return kept.view(np.float32)
        if self.dtype == "bf16":
            return bf16_to_f32(kept.view(np.uint16))
        after = self.coded + 4 * -(-self.coded // SCALED)
        scales = np.ascontiguousarray(kept[:, self.coded : after]).view(np.float32)
        values = element_table(get("mxfp8_e4m3"))[kept[:, : self.coded]]
        values = values * np.repeat(scales, SCALED, axis=1)[:, : self.coded]
        rest = bf16_to_f32(np.ascontiguousarray(kept[:, after:]).view(np.uint16))
        return np.concatenate([values, rest], axis=1)


def latent_layout(config: ModelConfig, dtype: CacheType) -> RowLayout:
    """Of latent KV: the latent itself is coded, the shared key part is not."""
    return RowLayout(dtype, config.mla.latent_width, config.mla.kv_lora_rank)


def key_layout(config: ModelConfig, dtype: CacheType) -> RowLayout | None:
    """Of indexer keys; None in a model without."""
    return None if config.dsa is None else RowLayout(dtype, config.dsa.head_dim, config.dsa.head_dim, True)


def block_bytes(config: ModelConfig, dtype: CacheType, block_size: int) -> int:
    """Bytes of one block over all full-attention layers; at least 1, so that one may divide by it."""
    keys = key_layout(config, dtype)
    latent = len(config.full_attention_layers) * latent_layout(config, dtype).num_bytes
    index = 0 if keys is None or config.dsa is None else len(config.dsa.layers) * keys.num_bytes
    return max(1, block_size * (latent + index))


def slot_bytes(config: ModelConfig, state: StateType) -> int:
    """Bytes of one slot over all KDA layers; at least 1, so that one may divide by it."""
    kda = config.kda
    values = kda.width * kda.head_dim + 3 * kda.width * (kda.conv_kernel_size - 1)
    layers = config.num_layers - len(config.full_attention_layers)
    return max(1, (4 if state == "f32" else 2) * layers * values)


def to_e4m3(x: F32) -> U8:
    """Codes nearest to x, even at ties; beyond 448 they are 448.  x holds numbers only."""
    size = np.minimum(np.abs(x), LARGEST)
    bits = size.view(np.uint32)
    normal = ((bits + np.uint32(0x7FFFF) + ((bits >> 20) & 1)) >> 20) - np.uint32(120 << 3)
    # Below 2^-6 codes count steps of 2^-9, which is what the last bit of a float near 2^14 is worth.
    around = np.float32(16384)
    small = (size + around).view(np.uint32) - around.view(np.uint32)
    code = np.where(bits < 0x3C800000, small, normal) | (np.signbit(x).astype(np.uint32) << 7)
    return code.astype(np.uint8)


def _scales(part: F32, *, powers: bool) -> F32:
    """The steps of E4M3 codes that reach the largest values, [n]; NaN where one is no finite number."""
    peak = np.abs(part).max(axis=1)
    finite = np.isfinite(peak)
    scale = np.maximum(np.where(finite, peak, np.float32(0)) / LARGEST, SMALLEST).astype(np.float32)
    if powers:
        scale = ((scale.view(np.uint32) + np.uint32(0x7FFFFF)) & np.uint32(0x7F800000)).view(np.float32)
    return np.where(finite, scale, np.float32(np.nan)).astype(np.float32)
