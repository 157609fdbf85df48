"""Tower and projector in numpy, equal to `gossamer.model.vision` and free of torch.

One image at a time: its rows depend on its pixels alone.  Matrices stay as the checkpoint has them and become
float32 one at a time, so a large tower needs little memory beside its file.

Shape legend: P patches, W width of the tower, H heads of width K, N tokens,
D hidden width of the text network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.checkpoint import CheckpointReader
from gossamer.checkpoint.bf16 import bf16_to_f32
from gossamer.config.count import VISION_COMPONENTS, tensors
from gossamer.config.model import ModelConfig, VisionConfig
from gossamer.kernels.network import NetworkError
from gossamer.kernels.plain_ops import F32
from gossamer.kernels.weights import stored_array

NORM_EPS = np.float32(1.1920929e-07)
"""See `gossamer.model.vision`."""
ROPE_THETA = 10_000.0
_SCORE_BYTES = 64 << 20
# A cubic through values and slopes this far apart is off by less than 1e-9.
_ERF_STEPS, _ERF_END = 64, 6


def vision_weights(config: ModelConfig, reader: CheckpointReader) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every tensor of tower and projector by its published name; BF16 as uint16 bits.

    Args:
        config: With its vision part.
        reader: Must stay open as long as the arrays are used, unless its files are local.

    Raises:
        CheckpointError: a tensor is missing, mis-shaped, mis-typed or damaged; it names file and tensor.
    """
    for spec in tensors(config):
        if spec.component in VISION_COMPONENTS:
            yield spec.name, stored_array(spec, reader)


def has_vision_weights(reader: CheckpointReader) -> bool:
    """Whether a checkpoint holds a tower; text-only copies often keep the config of one."""
    return any(name.startswith("vision_tower.") for name in reader.names())


class VisionNetwork:
    """Images to rows that stand in for token embeddings.

    Args:
        config: Their sizes.
        weights: As `vision_weights` gives them: float32, float16, or BF16 as uint16 bits.

    Raises:
        NetworkError: a weight is missing, or sizes do not go together.
    """

    def __init__(self, config: VisionConfig, weights: Iterable[tuple[str, NDArray[Any]]]) -> None:
        if config.qkv_size % (4 * config.num_heads):
            raise NetworkError(
                f"qkv_hidden_size {config.qkv_size} must be a multiple of 4 * {config.num_heads} heads"
            )
        if config.projector_hidden_size != config.hidden_size:
            raise NetworkError(
                f"mm_hidden_size {config.projector_hidden_size} must equal "
                f"vt_hidden_size {config.hidden_size}"
            )
        self.config = config
        self._weights = dict(weights)

    def run(self, patches: F32, rows: int, columns: int) -> F32:
        """One image.

        Args:
            patches: [P, 3 * side * side], normalised, row by row.
            rows: Patches of a column of the image.
            columns: Patches of a row.

        Returns:
            [N, D].

        Raises:
            NetworkError: a shape that does not fit.
        """
        wide, (high, across) = 3 * self.config.patch_size**2, self.config.merge_size
        if patches.shape != (rows * columns, wide):
            raise NetworkError(f"patches must be [{rows} * {columns}, {wide}], got {list(patches.shape)}")
        if rows % high or columns % across:
            raise NetworkError(f"{rows} x {columns} patches do not merge by {high} x {across}")
        x = self._product("vision_tower.patch_embed.proj", patches.astype(np.float32, copy=False))
        x += stretch(self._weight("vision_tower.patch_embed.pos_emb"), rows, columns)
        cos, sin = rotation(rows, columns, self.config.qkv_size // self.config.num_heads)
        for i in range(self.config.num_layers):
            block = f"vision_tower.encoder.blocks.{i}."
            qkv = self._product(f"{block}wqkv", self._norm(f"{block}norm0", x, NORM_EPS))
            x += self._product(f"{block}wo", attend(qkv, self.config.num_heads, cos, sin))
            inner = self._product(f"{block}mlp.fc0", self._norm(f"{block}norm1", x, NORM_EPS))
            x += self._product(f"{block}mlp.fc1", gelu_tanh(inner))
        x = self._norm("vision_tower.encoder.final_layernorm", x, NORM_EPS)
        x = x.reshape(rows // high, high, columns // across, across, -1).transpose(0, 2, 1, 3, 4)
        x = x.reshape(rows * columns // (high * across), -1)
        y = self._product("mm_projector.proj.2", gelu(self._product("mm_projector.proj.0", x)))
        return self._norm("mm_projector.post_norm", y, np.float32(self.config.projector_eps))

    def _weight(self, name: str) -> F32:
        stored = self._weights.get(f"{name}.weight")
        if stored is None:
            raise NetworkError(f"weight {name}.weight is missing")
        return bf16_to_f32(stored) if stored.dtype == np.uint16 else stored.astype(np.float32, copy=False)

    def _product(self, name: str, x: F32) -> F32:
        matrix = self._weight(name)
        return x @ matrix.reshape(len(matrix), -1).T

    def _norm(self, name: str, x: F32, eps: np.float32) -> F32:
        scale = 1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps)
        return x * scale * self._weight(name)


def stretch(table: F32, rows: int, columns: int) -> F32:
    """A learned grid [H, W, C] bilinearly resized to [rows * columns, C], corners not aligned."""
    high, wide, channels = table.shape
    if (high, wide) != (rows, columns):
        low, up, part = _between(high, rows)
        table = table[low] * (1 - part)[:, None, None] + table[up] * part[:, None, None]
        low, up, part = _between(wide, columns)
        table = table[:, low] * (1 - part)[:, None] + table[:, up] * part[:, None]
    return table.reshape(rows * columns, channels)


def _between(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.int64], F32]:
    """For each new place: its neighbours among the old ones, and how much the upper one counts."""
    place = (np.arange(new, dtype=np.float32) + np.float32(0.5)) * np.float32(old / new) - np.float32(0.5)
    place = np.maximum(place, 0)
    low = np.minimum(place.astype(np.int64), old - 1)
    return low, np.minimum(low + 1, old - 1), (place - low).astype(np.float32)


def rotation(rows: int, columns: int, head_dim: int) -> tuple[F32, F32]:
    """Cosines and sines of 2-D rotary positions, [P, K / 2]: column at even pairs, row at odd ones."""
    frequency = np.float32(ROPE_THETA) ** -(np.arange(0, head_dim, 4, dtype=np.float32) / head_dim)
    row, column = np.divmod(np.arange(rows * columns), columns)
    both = np.stack([column, row], -1).astype(np.float32)  # [P, 2]
    angles = (frequency[:, None] * both[:, None, :]).reshape(rows * columns, -1)
    return np.cos(angles), np.sin(angles)


def attend(qkv: F32, num_heads: int, cos: F32, sin: F32) -> F32:
    """Full attention among all patches: [P, 3 H K] to [P, H K]; scores of some queries at a time."""
    count = len(qkv)
    parts = np.ascontiguousarray(qkv.reshape(count, 3, num_heads, -1).transpose(1, 2, 0, 3))  # [3, H, P, K]
    scale = np.float32(parts.shape[-1] ** -0.5)
    some = max(1, _SCORE_BYTES // (4 * count))
    out = np.empty((count, num_heads, parts.shape[-1]), np.float32)
    for head in range(num_heads):
        q, k, v = turn(parts[0, head], cos, sin) * scale, turn(parts[1, head], cos, sin), parts[2, head]
        for begin in range(0, count, some):
            scores = q[begin : begin + some] @ k.T
            scores -= scores.max(-1, keepdims=True)
            np.exp(scores, out=scores)
            out[begin : begin + some, head] = scores @ v / scores.sum(-1, keepdims=True)
    return out.reshape(count, -1)


def turn(x: F32, cos: F32, sin: F32) -> F32:
    """Turn the neighbouring pairs of x [P, K] by angles [P, K / 2]."""
    even, odd = x[:, 0::2], x[:, 1::2]
    out = np.empty_like(x)
    out[:, 0::2] = even * cos - odd * sin
    out[:, 1::2] = even * sin + odd * cos
    return out


def gelu_tanh(x: F32) -> F32:
    """GELU in its tanh form."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def gelu(x: F32) -> F32:
    """GELU without approximation: x times the normal distribution's integral up to x."""
    return np.float32(0.5) * x * (1 + erf(x * np.float32(math.sqrt(0.5))))


def erf(x: F32) -> F32:
    """The error function to float32's precision: a cubic between values and slopes of a table."""
    values, slopes = _erf_table()
    magnitude = np.minimum(np.abs(x), np.float32(_ERF_END)) * np.float32(_ERF_STEPS)
    index = np.minimum(magnitude.astype(np.int32), _ERF_STEPS * _ERF_END - 1)
    t = magnitude - index.astype(np.float32)
    left, right, run = values[index], values[index + 1], slopes[index]
    rise = right - left
    curve = t * (
        run + t * (3 * rise - 2 * run - slopes[index + 1] + t * (run + slopes[index + 1] - 2 * rise))
    )
    return np.copysign(left + curve, x)


@cache
def _erf_table() -> tuple[F32, F32]:
    """Values of erf at steps of 1 / _ERF_STEPS, and its slope times the step."""
    places = np.arange(_ERF_STEPS * _ERF_END + 1) / _ERF_STEPS
    slopes = 2 / math.sqrt(math.pi) * np.exp(-(places**2)) / _ERF_STEPS
    return np.array([math.erf(place) for place in places], np.float32), slopes.astype(np.float32)
