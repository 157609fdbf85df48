"""One way to compare tensors, and one table of how close they must be."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Tolerance(NamedTuple):
    """Budgets: relative root-mean-square error, largest absolute error over the reference's RMS, and why."""

    relative_rms: float
    max_over_rms: float
    reason: str


EXACT = Tolerance(0.0, 0.0, "the same operations on the same values")

# (operator, dtype of the inputs, form that is compared with naive.py)
TOLERANCES: dict[tuple[str, str, str], Tolerance] = {
    ("kda", "float32", "recurrent"): Tolerance(1e-6, 1e-5, "same order of operations, fused sums differ"),
    ("kda", "float32", "chunk"): Tolerance(1e-5, 3e-4, "an unbounded gate sums to hundreds in a chunk"),
    ("kda_grad", "float32", "chunk"): Tolerance(5e-5, 2e-3, "as the outputs, through two more products"),
    ("kda_decay_grad", "float32", "chunk"): Tolerance(5e-4, 5e-3, "a small difference of large sums"),
    ("short_conv", "float32", "shifted"): Tolerance(1e-6, 1e-5, "four terms in another order"),
    # dq where one token takes all the weight is a small difference: 2.7e-6 on processors without AVX-512.
    ("mla", "float32", "expanded"): Tolerance(4e-6, 2e-5, "softmax with another reduction order"),
    ("mla", "float32", "absorbed"): Tolerance(2e-6, 2e-5, "products re-associated through the latent space"),
    ("dsa", "float32", "gathered"): Tolerance(2e-6, 2e-5, "as absorbed attention, on fewer tokens"),
    ("dsa_scores", "float32", "vectorised"): Tolerance(1e-6, 1e-5, "dot products in another order"),
    ("router", "float32", "vectorised"): Tolerance(1e-6, 1e-5, "one matrix product instead of many"),
    ("experts", "float32", "grouped"): Tolerance(2e-6, 2e-5, "matrix products in another order"),
    ("situ", "float32", "fused"): Tolerance(1e-6, 1e-5, "closed-form gradient against autograd"),
    ("rmsnorm", "float32", "fused"): Tolerance(1e-6, 1e-5, "closed-form gradient against autograd"),
    ("attn_residual", "float32", "vectorised"): Tolerance(2e-6, 2e-5, "reductions in another order"),
    ("model", "float32", "split"): Tolerance(
        2e-5, 3e-4, "rounding of other matrix shapes through all layers"
    ),
    ("model", "float32", "native"): Tolerance(2e-5, 3e-4, "other reduction orders through all layers"),
    ("model", "float32", "bf16 cache"): Tolerance(2e-2, 0.2, "eight bits of mantissa in latent rows"),
    ("model", "float32", "fp8 cache"): Tolerance(1e-1, 0.6, "three bits of mantissa in latent rows and keys"),
    ("model", "float32", "bf16 state"): Tolerance(2e-2, 0.2, "eight bits of mantissa, rounded every token"),
    ("model", "float32", "bf16 inputs"): Tolerance(1e-1, 0.6, "eight bits a value, through all layers"),
    ("model", "float32", "int8"): Tolerance(1e-1, 0.6, "seven bits a value at most, through all layers"),
    ("model", "float32", "golden"): Tolerance(2e-5, 3e-4, "another machine's matrix kernels"),
    ("model", "bfloat16", "whole"): Tolerance(5e-2, 0.5, "eight bits of mantissa through all layers"),
    ("model", "bfloat16", "autocast"): Tolerance(5e-2, 0.5, "matrix products in bfloat16"),
    ("model", "float32", "mxfp8"): Tolerance(1.5e-1, 1.0, "three bits of mantissa at both expert inputs"),
    ("vision", "float32", "numpy"): Tolerance(
        5e-6, 5e-5, "other reduction orders, an error function of its own"
    ),
    # Against outside implementations: their own reduction orders and exponentials, not a shared kernel.
    ("oracle", "float32", "kda"): Tolerance(
        2e-5, 3e-4, "two chunk forms, each with its own triangular solve"
    ),
    ("oracle", "float32", "layer"): Tolerance(1e-5, 1e-4, "one layer, other shapes of matrix products"),
    ("oracle", "float32", "layer_gradients"): Tolerance(
        3e-5, 5e-4, "decay gradients are differences of sums"
    ),
    ("oracle", "float32", "model"): Tolerance(5e-5, 1e-3, "rounding differences through five layers"),
    ("oracle", "float32", "model_gradients"): Tolerance(2e-4, 5e-3, "the same, forwards and backwards"),
    ("oracle", "float32", "llama"): Tolerance(2e-4, 5e-3, "approximate exponentials, other reduction orders"),
    ("oracle", "float32", "llama_mxfp4"): Tolerance(3e-2, 0.3, "it rounds expert inputs to eight bits"),
}


def assert_close(got: Tensor, want: Tensor, key: tuple[str, str, str], what: str = "") -> None:
    """Compare with the budget of TOLERANCES[key]; both errors are printed, so a test log shows the margin."""
    assert_within(got, want, TOLERANCES[key], f"{'/'.join(key)} {what}")


def assert_within(got: Tensor, want: Tensor, tolerance: Tolerance, what: str) -> None:
    """Relative RMS error and the largest error over the reference's RMS, both within the budget."""
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    assert bool(torch.isfinite(want).all()), f"{what}: the reference is not finite"
    assert bool(torch.isfinite(got).all()), f"{what}: not finite"
    difference = got.double() - want.double()
    scale = want.double().square().mean().sqrt().item()
    rms = difference.square().mean().sqrt().item()
    largest = difference.abs().max().item() if difference.numel() else 0.0
    # A reference of zeros has no relative error: there the errors are absolute.
    base = scale if scale > 0 else 1.0
    print(f"{what}: relative rms {rms / base:.2e} (<= {tolerance.relative_rms:.0e}), ", end="")
    print(f"max/rms {largest / base:.2e} (<= {tolerance.max_over_rms:.0e})")
    assert math.isfinite(rms)
    assert rms <= tolerance.relative_rms * base, what
    assert largest <= tolerance.max_over_rms * base, what
