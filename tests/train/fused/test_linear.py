"""Linear maps against torch in float64, outputs and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gossamer.train.fused.linear import joint_linear, linear


def close(got: Tensor, exact: Tensor) -> None:
    got, exact = got.detach(), exact.detach()
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=1e-5 * max(1.0, float(exact.abs().max())))


@given(
    lead=st.sampled_from([(), (1,), (17,), (2, 3), (1, 100), (2, 64)]),
    width=st.sampled_from([1, 4, 16, 33, 256]),
    outputs=st.lists(st.sampled_from([1, 4, 16, 31, 128]), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
)
def test_definition(lead: tuple[int, ...], width: int, outputs: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(*lead, width, requires_grad=True)
    weights = [torch.randn(n, width, requires_grad=True) for n in outputs]
    factors = [torch.randn(*lead, n).double() for n in outputs]
    exact = [F.linear(x.double(), w.double()) for w in weights]
    want = torch.autograd.grad(
        sum(((y * f).sum() for y, f in zip(exact, factors, strict=True)), torch.zeros(())), [x, *weights]
    )
    got = joint_linear(x, *weights)
    assert all(y.is_contiguous() for y in got)
    total = sum(((y * f.float()).sum() for y, f in zip(got, factors, strict=True)), torch.zeros(()))
    for one, other in zip((*got, *torch.autograd.grad(total, [x, *weights])), (*exact, *want), strict=True):
        close(one, other.double())


def test_gradients_only_where_wanted() -> None:
    x = torch.randn(5, 8)
    one, other = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8)
    y, z = joint_linear(x, one, other)
    (y.sum() + z.sum()).backward()
    assert x.grad is None
    assert other.grad is None
    assert one.grad is not None
    close(one.grad, x.double().sum(0).expand(4, 8))


def test_unused_output() -> None:
    x = torch.randn(5, 8, requires_grad=True)
    one, other = torch.randn(4, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    joint_linear(x, one, other)[1].sum().backward()
    assert one.grad is None
    assert x.grad is not None
    close(x.grad, other.detach().double().sum(0).expand(5, 8))


def test_strided_input() -> None:
    x = torch.randn(8, 7).T
    w = torch.randn(8, 4).T
    close(linear(x, w), x.double() @ w.double().T)


def test_refusal() -> None:
    with pytest.raises(ValueError, match=r"weight is \[4, 7\], but x \[5, 8\]"):
        linear(torch.randn(5, 8), torch.randn(4, 7))
