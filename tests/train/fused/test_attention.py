"""The native attention against `gossamer.ops.mla`, outputs and gradients, in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from gossamer.kernels import backend
from gossamer.ops.mla import attention_weights
from gossamer.train.fused.attention import Selection, attention

pytestmark = pytest.mark.skipif(not backend.available(), reason="the native kernels are not built")

NANO = (4, 64, 32, 64)


def inputs(batch, tokens, sizes, seed, spread=1.0):
    """q, kv, shared_key and the gradient of the output, float32."""
    heads, nope, rope, value = sizes
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, tokens, heads, nope + rope, generator=draw) * spread
    kv = torch.randn(batch, tokens, heads * (nope + value), generator=draw)
    shared = torch.randn(batch, tokens, rope, generator=draw)
    grad = torch.randn(batch, tokens, heads * value, generator=draw)
    return q, kv, shared, grad


def some_mask(batch, tokens, seed):
    """A random choice of half of the visible keys, the query's own always among them."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.rand(batch, tokens, tokens, generator=draw) < 0.5
    return (mask | torch.eye(tokens, dtype=torch.bool)).tril()


def by_definition(q, kv, shared, sizes, mask):
    """Softmax attention written out, in the dtype of its inputs."""
    heads, nope, _, value = sizes
    blocks = kv.unflatten(-1, (heads, nope + value)).transpose(1, 2)
    keys = torch.cat([blocks[..., :nope], shared.unsqueeze(1).expand(-1, heads, -1, -1)], -1)
    scores = q.transpose(1, 2) @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5
    p = torch.softmax(scores.masked_fill(~mask.unsqueeze(1), -torch.inf), -1)
    return (p @ blocks[..., nope:]).transpose(1, 2).flatten(-2)


def with_gradients(function, q, kv, shared, grad):
    leaves = [x.clone().requires_grad_() for x in (q, kv, shared)]
    out = function(*leaves)
    out.backward(grad.to(out.dtype))
    return [out.detach(), *(x.grad for x in leaves)]


def check(batch, tokens, sizes, seed, masked, spread=1.0):
    heads, nope, _, value = sizes
    q, kv, shared, grad = inputs(batch, tokens, sizes, seed, spread)
    mask = some_mask(batch, tokens, seed) if masked else torch.ones(tokens, tokens).tril().bool().unsqueeze(0)
    allowed = Selection.from_mask(mask) if masked else None
    found = with_gradients(
        lambda *x: attention(*x, num_heads=heads, nope=nope, v_width=value, allowed=allowed),
        q, kv, shared, grad,
    )  # fmt: skip
    wanted = with_gradients(
        lambda *x: by_definition(*x, sizes, mask), q.double(), kv.double(), shared.double(), grad
    )
    for name, got, want in zip(("out", "d_q", "d_kv", "d_shared"), found, wanted, strict=True):
        # A gradient that is zero (one key alone has no choice) is judged on the scale of the output.
        scale = max(want.abs().max().item(), wanted[0].abs().max().item(), 0.1)
        error = (got.double() - want).abs().max().item()
        assert error <= 1e-5 * scale, f"{name}: {error} of {scale}"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [1, 3, 17, 48, 96, 97, 100, 250])
def test_nano_widths(tokens, masked, seeded):
    check(2, tokens, NANO, seeded, masked)


@given(
    st.integers(1, 2),
    st.integers(1, 130),
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40)),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_any_shape(batch, tokens, sizes, masked, seed):
    check(batch, tokens, sizes, seed, masked)


def test_sharp_scores(seeded):
    check(1, 150, NANO, seeded, False, spread=12.0)


def test_definition_is_the_operators():
    q, kv, shared, _ = inputs(1, 20, NANO, 3)
    blocks = kv.unflatten(-1, (4, 128)).transpose(1, 2)
    keys = torch.cat([blocks[..., :64], shared.unsqueeze(1).expand(-1, 4, -1, -1)], -1)
    p = attention_weights(q, keys, None)
    wanted = (p @ blocks[..., 64:]).transpose(1, 2).flatten(-2)
    found = by_definition(q, kv, shared, NANO, torch.ones(1, 20, 20).tril().bool())
    assert F.mse_loss(found, wanted).item() < 1e-12


def test_future_and_unselected_keys_do_not_matter(seeded):
    q, kv, shared, _ = inputs(1, 60, NANO, seeded)
    mask = some_mask(1, 60, seeded)
    mask[..., 7] = False
    mask[:, 7, 7] = True
    sizes = {"num_heads": 4, "nope": 64, "v_width": 64, "allowed": Selection.from_mask(mask)}
    before = attention(q, kv, shared, **sizes)
    kv[:, 7], shared[:, 7] = 1e3, -1e3
    after = attention(q, kv, shared, **sizes)
    keep = torch.arange(60) != 7
    assert torch.equal(before[:, keep], after[:, keep])


def test_selection_round_trip(seeded):
    mask = some_mask(2, 77, seeded)
    assert torch.equal(Selection.from_mask(mask).mask(), mask)


def test_wrong_shapes_are_named():
    q, kv, shared, _ = inputs(1, 5, NANO, 0)
    with pytest.raises(ValueError, match="kv holds"):
        attention(q, kv[..., :-1], shared, num_heads=4, nope=64, v_width=64)
