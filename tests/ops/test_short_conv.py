import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.ops.short_conv import naive_short_conv, short_conv
from numerics import assert_close

KEY = ("short_conv", "float32", "shifted")


def test_shifted_form_equals_the_definition_with_gradients_and_tail():
    x = torch.randn(2, 9, 6, requires_grad=True)
    weight = torch.randn(6, 1, 4, requires_grad=True)
    tail = torch.randn(2, 3, 6, requires_grad=True)
    for start in (None, tail):
        got, want = short_conv(x, weight, start), naive_short_conv(x, weight, start)
        assert_close(got[0], want[0], KEY, "y")
        assert torch.equal(got[1], want[1])
        args = [x, weight] if start is None else [x, weight, tail]
        loss = torch.randn_like(want[0])
        grads = [torch.autograd.grad((y[0] * loss).sum(), args) for y in (got, want)]
        for a, b in zip(*grads, strict=True):
            assert_close(a, b, KEY, "gradient")


def test_last_tap_is_the_current_token():
    x = torch.zeros(1, 4, 1)
    x[0, 1, 0] = 1.0
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 4)
    y, tail = short_conv(x, weight)
    silu = torch.nn.functional.silu
    assert torch.allclose(y.flatten(), silu(torch.tensor([0.0, 4.0, 3.0, 2.0])))
    assert torch.equal(tail.flatten(), torch.tensor([1.0, 0.0, 0.0]))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_any_split_gives_the_same_result(lengths):
    x, weight = torch.randn(1, sum(lengths), 3), torch.randn(3, 1, 4)
    tail, parts = None, []
    for piece in x.split(lengths, 1):
        y, tail = short_conv(piece, weight, tail)
        parts.append(y)
    assert_close(torch.cat(parts, 1), naive_short_conv(x, weight)[0], KEY)
