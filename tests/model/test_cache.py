import pytest
import torch

from gossamer.config import count
from gossamer.model.cache import Cache
from gossamer.model.errors import CacheError
from model.small import debug, lively, tokens
from numerics import EXACT, assert_within

MODEL = lively(debug()).eval()


@torch.no_grad()
def test_truncate_to_a_snapshot_forgets_what_came_after():
    ids, other = tokens(MODEL.config, 1, 90), tokens(MODEL.config, 1, 9, seed=4)
    cache = MODEL.new_cache(1)
    MODEL(ids[:, :20], cache)
    snapshot = cache.snapshot()
    MODEL(ids[:, 20:], cache)
    for _ in range(2):  # a snapshot serves more than once
        cache.truncate(20, snapshot)
        cache.check_integrity()
        assert cache.length == 20
        again = MODEL(other, cache)
        fresh = MODEL.new_cache(1)
        MODEL(ids[:, :20], fresh)
        assert_within(again, MODEL(other, fresh), EXACT, "after truncation")


@torch.no_grad()
def test_reset_is_a_new_cache():
    ids = tokens(MODEL.config, 2, 12)
    cache = MODEL.new_cache(2)
    first = MODEL(ids, cache)
    cache.reset()
    assert cache.length == 0
    assert torch.equal(MODEL(ids, cache), first)


@torch.no_grad()
def test_truncate_refuses_what_a_recurrence_cannot_do():
    cache = MODEL.new_cache(1)
    MODEL(tokens(MODEL.config, 1, 5), cache)
    early = cache.snapshot()
    MODEL(tokens(MODEL.config, 1, 5), cache)
    cache.truncate(10)
    with pytest.raises(CacheError, match="needs a snapshot taken at 7; given none"):
        cache.truncate(7)
    with pytest.raises(CacheError, match="given one of length 5"):
        cache.truncate(7, early)
    with pytest.raises(CacheError, match="cannot truncate to 11 tokens: the cache holds 10"):
        cache.truncate(11)
    cache.truncate(0)
    assert cache.length == 0


@torch.no_grad()
def test_integrity_check_sees_damage():
    cache = MODEL.new_cache(1)
    MODEL(tokens(MODEL.config, 1, 5), cache)
    cache.check_integrity()
    cache.length = 6
    with pytest.raises(CacheError, match="holds 5 tokens, the cache 6"):
        cache.check_integrity()
    cache.length = 5
    cache.kda(0).state[0, 0, 0, 0] = float("nan")
    with pytest.raises(CacheError, match="layer 0 holds a value that is not finite"):
        cache.check_integrity()


def test_layers_of_the_other_kind_are_refused():
    cache = MODEL.new_cache(1)
    with pytest.raises(CacheError, match="layer 2 is a full-attention layer"):
        cache.kda(2)
    with pytest.raises(CacheError, match="layer 0 is a KDA layer"):
        cache.latent(0)
    with pytest.raises(CacheError, match="at least 1, got 0"):
        MODEL.new_cache(0)


@torch.no_grad()
def test_bytes_equal_the_arithmetic():
    """In BF16, as the arithmetic counts: rows per token and a state that does not grow."""
    config = debug()
    cache = Cache(config, 1, torch.bfloat16)
    state = cache.num_bytes
    assert state == count.state_bytes_per_sequence(config)["f32"]
    model = lively(config).cast(torch.bfloat16)
    model(tokens(config, 1, 70), cache)
    per_token = count.latent_bytes_per_token(config)["bf16"] + count.indexer_bytes_per_token(config)["bf16"]
    assert cache.num_bytes == state + 70 * per_token
