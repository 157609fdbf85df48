"""Decay gates start with memories from two tokens to the whole context."""

import torch

from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.transformer import Transformer
from gossamer.ops.kda import log_decay
from gossamer.train.initial import LONGEST_TOKENS, SHORTEST_TOKENS, lengthen_memory


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
