"""KDA layers start with long memories, and with heads that look up what followed an earlier token."""

import torch

from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.transformer import Transformer
from gossamer.ops.kda import log_decay
from gossamer.train.initial import (
    LONGEST_TOKENS,
    LOOK_BACK_SHARE,
    SHORTEST_TOKENS,
    lengthen_memory,
    prepare_kda,
)


def test_memories_are_spread_over_the_channels_of_every_head(tiny_config):
    model = Transformer(tiny_config, seed=1)
    lengthen_memory(model)
    layers = [m for m in model.modules() if isinstance(m, KimiDeltaAttention)]
    assert layers
    for layer in layers:
        z = layer.dt_bias.detach().reshape(1, 1, layer.config.num_heads, layer.config.head_dim)
        memory = -1 / log_decay(z, layer.A_log.detach(), layer.config.gate_lower_bound)[0, 0]
        assert torch.allclose(memory[:, 0], torch.tensor(SHORTEST_TOKENS), rtol=1e-3)
        assert torch.allclose(memory[:, -1], torch.tensor(LONGEST_TOKENS), rtol=1e-3)
        assert (memory.diff(dim=-1) > 0).all()


def changes(model, place_changed):
    """How much the first KDA layer's output at the second "a" changes with one of the tokens before it."""
    layer = next(m for m in model.modules() if isinstance(m, KimiDeltaAttention))
    draw = torch.Generator().manual_seed(3)
    tokens = torch.randn(40, model.config.hidden_size, generator=draw)
    tokens[-1] = tokens[20]
    # Only the look-back heads are heard.
    heads = round(LOOK_BACK_SHARE * layer.config.num_heads)
    layer.o_proj.weight[:, heads * layer.config.head_dim :] = 0
    before = layer(tokens[None])[0, -1]
    tokens[place_changed] = torch.randn(model.config.hidden_size, generator=draw)
    return float((layer(tokens[None])[0, -1] - before).norm())


@torch.no_grad()
def test_a_token_seen_again_brings_back_the_token_that_followed_it(tiny_config):
    def change(prepare, place):
        model = Transformer(tiny_config, seed=1)
        prepare(model)
        return changes(model, place)

    others = [change(prepare_kda, place) for place in (5, 12, 18, 25, 30)]
    assert change(prepare_kda, 21) > 2 * max(others)
    # Without it nothing is special about that place.
    plain = [change(lengthen_memory, place) for place in (18, 25, 30)]
    assert change(lengthen_memory, 21) < 2 * max(plain)
