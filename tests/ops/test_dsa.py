import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.ops.dsa import (
    index_scores,
    indexer_kl_loss,
    naive_dsa,
    naive_index_scores,
    naive_select,
    select_indices,
    select_mask,
)
from gossamer.ops.mla import attention_weights, expanded_attention, naive_attention
from gossamer.ops.mla.absorbed import gathered_attention
from numerics import assert_close


def index_inputs(queries, cached, batch=2):
    return torch.randn(batch, queries, 3, 4), torch.randn(batch, cached, 4), torch.randn(batch, queries, 3)


def attention_inputs(queries, cached):
    q = torch.randn(2, queries, 2, 12)
    return q, torch.randn(2, cached, 10), torch.randn(2, cached, 4), torch.randn(2 * (8 + 6), 10)


@pytest.mark.parametrize(("queries", "cached"), [(6, 6), (2, 9), (1, 4)])
def test_scores_equal_the_definition(queries, cached):
    args = index_inputs(queries, cached)
    got, want = index_scores(*args), naive_index_scores(*args)
    visible = want > -torch.inf
    assert torch.equal(got > -torch.inf, visible)
    assert_close(got[visible], want[visible], ("dsa_scores", "float32", "vectorised"))


# Few distinct values, so that most rows have ties, at and around the threshold.
ROWS = st.lists(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0]), min_size=1, max_size=24)


@given(ROWS, st.integers(1, 26), st.integers(0, 23))
def test_selection_is_higher_score_then_lower_index(row, top_k, num_future):
    scores = torch.tensor(row).view(1, 1, -1)
    num_future = min(num_future, len(row) - 1)
    scores[..., len(row) - num_future :] = -torch.inf
    mask, want = select_mask(scores, top_k), naive_select(scores, top_k)
    assert torch.equal(mask, want)
    indices = select_indices(scores, top_k)[0, 0]
    used = indices[indices >= 0]
    assert used.tolist() == want[0, 0].nonzero().flatten().tolist()
    assert indices.shape[0] == min(top_k, len(row))


def test_ties_go_to_the_lower_index():
    assert select_mask(torch.tensor([[[1.0, 1.0, 1.0, 1.0]]]), 2).tolist() == [[[True, True, False, False]]]


@pytest.mark.parametrize(("queries", "cached", "top_k"), [(9, 9, 4), (1, 9, 4), (3, 12, 5)])
def test_mask_form_and_gather_form_equal_the_definition(queries, cached, top_k):
    attention, index = attention_inputs(queries, cached), index_inputs(queries, cached)
    want = naive_dsa(*attention, *index, top_k)
    scores = index_scores(*index)
    masked = expanded_attention(*attention, select_mask(scores, top_k))
    gathered = gathered_attention(*attention, select_indices(scores, top_k))
    assert_close(masked, want, ("mla", "float32", "expanded"))
    assert_close(gathered, want, ("dsa", "float32", "gathered"))
    dense = naive_attention(*attention)
    assert (masked - dense).abs().max() > 1e-3


@pytest.mark.parametrize("top_k", [9, 10, 2048])
def test_selection_that_covers_the_context_is_dense(top_k):
    attention, index = attention_inputs(5, 9), index_inputs(5, 9)
    dense = naive_attention(*attention)
    scores = index_scores(*index)
    assert_close(naive_dsa(*attention, *index, top_k), dense, ("mla", "float32", "expanded"))
    assert_close(
        gathered_attention(*attention, select_indices(scores, top_k)), dense, ("dsa", "float32", "gathered")
    )


def test_kl_loss_is_zero_at_the_target_and_trains_only_the_scores():
    q = attention_inputs(6, 6)[0]
    w = torch.randn(2, 2, 6, 12).requires_grad_()
    weights = attention_weights(q, w, None)
    target = weights.detach().sum(1) / 2
    scores = target.log().requires_grad_()
    loss = indexer_kl_loss(scores, weights)
    assert abs(loss.item()) < 1e-6
    other = torch.randn(2, 6, 6).masked_fill(target == 0, -torch.inf).requires_grad_()
    loss = indexer_kl_loss(other, weights)
    # Written out once more, with sums over the visible tokens alone.
    total = 0.0
    for b in range(2):
        for t in range(6):
            p, logits = target[b, t, : t + 1], other[b, t, : t + 1]
            total += (p * (p.log() - torch.log_softmax(logits, 0))).sum().item()
    assert loss.item() == pytest.approx(total / 12, rel=1e-5)
    loss.backward()
    assert other.grad is not None
    assert torch.isfinite(other.grad).all()
    assert w.grad is None


def test_kl_loss_on_a_selection_ignores_the_other_tokens():
    scores = torch.randn(1, 4, 4).masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
    allowed = select_mask(scores, 2)
    weights = torch.rand(1, 2, 4, 4) * allowed.unsqueeze(1)
    moved = scores + torch.where(allowed, 0.0, 7.0)
    assert indexer_kl_loss(scores, weights, allowed) == indexer_kl_loss(moved, weights, allowed)
