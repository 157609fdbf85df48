"""The fused element-wise operators against their definitions, outputs and gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gossamer.kernels import backend
from gossamer.ops import attn_residual, rmsnorm
from gossamer.train.fused import pointwise

ROWS = st.sampled_from([1, 2, 3, 17, 100])
WIDTHS = st.sampled_from([2, 5, 8, 31, 128, 256, 260])
SEEDS = st.integers(0, 2**16)


def compare(
    fused: Callable[..., Tensor],
    definition: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    tolerance: float,
    floor: float = 1e-2,
) -> None:
    """Output and every gradient within the tolerance, relative to the largest element of each or `floor`."""
    results = []
    for function, dtype in ((fused, torch.float32), (definition, torch.float64)):
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        y = function(*leaves)
        generator = torch.Generator().manual_seed(1)
        toward = torch.randn(y.shape, generator=generator, dtype=torch.float64)
        results.append([y.detach(), *torch.autograd.grad(y, leaves, toward.to(dtype))])
    for i, (got, want) in enumerate(zip(*results, strict=True)):
        assert got.dtype == torch.float32
        assert got.shape == want.shape
        error = (got.double() - want).abs().max().item()
        scale = max(want.abs().max().item(), floor)
        assert error <= tolerance * scale, f"tensor {i}: off by {error:.2e} at a scale of {scale:.2e}"


def normal(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def mix(values: Sequence[Tensor], norm: Tensor, proj: Tensor, eps: float) -> Tensor:
    scores = torch.stack([(rms_norm(v, norm, eps) * proj.view(-1)).sum(-1) for v in values])
    return (torch.softmax(scores, 0).unsqueeze(-1) * torch.stack(list(values))).sum(0)


@given(ROWS, WIDTHS, SEEDS)
def test_rms_norm(rows, width, seed):
    x, weight = normal(seed, (rows, width), (width,))
    compare(
        lambda x, w: pointwise.rms_norm(x, w, 1e-5),
        lambda x, w: rms_norm(x, w, 1e-5),
        [x * 3, weight],
        1e-5,
    )


@given(ROWS, WIDTHS, st.integers(1, 6), SEEDS, st.booleans())
def test_mix(rows, width, num, seed, normed):
    norm, proj, gain, *values = normal(seed, (width,), (1, width), (width,), *[(1, rows, width)] * num)

    def fused(norm, proj, gain, *values):
        if normed:
            return pointwise.mix_norm(list(values), norm, proj, 1e-5, gain, 1e-3)
        return pointwise.mix(list(values), norm, proj, 1e-5) + 0 * (gain.sum() + norm.sum() + proj.sum())

    def definition(norm, proj, gain, *values):
        y = mix(values, norm, proj, 1e-5)
        return rms_norm(y, gain, 1e-3) if normed else y + 0 * gain.sum()

    if num == 1 and normed:  # one candidate: no mix, and no gradient of its weights
        compare(
            lambda g, v: fused(norm, proj, g, v), lambda g, v: rms_norm(v, g, 1e-3), [gain, values[0]], 1e-5
        )
    else:
        # The scores' gradient is a difference of sums over the width, whose terms are of order one: where the
        # sums cancel, float32 leaves an error of their size, about sqrt(width), not of the difference's.
        floor = max(1e-2, width**0.5 / 50)
        compare(fused, definition, [norm, proj / width**0.5, gain, *values], 3e-5, floor)


@given(ROWS, WIDTHS, SEEDS)
def test_gated(rows, width, seed):
    a, gate = normal(seed, (rows, width), (rows, width))
    compare(pointwise.gated, lambda a, g: a * torch.sigmoid(g), [a, gate * 3], 1e-5)


@given(ROWS, WIDTHS, st.integers(1, 9), SEEDS)
def test_embedding(tokens, width, vocab, seed):
    (weight,) = normal(seed, (vocab, width))
    ids = torch.randint(vocab, (1, tokens), generator=torch.Generator().manual_seed(seed))
    compare(lambda w: pointwise.embedding(ids, w), lambda w: w[ids], [weight], 1e-5)


def test_same_as_the_operators():
    """The definitions above are those of `gossamer.ops`."""
    norm, proj, *values = normal(5, (96,), (1, 96), *[(2, 7, 96)] * 3)
    pairs = [
        (pointwise.rms_norm(values[0], norm, 1e-5), rmsnorm.rms_norm(values[0], norm, 1e-5)),
        (pointwise.mix(values, norm, proj, 1e-5), attn_residual.mix(values, norm, proj, 1e-5)),
    ]
    for got, want in pairs:
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)


def test_gradients_of_views():
    """Inputs and gradients that are not contiguous: columns of a wider product, an expanded gradient."""
    wide, weight = normal(9, (5, 48), (16,))
    parts = [wide.clone().requires_grad_() for _ in range(2)]
    pointwise.rms_norm(parts[0][:, 8:24], weight, 1e-5).sum().backward()
    rms_norm(parts[1][:, 8:24], weight, 1e-5).sum().backward()
    torch.testing.assert_close(parts[0].grad, parts[1].grad, rtol=1e-5, atol=1e-6)


def test_errors_name_the_value():
    with pytest.raises(ValueError, match=r"id 7 is outside the vocabulary 0..4"):
        pointwise.embedding(torch.tensor([7]), torch.zeros(5, 4))
    with pytest.raises(ValueError, match=r"weight must be \[4\], got \[5\]"):
        pointwise.rms_norm(torch.zeros(3, 4), torch.zeros(5), 1e-5)
    with pytest.raises(TypeError, match="float64"):
        pointwise.gated(torch.zeros(3, dtype=torch.float64), torch.zeros(3))


@pytest.mark.parametrize("build", backend.available())
@pytest.mark.parametrize(
    ("name", "low", "high", "bound"),
    [
        ("exp", -87.3, 88.3, 1.2e-7),
        ("sigmoid", -80, 80, 2e-7),
        ("tanh", -12, 12, 2.5e-7),
        ("log", -80, 80, 1.2e-7),
    ],
)
def test_elementary_functions(build, name, low, high, bound):
    """Relative error on a fine grid, and what happens at the ends of the line."""
    native = getattr(backend.load(build).train, name)
    grid = torch.linspace(low, high, 300_001, dtype=torch.float64)
    x = (grid.exp() if name == "log" else torch.cat([grid, grid * 1e-3])).float()
    y = torch.empty_like(x)
    native(x, y)
    want = getattr(torch, name)(x.double())
    # Where the result is nearly 0 the grid itself has 0 / 0.
    assert ((y.double() - want).abs() / want.abs().clamp_min(1e-37)).max() <= bound
    ends = torch.tensor([float("-inf"), -3e38, -1e3, 1e3, 3e38, float("inf"), float("nan")])
    y = torch.empty_like(ends)
    native(ends, y)
    torch.testing.assert_close(y, getattr(torch, name)(ends), rtol=1e-6, atol=0, equal_nan=True)
