"""How the fused network reaches the kernels: the best build that runs here, and arrays instead of tensors."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from gossamer.kernels import backend


@cache
def kernels() -> ModuleType:
    """The training kernels of the best instruction set that runs here.

    Raises:
        BackendError: none are built.
    """
    module: ModuleType = backend.load().train
    return module


def call(kernel: str, *arguments: Any, **options: Any) -> Any:
    """One kernel on tensors, handed over as arrays: the bindings take those four times as fast as tensors."""
    return getattr(kernels(), kernel)(*map(_array, arguments), **options)


def plain(x: Tensor) -> Tensor:
    """What a kernel reads: contiguous and outside autograd.

    Raises:
        TypeError: x is not float32.
    """
    if x.dtype != torch.float32:
        raise TypeError(f"the training kernels take float32, got {x.dtype}; convert with .float()")
    return x.detach().contiguous()


def _array(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return argument.numpy()
    return [tensor.numpy() for tensor in argument] if isinstance(argument, list) else argument
