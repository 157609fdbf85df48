"""Every step of sampling, alone and together, against the plain reference beside this file."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine import sampling_reference as reference
from gossamer.engine import sampler as sampler_module
from gossamer.engine.api import BanTokens, EngineError, SamplingParams
from gossamer.engine.sampler import Sampler

# Few distinct values make ties, where an order has to be kept.
VALUES = st.sampled_from([-8.0, -1.0, 0.0, 0.25, 1.0, 3.0]) | st.floats(-20, 20, width=32)
TEMPERATURES = st.sampled_from([0.0, 0.3, 1.0, 1.7, 1e-310])
REAL_VOCAB = 163_840


@st.composite
def cases(draw):
    """Rows of logits [S, V], a prompt and params whose stop tokens leave something to choose."""
    vocab = draw(st.integers(2, 24))
    ids = st.integers(0, vocab - 1)
    rows = draw(st.lists(st.lists(VALUES, min_size=vocab, max_size=vocab), min_size=1, max_size=6))
    params = {
        "temperature": draw(TEMPERATURES),
        "seed": draw(st.integers(-(2**63), 2**63 - 1)),
        "top_k": draw(st.none() | st.integers(1, vocab + 2)),
        "top_p": draw(st.sampled_from([1.0, 0.5]) | st.floats(0.01, 1)),
        "min_p": draw(st.just(0.0) | st.floats(0, 1)),
        "presence_penalty": draw(st.sampled_from([0.0, 0.5, -2.0])),
        "frequency_penalty": draw(st.sampled_from([0.0, 0.7, 2.0])),
        "repetition_penalty": draw(st.sampled_from([1.0, 1.3, 0.8])),
        "logit_bias": draw(st.dictionaries(ids, st.floats(-100, 100), max_size=3)),
        "stop_token_ids": frozenset(draw(st.sets(ids, max_size=2))),
        "min_tokens": draw(st.integers(0, 3)),
        "ignore_eos": draw(st.booleans()),
    }
    banned = frozenset(draw(st.sets(ids, max_size=2)))
    assume(len(banned | params["stop_token_ids"]) < vocab)
    return rows, draw(st.lists(ids, max_size=4)), params, banned


@pytest.mark.parametrize(("first_look", "growth"), [(1024, 16), (2, 2), (1, 3)])
def test_tokens_are_those_of_the_reference(monkeypatch, first_look, growth):
    monkeypatch.setattr(sampler_module, "FIRST_LOOK", first_look)
    monkeypatch.setattr(sampler_module, "GROWTH", growth)

    @given(cases())
    def check(case):
        rows, prompt, options, banned = case
        params = SamplingParams(**options, logit_mask=BanTokens(banned) if banned else None)
        sampler, generated = Sampler(params, prompt=prompt), []
        for row in rows:
            logits = np.array(row, dtype=np.float32)
            expected = reference.pick(logits, params, banned=banned, prompt=prompt, generated=generated)
            assert sampler.pick(logits).token_id == expected
            assert logits.tolist() == row, "the logits are the caller's"
            generated.append(expected)

    check()


@pytest.mark.parametrize("scale", [0.1, 4.0])
@pytest.mark.parametrize(
    "options", [{"top_p": 0.95}, {"top_k": 50, "top_p": 0.9}, {"min_p": 0.02, "top_p": 0.5}, {}]
)
def test_the_real_vocabulary(scale, options):
    logits = (np.random.default_rng(5).standard_normal(REAL_VOCAB) * scale).astype(np.float32)
    params = SamplingParams(seed=11, **options)
    # The reference computes at each step what is the same at all of them here.
    kept, weights = reference.candidates(logits.astype(np.float64).tolist(), params)
    cumulative = np.cumsum(weights[kept])
    sampler = Sampler(params)
    for step in range(5):
        aim = reference.uniform(11, step) * cumulative[-1]
        assert sampler.pick(logits).token_id == kept[int(np.argmax(cumulative > aim))]


@given(cases(), st.integers(0, 20))
def test_logprobs_are_the_models_own_after_the_masks(case, count):
    rows, prompt, options, banned = case
    params = SamplingParams(**options, logprobs=count, logit_mask=BanTokens(banned))
    sampler = Sampler(params, prompt=prompt)
    for step, row in enumerate(rows):
        choice = sampler.pick(np.array(row, dtype=np.float32))
        masked = reference.masked_logits(row, params, banned, step)
        everything = dict(reference.top_logprobs(masked, len(masked)))
        assert choice.logprob == pytest.approx(everything[choice.token_id], abs=1e-9)
        expected = reference.top_logprobs(masked, count)
        assert [i for i, _ in choice.top_logprobs] == [i for i, _ in expected]
        assert [x for _, x in choice.top_logprobs] == pytest.approx([x for _, x in expected], abs=1e-9)


def test_no_logprobs_unless_asked_for():
    choice = Sampler(SamplingParams(temperature=0)).pick(np.zeros(3, dtype=np.float32))
    assert (choice.token_id, choice.logprob, choice.top_logprobs) == (0, None, ())


def greedy(logits, count=1, *, prompt=(), **params):
    sampler = Sampler(SamplingParams(temperature=0, **params), prompt=prompt)
    return [sampler.pick(np.array(logits, dtype=np.float32)).token_id for _ in range(count)]


def test_frequency_counts_and_presence_does_not():
    # 3.0 falls by 1 a time until it is below 1.5, whose turn then lowers it.
    assert greedy([3.0, 1.5], 6, frequency_penalty=1.0) == [0, 0, 1, 0, 1, 0]
    assert greedy([3.0, 2.5, 0.0], 4, presence_penalty=1.0) == [0, 1, 0, 0]


def test_only_repetition_looks_at_the_prompt():
    assert greedy([1.0, 0.9], prompt=[0], repetition_penalty=1.2) == [1]
    assert greedy([0.25, 0.24], prompt=[0], repetition_penalty=1.2) == [1]
    assert greedy([1.0, 0.9], prompt=[0], frequency_penalty=2.0, presence_penalty=2.0) == [0]
    # What is unlikely already becomes less likely, not more.
    assert greedy([-1.0, -1.1], prompt=[0], repetition_penalty=1.2) == [1]


def test_bias_comes_before_the_repetition_penalty():
    # (1 + 1) / 1.8 is below 1.2; 1 / 1.8 + 1 would be above it.
    assert greedy([1.0, 1.2], prompt=[0], logit_bias={0: 1.0}, repetition_penalty=1.8) == [1]


def test_bias_does_not_lift_a_mask():
    mask = BanTokens(frozenset({0}))
    assert greedy([5.0, 0.0], logit_bias={0: 100.0}, logit_mask=mask) == [1]
    stops = {"stop_token_ids": frozenset({0}), "logit_bias": {0: 100.0}}
    assert greedy([5.0, 0.0], 3, min_tokens=2, **stops) == [1, 1, 0]
    assert greedy([5.0, 0.0], 3, ignore_eos=True, **stops) == [1, 1, 1]


def test_top_p_is_a_share_of_what_top_k_left():
    # Of 40, 30, 20 and 10 %, the first two reach 55 % of all; of the two that top_k leaves, the first does.
    logits = np.log([0.4, 0.3, 0.2, 0.1]).astype(np.float32)
    seen = {}
    for top_k in (None, 2):
        sampler = Sampler(SamplingParams(seed=1, top_k=top_k, top_p=0.55))
        seen[top_k] = {sampler.pick(logits).token_id for _ in range(100)}
    assert seen == {None: {0, 1}, 2: {0}}


@given(st.integers(1, 5))
def test_top_k_keeps_k_of_equals(k):
    sampler = Sampler(SamplingParams(seed=3, top_k=k))
    seen = {sampler.pick(np.zeros(6, dtype=np.float32)).token_id for _ in range(200)}
    assert seen == set(range(k))


@given(st.integers(0, 2**64 - 1), st.lists(st.lists(VALUES, min_size=4, max_size=4), min_size=1, max_size=8))
def test_a_draw_depends_on_seed_and_step_alone(seed, rows):
    """Other sequences, and other logits at earlier steps, take nothing from a step's draw."""
    rows = np.array(rows, dtype=np.float32)
    params = SamplingParams(seed=seed)
    sampler, neighbour, other = Sampler(params), Sampler(SamplingParams(seed=seed ^ 1)), Sampler(params)
    alone = []
    for row in rows:
        neighbour.pick(row)
        alone.append(sampler.pick(row).token_id)
    for row in rows[:-1]:
        other.pick(np.flip(row))
    assert other.pick(rows[-1]).token_id == alone[-1]
    assert alone == [reference.pick(row, params, generated=alone[:step]) for step, row in enumerate(rows)]


def test_the_default_seed_stands_in_for_a_missing_one():
    logits = np.zeros(1000, dtype=np.float32)
    named = Sampler(SamplingParams(seed=7)).pick(logits).token_id
    assert Sampler(SamplingParams(), default_seed=7).pick(logits).token_id == named
    assert Sampler(SamplingParams(seed=7), default_seed=8).pick(logits).token_id == named
    fresh = {Sampler(SamplingParams()).pick(logits).token_id for _ in range(20)}
    assert len(fresh) > 1


def test_masks_that_leave_nothing_say_which_option_did_it():
    stops = {"stop_token_ids": frozenset({1}), "logit_mask": BanTokens(frozenset({0}))}
    with pytest.raises(EngineError, match=r"min_tokens=3 forbids the stop tokens.*leave min_tokens out"):
        greedy([0.0, 0.0], min_tokens=3, **stops)
    with pytest.raises(EngineError, match=r"ignore_eos forbids .*leave ignore_eos out"):
        greedy([0.0, 0.0], ignore_eos=True, **stops)


def test_penalties_over_a_long_answer():
    """The tally outgrows its first room."""
    vocab = 400
    tokens = greedy(np.zeros(vocab), vocab, presence_penalty=1.0)
    assert tokens == list(range(vocab))


def test_a_nucleus_ends_where_its_share_is_reached_exactly():
    sampler = Sampler(SamplingParams(seed=1, top_p=0.5))
    assert {sampler.pick(np.zeros(4, dtype=np.float32)).token_id for _ in range(100)} == {0, 1}
