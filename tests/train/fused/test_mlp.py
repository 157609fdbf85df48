"""The gated feed-forward network against torch in float64, output and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from gossamer.ops.situ import situ
from gossamer.train.fused.mlp import gated_mlp


def close(got: Tensor, exact: Tensor, least: float = 1e-3, relative: float = 1e-5) -> None:
    """Within `relative` of the scale: the largest value, but `least` where terms of that size may cancel."""
    limit = relative * max(least, float(exact.detach().abs().max()))
    torch.testing.assert_close(got.detach().double(), exact.detach(), rtol=0, atol=limit)


def exact_mlp(
    x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor, beta: float, linear: float | None
) -> Tensor:
    gate, up = F.linear(x, w_gate), F.linear(x, w_up)
    up = up if linear is None else linear * torch.tanh(up / linear)
    return F.linear(beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * up, w_down)


@given(
    rows=st.sampled_from([1, 3, 17, 100, 270]),
    width=st.sampled_from([1, 16, 33, 256]),
    inner=st.sampled_from([1, 16, 47, 256, 300, 520]),
    linear_beta=st.sampled_from([None, 25.0]),
    size=st.sampled_from([0.01, 1.0, 20.0]),
    seed=st.integers(0, 1000),
)
@example(512, 256, 768, 25.0, 1.0, 0)
@example(1, 256, 1, None, 1.0, 812)
@example(1, 256, 1, None, 1.0, 337)
@example(3, 1, 300, None, 20.0, 325)
@example(3, 256, 1, None, 20.0, 336)
def test_definition(
    rows: int, width: int, inner: int, linear_beta: float | None, size: float, seed: int
) -> None:
    torch.manual_seed(seed)
    x, dy = torch.randn(rows, width) * size, torch.randn(rows, width)
    w_gate, w_up = (torch.randn(inner, width) / width**0.5 for _ in range(2))
    leaves = [t.requires_grad_() for t in (x, w_gate, w_up, torch.randn(width, inner) / inner**0.5)]
    y = gated_mlp(*leaves, 4.0, linear_beta)
    got = torch.autograd.grad(y, leaves, dy)
    twins = [t.detach().double().requires_grad_() for t in leaves]
    exact = exact_mlp(*twins, 4.0, linear_beta)
    # A gate next to zero is the sum of larger terms: its rounding is that of the input's size.  So is that of
    # an output whose terms cancel.
    terms = exact_mlp(*twins[:3], torch.eye(inner).double(), 4.0, linear_beta).abs() @ twins[3].abs().T
    # A saturated gate turns the absolute error of its input into a relative one, in gradients too.
    relative = 1e-5 * (1 + size / 4)
    close(y, exact, max(1e-3, 0.1 * size, 0.02 * float(terms.detach().max())), relative)
    for one, other in zip(got, torch.autograd.grad(exact, twins, dy.double()), strict=True):
        # The gradient of an activation sums `width` terms of inner^-0.5, which may cancel.
        terms = max(1.0, (width / inner) ** 0.5)
        close(one, other, max(1.0, size) * terms, relative)


def test_activation_is_situ() -> None:
    torch.manual_seed(0)
    x, w_gate, w_up, w_down = torch.randn(9, 8), torch.randn(12, 8), torch.randn(12, 8), torch.randn(8, 12)
    want = situ(F.linear(x, w_gate), F.linear(x, w_up), 3.0, 7.0) @ w_down.T
    torch.testing.assert_close(gated_mlp(x, w_gate, w_up, w_down, 3.0, 7.0), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("linear_beta", [None, 25.0])
@pytest.mark.parametrize("far", [90.0, 1e4, 1e15])
def test_saturated_gates_stay_finite(far: float, linear_beta: float | None) -> None:
    w_up = torch.ones(2, 1)
    leaves = [torch.tensor([[far], [-far]]), torch.tensor([[1.0], [-1.0]]), w_up, torch.ones(1, 2)]
    leaves = [t.requires_grad_() for t in leaves]
    y = gated_mlp(*leaves, 4.0, linear_beta)
    for value in (y, *torch.autograd.grad(y.sum(), leaves)):
        assert bool(value.isfinite().all())


def test_strided_inputs() -> None:
    torch.manual_seed(0)
    x, w = torch.randn(8, 10).T, torch.randn(8, 12).T
    y = gated_mlp(x, w, w, w.T, 4.0, 25.0)
    torch.testing.assert_close(y, gated_mlp(x.contiguous(), w.contiguous(), w.contiguous(), w.T, 4.0, 25.0))


def test_no_rows() -> None:
    w = torch.ones(4, 3, requires_grad=True)
    y = gated_mlp(torch.zeros(0, 3), w, w, w.mT, 4.0, None)
    assert y.shape == (0, 3)
    y.sum().backward()
    assert w.grad is not None
    assert not w.grad.any()


def test_refuses_shapes() -> None:
    w = torch.zeros(4, 3)
    with pytest.raises(ValueError, match=r"w_gate and w_up must be \[F, D\] and w_down \[D, F\]"):
        gated_mlp(torch.zeros(2, 3), w, w, w, 4.0, None)
    with pytest.raises(ValueError, match=r"needs \[M, 3\]"):
        gated_mlp(torch.zeros(2, 4), w, w, w.mT, 4.0, None)
