"""The native indexer against `gossamer.ops.dsa`: selection exactly, loss and gradients in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.kernels import backend
from gossamer.ops.dsa import index_scores, indexer_kl_loss, select_mask
from gossamer.train.fused.attention import attention
from gossamer.train.fused.indexer import (
    Index,
    Sizes,
    indexed_attention,
    select,
    select_from_scores,
)

from .test_attention import inputs

pytestmark = pytest.mark.skipif(not backend.available(), reason="the native kernels are not built")

NANO = (4, 64, 32, 64)


def an_index(batch, tokens, heads, width, seed):
    draw = torch.Generator().manual_seed(seed + 1)
    shapes = [(batch, tokens, heads, width), (batch, tokens, width), (batch, tokens, heads)]
    return Index(*(torch.randn(shape, generator=draw) for shape in shapes))


def exact_index(batch, tokens, heads, width, seed):
    """Small integers, whose scores are exact in any order of summation and often equal."""
    draw = torch.Generator().manual_seed(seed)
    shapes = [(batch, tokens, heads, width), (batch, tokens, width), (batch, tokens, heads)]
    return Index(*(torch.randint(-2, 3, shape, generator=draw).float() for shape in shapes))


def weights_of(q, kv, shared, mask, sizes):
    """Attention [B, H, T, T] in float64."""
    keys = kv.double().unflatten(-1, (sizes.num_heads, -1)).transpose(1, 2)[..., : sizes.nope]
    keys = torch.cat([keys, shared.double().unsqueeze(1).expand(-1, sizes.num_heads, -1, -1)], -1)
    scores = q.double().transpose(1, 2) @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
    return torch.softmax(scores.masked_fill(~mask.unsqueeze(1), -torch.inf), -1)


def scores64(index):
    """`index_scores` in float64, differentiable."""
    queries, keys, weights = index
    dots = torch.einsum("btji,bsi->btjs", queries, keys).relu()
    scores = (dots * weights.unsqueeze(-1)).sum(2) * (queries.shape[2] * queries.shape[3]) ** -0.5
    causal = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~causal, -torch.inf)


def recall_of(p, selected, top_k):
    late = p.shape[-1] > top_k
    share = (p.sum(1) * selected).sum(-1) / p.shape[1]
    return share[:, top_k:].mean().item() if late else 1.0


@pytest.mark.parametrize("tokens", [1, 3, 17, 100, 250])
@pytest.mark.parametrize("top_k", [1, 16, 300])
def test_selection_is_exact_with_ties(tokens, top_k, seeded):
    index = exact_index(2, tokens, 4, 16, seeded)
    wanted = select_mask(index_scores(*index), top_k)
    assert torch.equal(select(*index, top_k).mask(), wanted)


@given(st.integers(1, 2), st.integers(1, 90), st.integers(1, 20), st.integers(1, 6), st.integers(0, 2**31))
def test_selection_from_scores(batch, tokens, top_k, levels, seed):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randint(-levels, levels, (batch, tokens, tokens), generator=draw) * 0.37
    scores[..., ::2][scores[..., ::2] == 0] *= -1.0  # both zeros occur, and are equal
    scores[:, ::3] = torch.randn(batch, tokens, generator=draw)[:, ::3, None] + scores[:, ::3]
    scores = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf)
    assert torch.equal(select_from_scores(scores, top_k).mask(), select_mask(scores, top_k))


def test_selection_of_real_scores(seeded):
    index = an_index(1, 300, 4, 32, seeded)
    assert torch.equal(select(*index, 40).mask(), select_mask(index_scores(*index), 40))


def check_loss(batch, tokens, sizes, index_shape, seed, sparse):
    q, kv, shared, grad = inputs(batch, tokens, (sizes.num_heads, sizes.nope, 8, sizes.v_width), seed)
    index = an_index(batch, tokens, *index_shape, seed)
    selection = select(*index, sizes.top_k)
    mask = selection.mask()
    causal = torch.ones(batch, tokens, tokens, dtype=torch.bool).tril()
    leaves = Index(*(x.double().requires_grad_() for x in index))
    p = weights_of(q, kv, shared, mask if sparse else causal, sizes)
    # The operator makes float32 of both distributions; here they stay float64.
    scores = scores64(leaves).masked_fill(~mask, -torch.inf) if sparse else scores64(leaves)
    target = p.sum(1) / p.sum(1).sum(-1, keepdim=True)
    log_q = torch.log_softmax(scores, -1).masked_fill(target == 0, 0.0)
    wanted = (torch.special.xlogy(target, target) - target * log_q).sum(-1).mean()
    close = indexer_kl_loss(scores64(leaves), p, mask if sparse else None).item()
    assert abs(close - wanted.item()) <= 1e-4 * max(close, 1.0)
    wanted.backward()
    dense = weights_of(q, kv, shared, causal, sizes)
    recall = recall_of(dense, mask, sizes.top_k)

    native_leaves = Index(*(x.clone().requires_grad_() for x in index))
    main = [x.clone().requires_grad_() for x in (q, kv, shared)]
    out, loss, found_recall = indexed_attention(*main, native_leaves, sizes, sparse=sparse)
    (loss * 3.0 + (out * grad).sum()).backward()
    assert abs(loss.item() - wanted.item()) <= 1e-5 * max(wanted.item(), 1.0)
    assert abs(found_recall - recall) <= 1e-5
    for name, got, want in zip(Index._fields, native_leaves, leaves, strict=True):
        scale = max(want.grad.abs().max().item(), 0.01 / (batch * tokens))
        error = (got.grad.double() / 3.0 - want.grad).abs().max().item()
        assert error <= 2e-5 * scale, f"{name}: {error} of {scale}"

    plain = [x.clone().requires_grad_() for x in (q, kv, shared)]
    heads = {"num_heads": sizes.num_heads, "nope": sizes.nope, "v_width": sizes.v_width}
    again = attention(*plain, **heads, allowed=selection if sparse else None)
    (again * grad).sum().backward()
    assert torch.equal(again, out)
    # The loss reaches neither queries, keys nor values of the attention.
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(main, plain, strict=True))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("tokens", [1, 3, 17, 100, 250])
def test_loss_recall_and_gradients(tokens, sparse, seeded):
    check_loss(2, tokens, Sizes(4, 64, 64, 24), (4, 32), seeded, sparse)


@given(
    st.integers(1, 2),
    st.integers(1, 120),
    st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 30)),
    st.tuples(st.integers(1, 5), st.integers(1, 20)),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_loss_of_any_shape(batch, tokens, sizes, index_shape, sparse, seed):
    check_loss(batch, tokens, Sizes(*sizes), index_shape, seed, sparse)


def test_recall_counts_only_queries_with_a_choice():
    q, kv, shared, _ = inputs(1, 8, (4, 64, 8, 64), 5)
    index = an_index(1, 8, 4, 32, 5)
    assert indexed_attention(q, kv, shared, index, Sizes(4, 64, 64, 8), sparse=True)[2] == 1.0
    assert indexed_attention(q, kv, shared, index, Sizes(4, 64, 64, 7), sparse=True)[2] < 1.0


def test_wrong_arguments_are_named():
    index = an_index(1, 5, 4, 32, 0)
    with pytest.raises(ValueError, match="top_k is 0"):
        select(*index, 0)
    with pytest.raises(ValueError, match="index_w holds"):
        select(index.queries, index.keys, index.weights[..., :3], 2)
