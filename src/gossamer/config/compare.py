"""The tensors a folder holds against the tensors its config asks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gossamer.config import count
from gossamer.config.model import ModelConfig, QuantConfig


@dataclass(frozen=True, kw_only=True)
class Found:
    """One tensor as a file header states it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Differing:
    """One tensor with another dtype or shape than the architecture's."""

    name: str
    expected: Found
    found: Found

    @property
    def is_misshapen(self) -> bool:
        """True for a wrong shape; False where only the dtype differs."""
        return self.expected.shape != self.found.shape


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result, each list in a stable order."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    differing: tuple[Differing, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every wanted tensor is there as wanted; extra ones do not matter."""
        return not self.missing and not self.differing


def compare(config: ModelConfig, found: Iterable[Found]) -> Comparison:
    """Compare header entries with the architecture.

    A tensor whose presence is unsettled (`TensorSpec.optional`) may be absent.
    """
    left = {tensor.name: tensor for tensor in found}
    missing: list[str] = []
    differing: list[Differing] = []
    for spec in count.tensors(config):
        tensor = left.pop(spec.name, None)
        if tensor is None:
            if not spec.optional:
                missing.append(spec.name)
        elif (tensor.dtype, tensor.shape) != (spec.dtype, spec.shape):
            wanted = Found(name=spec.name, dtype=spec.dtype, shape=spec.shape)
            differing.append(Differing(name=spec.name, expected=wanted, found=tensor))
    return Comparison(missing=tuple(missing), extra=tuple(left), differing=tuple(differing))


def with_storage_of(config: ModelConfig, names: Iterable[str]) -> ModelConfig:
    """The config with the expert format that the tensor names show.

    What decides how experts are stored is whether ``weight_packed`` exists, not what the file
    declares: its ignore list leaves several unpacked matrices out.
    """
    packed = any(name.endswith(".weight_packed") for name in names)
    if packed == (config.quant is not None and config.quant.expert_format == "mxfp4"):
        return config
    quant = config.quant or QuantConfig()
    return replace(config, quant=replace(quant, expert_format="mxfp4" if packed else "bf16"))
