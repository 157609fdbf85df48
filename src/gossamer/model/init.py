"""Random initial weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from gossamer.model.transformer import Transformer


def initialise(model: Transformer, seed: int) -> None:
    """Fill every parameter in place, in a fixed order from one seed.

    Matrices are normal(0, initializer_range), routers too; convolution taps are uniform; norms are one;
    A_log = log(uniform(1, 16)); dt_bias and the selection bias are zero.  Packed experts keep zero codes.
    The residual-mix projections start at zero, which makes every mix a plain mean at first.
    """
    generator = torch.Generator().manual_seed(seed)
    scale = model.config.initializer_range
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            fill(name, parameter, scale, generator)


def fill(name: str, parameter: nn.Parameter, scale: float, generator: torch.Generator) -> None:
    """Fill one parameter by its name; see `initialise`.  Call it without gradients."""
    if name.endswith("A_log"):
        parameter.copy_(_uniform(parameter, 1.0, 16.0, generator).log())
    elif name.endswith("conv1d.weight"):
        # As torch's own convolution: one input channel per output and W taps give a bound of W^-0.5.
        bound = parameter.shape[-1] ** -0.5
        parameter.copy_(_uniform(parameter, -bound, bound, generator))
    elif name.endswith(("dt_bias", "e_score_correction_bias", ".bias", "_res_proj.weight")):
        parameter.zero_()
    elif parameter.dim() == 1:
        parameter.fill_(1.0)
    else:
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def _uniform(like: Tensor, low: float, high: float, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(like.shape, generator=generator)
