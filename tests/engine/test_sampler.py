import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gossamer.engine.api import BanTokens, EngineError, SamplingParams
from gossamer.engine.sampler import Sampler

LOGITS = arrays(np.float32, st.integers(1, 12), elements=st.floats(-20, 20, width=32))


def draws(logits, count, **params):
    sampler = Sampler(SamplingParams(**params))
    return [sampler.pick(np.asarray(logits, dtype=np.float32)).token_id for _ in range(count)]


@given(LOGITS)
def test_greedy_takes_the_lowest_id_of_the_likeliest(logits):
    expected = min(i for i, x in enumerate(logits.tolist()) if x == max(logits.tolist()))
    assert draws(logits, 1, temperature=0) == [expected]


@given(LOGITS, st.integers(-(2**63), 2**63 - 1), st.floats(0.1, 2), st.floats(0.01, 1))
def test_a_seed_repeats_itself(logits, seed, temperature, top_p):
    params = {"seed": seed, "temperature": temperature, "top_p": top_p}
    assert draws(logits, 5, **params) == draws(logits, 5, **params)


@given(LOGITS, st.integers(0, 99), st.floats(0.01, 1))
def test_only_the_nucleus_is_drawn(logits, seed, top_p):
    weights = np.exp(logits.astype(np.float64) - logits.max())
    share = weights / weights.sum()
    order = sorted(range(len(share)), key=lambda i: (-share[i], i))
    nucleus, reached = set(), 0.0
    for token in order:
        nucleus.add(token)
        reached += share[token]
        if reached >= top_p - 1e-12:
            break
    # One more token at the very edge is rounding, not a fault.
    edge = set(order[: len(nucleus) + 1])
    assert set(draws(logits, 20, seed=seed, top_p=top_p)) <= edge


def test_frequencies_follow_the_distribution():
    logits = np.log(np.array([0.5, 0.3, 0.2]))
    counts = np.bincount(draws(logits, 20_000, seed=7), minlength=3) / 20_000
    # Standard error is at most 0.0036; five of them.
    assert np.abs(counts - [0.5, 0.3, 0.2]).max() < 0.018
    hot = np.bincount(draws(logits, 20_000, seed=7, temperature=0.5), minlength=3) / 20_000
    expected = np.array([0.25, 0.09, 0.04]) / 0.38
    assert np.abs(hot - expected).max() < 0.018


def test_a_tiny_temperature_is_greedy():
    assert set(draws([0.0, 1.0, 0.5], 50, temperature=1e-310)) == {1}


@given(LOGITS.filter(lambda x: len(x) > 1), st.data())
def test_masked_tokens_are_never_drawn(logits, data):
    ids = st.integers(0, len(logits) - 1)
    banned = data.draw(st.frozensets(ids, max_size=len(logits) - 1))
    for temperature in (0.0, 1.0):
        params = {"seed": 1, "temperature": temperature, "logit_mask": BanTokens(banned)}
        assert not banned & set(draws(logits, 10, **params))


@given(LOGITS, st.integers(0, 99))
def test_logprob_is_that_of_the_chosen_token_at_temperature_1(logits, seed):
    choice = Sampler(SamplingParams(seed=seed, temperature=0.7, top_p=0.9, logprobs=0)).pick(logits)
    exact = logits.astype(np.float64)
    expected = exact[choice.token_id] - np.log(np.exp(exact - exact.max()).sum()) - exact.max()
    assert choice.logprob == pytest.approx(expected, abs=1e-9)
    assert choice.top_logprobs == ()


class CountingMask:
    """Allows one token only: the number of tokens so far."""

    def start(self):
        return 0

    def apply(self, state, logits):
        masked = np.full_like(logits, -np.inf)
        masked[state] = 0
        return masked

    def advance(self, state, token_id):
        return state + 1


def test_a_mask_carries_its_state():
    assert draws(np.zeros(5), 4, seed=0, logit_mask=CountingMask()) == [0, 1, 2, 3]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_damaged_logits_are_an_error(bad):
    with pytest.raises(EngineError, match="weights are damaged"):
        draws([0.0, bad], 1)


def test_a_mask_that_forbids_everything_is_an_error():
    with pytest.raises(EngineError, match="forbids every token"):
        draws([0.0, 1.0], 1, logit_mask=BanTokens(frozenset({0, 1})))
