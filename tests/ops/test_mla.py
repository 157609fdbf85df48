import pytest
import torch

from gossamer.ops.mla import absorbed_attention, expanded_attention, naive_attention
from numerics import assert_close


def inputs(queries, cached, value_width=6):
    heads, nope, rope, rank = 2, 8, 4, 10
    q = torch.randn(2, queries, heads, nope + rope, requires_grad=True)
    latent = torch.randn(2, cached, rank, requires_grad=True)
    shared = torch.randn(2, cached, rope, requires_grad=True)
    w_kv = torch.randn(heads * (nope + value_width), rank, requires_grad=True)
    return [q, latent, shared, w_kv]


def some_allowed(queries, cached):
    causal = torch.ones(queries, cached, dtype=torch.bool).tril(cached - queries)
    chosen = torch.rand(2, queries, cached) < 0.5
    chosen[..., 0] = True
    return chosen & causal


@pytest.mark.parametrize("form", [expanded_attention, absorbed_attention])
@pytest.mark.parametrize(("queries", "cached"), [(7, 7), (3, 9), (1, 5), (1, 1)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("value_width", [6, 12, 16])
def test_both_forms_equal_the_definition(form, queries, cached, masked, value_width):
    args = inputs(queries, cached, value_width)
    allowed = some_allowed(queries, cached) if masked else None
    got, want = form(*args, allowed), naive_attention(*args, allowed)
    key = ("mla", "float32", form.__name__.split("_")[0])
    assert_close(got, want, key, "output")
    weight = torch.randn_like(want)
    grads = [torch.autograd.grad((y * weight).sum(), args) for y in (got, want)]
    for name, a, b in zip(("q", "latent", "shared_key", "w_kv"), *grads, strict=True):
        if b.abs().max() > 1e-5:  # one visible token has no score gradient, only rounding noise
            assert_close(a, b, key, f"d{name}")
