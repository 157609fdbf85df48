"""Published checkpoint names to the model's tensors, both ways.

The model's own names are the published ones without "language_model.".  Two things differ: routed experts are
stacked in the model and one tensor each on disk, and on disk A_log is padded (K3) or four-dimensional
(Kimi-Linear).

Shape legend: E experts, I intermediate width, Z expert width; packed bytes hold two values each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer import mx
from gossamer.checkpoint import CheckpointError, CheckpointReader
from gossamer.checkpoint.bf16 import f32_to_bf16
from gossamer.config import count, layout
from gossamer.config.count import VISION_COMPONENTS, TensorSpec
from gossamer.config.model import ModelConfig
from gossamer.model.transformer import Transformer
from gossamer.mx.tensor import decode4

_TORCH = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What a load left aside.

    Attributes:
        extras: Names in the checkpoint that the text network has no place for, vision tensors among them.
    """

    extras: tuple[str, ...]


def to_checkpoint(model: Transformer) -> Iterator[tuple[str, np.ndarray[Any, Any], str]]:
    """Every text tensor as (published name, array, safetensors dtype), in `config.count` order.

    Dense experts are encoded when the config says they are stored as MXFP4, by the rule it records.

    Raises:
        MXError: an expert weight is NaN or Inf; the message names the tensor.
    """
    own = dict(model.state_dict(keep_vars=True))
    for spec in count.tensors(model.config):
        if spec.component in VISION_COMPONENTS:
            continue
        if spec.component == "routed_experts":
            yield spec.name, _expert_array(model, own, spec), spec.dtype
            continue
        tensor = own.get(_own_name(model.config, spec.name))
        if tensor is None and spec.optional:
            continue
        assert tensor is not None, spec.name
        yield spec.name, _to_array(_stored_form(tensor, spec), spec.dtype), spec.dtype


def load_checkpoint(model: Transformer, reader: CheckpointReader) -> LoadReport:
    """Fill the model from a checkpoint; every tensor of the model must be there in its shape.

    Floating tensors may be stored as BF16, F16 or F32 whatever the published dtype; packed experts load into
    a dense model decoded, A_log may be padded or not.

    Raises:
        CheckpointError: a tensor is missing, mis-shaped or mis-typed; the message names file and tensor.
    """
    own = dict(model.state_dict(keep_vars=True))
    used: set[str] = set()
    with torch.no_grad():
        for spec in _wanted(model, own):
            if spec.component == "routed_experts":
                used.update(_load_expert(model, own, reader, spec))
            else:
                target = own[_own_name(model.config, spec.name)]
                target.copy_(_read_float(reader, spec.name, target, spec.name.endswith("A_log")))
                used.add(spec.name)
    return LoadReport(extras=tuple(name for name in reader.names() if name not in used))


def _wanted(model: Transformer, own: dict[str, Tensor]) -> Iterator[TensorSpec]:
    """The specs that the model has a place for; an expert's scale comes with its codes."""
    for spec in count.tensors(model.config):
        absent = spec.optional and _own_name(model.config, spec.name) not in own
        if spec.component not in VISION_COMPONENTS and not absent and not spec.name.endswith("weight_scale"):
            yield spec


def _own_name(config: ModelConfig, published: str) -> str:
    return published.removeprefix(layout.text_prefix(config))


def _expert_place(config: ModelConfig, published: str) -> tuple[str, int, str]:
    """(stacked name without suffix, expert, "w1"...) of ".experts.7.w1.weight_packed"."""
    head, _, tail = _own_name(config, published).partition(".experts.")
    expert, matrix, _ = tail.split(".")
    return f"{head}.experts.{matrix}", int(expert), matrix


def _stored_form(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A_log padded with zeros and reshaped as on disk; anything else as it is."""
    flat = tensor.detach()
    if tuple(flat.shape) == spec.shape:
        return flat
    padded = flat.new_zeros(spec.shape).flatten()
    padded[: flat.numel()] = flat.flatten()
    return padded.view(spec.shape)


def _to_array(tensor: Tensor, dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "U8":
        return tensor.cpu().numpy()
    values = tensor.float().cpu().numpy()
    return f32_to_bf16(values) if dtype == "BF16" else values


def _expert_array(model: Transformer, own: dict[str, Tensor], spec: TensorSpec) -> np.ndarray[Any, Any]:
    stacked, expert, _ = _expert_place(model.config, spec.name)
    part = spec.name.rsplit(".", 1)[1]  # weight, weight_packed or weight_scale
    if model.options.storage == "packed":
        return _to_array(own[f"{stacked}_{part.removeprefix('weight_')}"][expert], "U8")
    dense = own[stacked][expert].detach()
    if part == "weight":
        return _to_array(dense, spec.dtype)
    rule = model.config.quant.scale_rule if model.config.quant else "even"
    encoded = mx.encode(dense.float().cpu().numpy(), "mxfp4", rule, name=spec.name)
    return encoded.scales if part == "weight_scale" else mx.pack4(encoded.codes)


def _load_expert(
    model: Transformer, own: dict[str, Tensor], reader: CheckpointReader, spec: TensorSpec
) -> list[str]:
    """Load one expert matrix in whichever form the file has it; returns the names read."""
    stacked, expert, _ = _expert_place(model.config, spec.name)
    stem = spec.name.rsplit(".", 1)[0]
    packed, scale, plain = (f"{stem}.{part}" for part in ("weight_packed", "weight_scale", "weight"))
    if packed not in reader and plain in reader:
        if model.options.storage == "packed":
            raise CheckpointError(
                "is stored unpacked; build the model with experts='dense'",
                file=reader.info(plain).file,
                tensor=plain,
            )
        target = own[stacked][expert]
        target.copy_(_read_float(reader, plain, target))
        return [plain]
    if model.options.storage == "packed":
        places = (own[f"{stacked}_packed"][expert], own[f"{stacked}_scale"][expert])
        for name, place in zip((packed, scale), places, strict=True):
            place.copy_(_read_bytes(reader, name, tuple(place.shape)))
        mx.check_scales(places[1].numpy(), name=scale)
    else:
        target = own[stacked][expert]
        rows, columns = target.shape
        codes = _read_bytes(reader, packed, (rows, columns // 2))
        scales = _read_bytes(reader, scale, (rows, columns // mx.BLOCK))
        mx.check_scales(scales.numpy(), name=scale)
        target.copy_(decode4(codes, scales, torch.float32))
    return [packed, scale]


def _fail(reader: CheckpointReader, name: str, problem: str) -> CheckpointError:
    return CheckpointError(problem, file=reader.info(name).file, tensor=name)


def _read_bytes(reader: CheckpointReader, name: str, shape: tuple[int, ...]) -> Tensor:
    info = reader.info(name)
    if info.dtype not in ("U8", "F8_E8M0"):
        raise _fail(reader, name, f"has dtype {info.dtype}; packed experts need U8")
    if tuple(info.shape) != shape:
        raise _fail(reader, name, f"has shape {list(info.shape)}, the model needs {list(shape)}")
    return torch.from_numpy(reader.array(name).copy())


def _read_float(reader: CheckpointReader, name: str, target: Tensor, padded: bool = False) -> Tensor:
    info = reader.info(name)
    if info.dtype not in _TORCH:
        raise _fail(reader, name, f"has dtype {info.dtype}; expected one of {', '.join(_TORCH)}")
    array = reader.array(name).copy()
    tensor = torch.from_numpy(array).view(_TORCH[info.dtype])
    if padded and tensor.numel() >= target.numel() and max(info.shape) == tensor.numel():
        if bool((tensor.flatten()[target.numel() :] != 0).any()):
            raise _fail(reader, name, f"has values beyond its {target.numel()} heads, where padding is zero")
        tensor = tensor.flatten()[: target.numel()]
    if tensor.shape != target.shape:
        raise _fail(reader, name, f"has shape {list(info.shape)}, the model needs {list(target.shape)}")
    return tensor
