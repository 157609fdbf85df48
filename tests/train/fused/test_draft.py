"""The fused draft head equals the module, and so does the trunk's output that it reads."""

import torch

from gossamer.config import presets
from gossamer.model import draft as modules
from gossamer.model.transformer import Transformer
from gossamer.train.draft import new_head
from gossamer.train.fused import draft as fused

SEED = 7


def test_outputs_and_gradients_equal_the_modules():
    trunk = Transformer(presets.load("debug"), experts="dense", seed=SEED).eval()
    head = new_head(trunk, SEED)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    ids = torch.randint(0, trunk.config.vocab_size, (2, 90), generator=generator)
    with torch.no_grad():
        expected_hidden = modules.last_hidden(trunk, ids)
        hidden = fused.last_hidden(trunk, ids)
        embedded = trunk.model.embed_tokens(ids)
    torch.testing.assert_close(hidden, expected_hidden, rtol=1e-4, atol=1e-4)

    y = head(embedded[:, 1:], hidden[:, :-1])
    z = fused.forward(head, embedded[:, 1:], hidden[:, :-1])
    torch.testing.assert_close(z, y, rtol=1e-4, atol=1e-4)
    weights = torch.randn(y.shape, generator=generator)
    named = dict(head.named_parameters())
    expected = torch.autograd.grad((y * weights).sum(), list(named.values()))
    got = torch.autograd.grad((z * weights).sum(), list(named.values()))
    for name, a, b in zip(named, got, expected, strict=True):
        assert float(b.norm()) > 0, name
        assert float((a - b).norm()) <= 1e-4 * float(b.norm()) + 1e-6, name
