"""A checkpoint's tensors in the form the inference kernels take: matrices in place, small vectors as float32.

Names are the published ones without "language_model.", experts as "....experts.7.w1".

Shape legend: N rows, K columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gossamer import mx
from gossamer.checkpoint import CheckpointError, CheckpointReader
from gossamer.checkpoint.bf16 import bf16_to_f32
from gossamer.config import count, layout
from gossamer.config.count import VISION_COMPONENTS, TensorSpec
from gossamer.config.model import ModelConfig

Kind = Literal["bf16", "f32", "mxfp4", "vector"]


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One matrix [N, K], or one vector.

    Attributes:
        name: Without the suffixes ".weight" and ".weight_packed" where it is a matrix.
        kind: bf16 (`data` holds uint16 bits), f32, mxfp4 (`data` [N, K/2] codes with `scales` [N, K/32]), or
            vector (float32, any shape).
        data: Where the checkpoint is a local file, a view into it.
        scales: Of mxfp4 alone.
    """

    name: str
    kind: Kind
    data: NDArray[Any]
    scales: NDArray[np.uint8] | None = None


def settled(config: ModelConfig, reader: CheckpointReader) -> ModelConfig:
    """The config with what only tensor names tell: whether experts are packed and k_norm has a bias."""
    names = reader.names()
    config = layout.with_storage_of(config, names)
    if config.dsa is None or config.dsa.k_norm_bias is not None:
        return config
    has_bias = any(name.endswith("indexer.k_norm.bias") for name in names)
    return replace(config, dsa=replace(config.dsa, k_norm_bias=has_bias))


def from_checkpoint(config: ModelConfig, reader: CheckpointReader) -> Iterator[Weight]:
    """Every weight of the text network.

    Args:
        config: As `settled` returned it.
        reader: Must stay open as long as the arrays are used.

    Raises:
        CheckpointError: a tensor is missing, mis-shaped, mis-typed or damaged; it names file and tensor.
    """
    prefix = layout.text_prefix(config)
    for spec in count.tensors(config):
        if spec.component in VISION_COMPONENTS or spec.name.endswith(".weight_scale"):
            continue
        if spec.optional and spec.name not in reader:
            continue
        yield _weight(spec, spec.name.removeprefix(prefix), config, reader)


def _weight(spec: TensorSpec, name: str, config: ModelConfig, reader: CheckpointReader) -> Weight:
    if name.endswith(".weight_packed"):
        return _packed(spec, name.removesuffix(".weight_packed"), reader)
    array = stored_array(spec, reader, padded=name.endswith("A_log"))
    if name.endswith("A_log"):
        return Weight(name=name, kind="vector", data=_without_padding(spec, array, config, reader))
    if len(spec.shape) != 2 or name.endswith("_res_proj.weight"):
        return Weight(name=name, kind="vector", data=_float32(array))
    stem = name.removesuffix(".weight")
    if array.dtype == np.uint16:
        return Weight(name=stem, kind="bf16", data=array)
    return Weight(name=stem, kind="f32", data=_float32(array))


def _packed(spec: TensorSpec, stem: str, reader: CheckpointReader) -> Weight:
    rows, half = spec.shape
    scale_name = spec.name.removesuffix("packed") + "scale"
    codes = _bytes(spec.name, (rows, half), reader)
    scales = _bytes(scale_name, (rows, 2 * half // mx.BLOCK), reader)
    mx.check_scales(scales, name=scale_name)
    return Weight(name=stem, kind="mxfp4", data=codes, scales=scales)


def _bytes(name: str, shape: tuple[int, ...], reader: CheckpointReader) -> NDArray[np.uint8]:
    info = reader.info(name)
    if info.dtype not in ("U8", "F8_E8M0"):
        raise _fail(reader, name, f"has dtype {info.dtype}; packed experts need U8")
    if tuple(info.shape) != shape:
        raise _fail(reader, name, f"has shape {list(info.shape)}, the model needs {list(shape)}")
    return reader.array(name)


def stored_array(spec: TensorSpec, reader: CheckpointReader, *, padded: bool = False) -> NDArray[Any]:
    """A floating tensor as the file has it, BF16 as uint16 bits; ``padded`` allows another shape.

    Raises:
        CheckpointError: it is missing, mis-shaped, mis-typed or damaged.
    """
    info = reader.info(spec.name)
    if info.dtype not in ("BF16", "F16", "F32"):
        raise _fail(reader, spec.name, f"has dtype {info.dtype}; expected one of BF16, F16, F32")
    if tuple(info.shape) != spec.shape and not padded:
        raise _fail(reader, spec.name, f"has shape {list(info.shape)}, the model needs {list(spec.shape)}")
    return reader.array(spec.name)


def _float32(array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype == np.uint16:
        return np.ascontiguousarray(bf16_to_f32(array))
    return np.ascontiguousarray(array, dtype=np.float32)


def _without_padding(
    spec: TensorSpec, array: NDArray[Any], config: ModelConfig, reader: CheckpointReader
) -> NDArray[np.float32]:
    """A_log of the heads there are; K3 stores it padded with zeros, Kimi-Linear with four dimensions."""
    heads, flat = config.kda.num_heads, _float32(array).reshape(-1)
    if flat.size < heads or max(array.shape) != flat.size:
        raise _fail(reader, spec.name, f"has shape {list(array.shape)}, the model has {heads} heads")
    if flat[heads:].any():
        raise _fail(reader, spec.name, f"has values beyond its {heads} heads, where padding is zero")
    return flat[:heads].copy()


def _fail(reader: CheckpointReader, name: str, problem: str) -> CheckpointError:
    return CheckpointError(problem, file=reader.info(name).file, tensor=name)
