"""Masks that refuse tokens after they were drawn."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from gossamer.engine.api import BanTokens, EngineError, LookaheadMask, SamplingParams
from gossamer.engine.sampler import MAX_REFUSALS, Sampler

V = 40


@dataclass
class Refusing:
    """Allows some tokens, and says so only when it is asked about one."""

    allowed: frozenset[int]
    asked: list[int] = field(default_factory=list)
    num_narrowed: int = 0

    def start(self):
        return 0

    def apply(self, state, logits):
        return logits

    def advance(self, state, token_id):
        return state + 1

    def allows(self, state, token_id):
        self.asked.append(token_id)
        return token_id in self.allowed

    def narrow(self, state, logits):
        self.num_narrowed += 1
        masked = np.full_like(logits, -np.inf)
        masked[min(self.allowed)] = logits[min(self.allowed)]
        return masked


def test_the_protocols_tell_the_two_kinds_apart():
    assert isinstance(Refusing(frozenset()), LookaheadMask)
    assert not isinstance(BanTokens(frozenset()), LookaheadMask)


def test_refused_tokens_leave_the_others_as_likely_as_they_are_to_each_other(seeded):
    rng = np.random.default_rng(seeded)
    logits = rng.normal(size=V).astype(np.float32)
    before = logits.copy()
    allowed = [1, 5, 6, 17, 30]
    mask = Refusing(frozenset(allowed))
    sampler = Sampler(SamplingParams(logit_mask=mask, seed=seeded, logprobs=0))
    counts = np.zeros(V)
    n = 20_000
    for _ in range(n):
        counts[sampler.pick(logits).token_id] += 1
    weights = np.zeros(V)
    weights[allowed] = np.exp(logits[allowed].astype(float))
    expected = weights / weights.sum()
    assert set(np.flatnonzero(counts)) <= set(allowed)
    # Five standard deviations of a binomial count.
    assert np.all(np.abs(counts / n - expected) <= 5 * np.sqrt(expected * (1 - expected) / n) + 1e-12)
    assert np.array_equal(logits, before)


def test_greedy_takes_the_likeliest_that_is_allowed():
    logits = np.arange(V, dtype=np.float32)
    mask = Refusing(frozenset({3, 35, 36}))
    assert Sampler(SamplingParams(logit_mask=mask, temperature=0)).pick(logits).token_id == 36
    assert mask.asked == [39, 38, 37, 36]


def test_many_refusals_end_in_what_the_mask_narrows_to():
    logits = np.zeros(V, dtype=np.float32)
    logits[7] = -80
    mask = Refusing(frozenset({7}))
    choice = Sampler(SamplingParams(logit_mask=mask, seed=1, logprobs=3)).pick(logits)
    assert choice.token_id == 7
    assert mask.num_narrowed == 1
    assert len(mask.asked) == MAX_REFUSALS + 1
    assert len(set(mask.asked)) == MAX_REFUSALS + 1
    assert choice.logprob == 0
    assert choice.top_logprobs == ((7, 0.0),)


def test_a_draw_depends_on_seed_step_and_refusals_alone():
    logits = np.linspace(0, 1, V).astype(np.float32)

    def tokens(allowed):
        sampler = Sampler(SamplingParams(logit_mask=Refusing(frozenset(allowed)), seed=5))
        return [sampler.pick(logits).token_id for _ in range(50)]

    assert tokens(range(20)) == tokens(range(20))
    free = Sampler(SamplingParams(seed=5))
    assert tokens(range(V)) == [free.pick(logits).token_id for _ in range(50)]


def test_a_mask_that_allows_nothing_is_an_error():
    class Nothing(Refusing):
        def narrow(self, state, logits):
            return np.full_like(logits, -np.inf)

    with pytest.raises(EngineError, match="forbids every token"):
        Sampler(SamplingParams(logit_mask=Nothing(frozenset()))).pick(np.zeros(V, dtype=np.float32))
