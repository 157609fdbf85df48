"""Head and cross entropy against torch in float64, loss and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from gossamer.train.fused.head import head_loss


def close(got: Tensor, exact: Tensor, rounding: float) -> None:
    """Within 1e-5 of the loss, and what rounding the logits leaves where a loss is next to zero."""
    got, exact = got.detach(), exact.detach()
    limit = 1e-5 * max(1e-3, float(exact.abs().max())) + rounding
    torch.testing.assert_close(got.double(), exact, rtol=0, atol=limit)


@given(
    rows=st.sampled_from([1, 3, 17, 100, 600]),
    width=st.sampled_from([1, 16, 65]),
    vocab=st.sampled_from([1, 5, 64, 257]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    size=st.sampled_from([0.1, 1.0, 30.0]),
    seed=st.integers(0, 1000),
)
@example(3, 65, 5, 0.3, 30.0, 139)
def test_definition(rows: int, width: int, vocab: int, share: float, size: float, seed: int) -> None:
    torch.manual_seed(seed)
    h = (torch.randn(rows, width) * size).requires_grad_()
    w = torch.randn(vocab, width).div_(width**0.5).requires_grad_()
    targets = torch.randint(vocab, (rows,)).masked_fill(torch.rand(rows) >= share, -100)
    exact = F.cross_entropy(h.double() @ w.double().T, targets, ignore_index=-100, reduction="sum")
    want = torch.autograd.grad(exact * 0.25, [h, w])
    got = head_loss(h, w, targets)
    assert got.dtype == torch.float32
    assert got.shape == ()
    largest = (h.double() @ w.double().T).detach().abs().amax(1)[targets >= 0].sum()
    close(got, exact, 2e-7 * float(largest))
    for one, other in zip(torch.autograd.grad(got * 0.25, [h, w]), want, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5 * max(0.1, float(other.abs().max())))


def test_far_logits_stay_finite() -> None:
    h, w = torch.eye(3).mul_(1e4).requires_grad_(), torch.eye(3)
    loss = head_loss(h, w, torch.tensor([0, 1, 0]))
    loss.backward()
    assert float(loss.detach()) == pytest.approx(1e4)
    assert h.grad is not None
    torch.testing.assert_close(h.grad, torch.tensor([[0.0, 0, 0], [0, 0, 0], [-1, 0, 1]]))


def test_gradients_only_where_wanted() -> None:
    h, w = torch.randn(4, 8, requires_grad=True), torch.randn(16, 8)
    head_loss(h, w, torch.arange(4)).backward()
    assert h.grad is not None
    assert w.grad is None
    with torch.no_grad():
        assert not head_loss(h, w, torch.arange(4)).requires_grad


@pytest.mark.parametrize("target", [16, -1])
def test_refuses_targets(target: int) -> None:
    with pytest.raises(ValueError, match=f"target {target} of row 1 is neither -100 nor in 0..15"):
        head_loss(torch.randn(2, 8), torch.randn(16, 8), torch.tensor([0, target]))


def test_refuses_shapes() -> None:
    with pytest.raises(ValueError, match=r"h must be \[M, D\] and w \[V, D\]"):
        head_loss(torch.randn(2, 8), torch.randn(16, 7), torch.tensor([0, 1]))
