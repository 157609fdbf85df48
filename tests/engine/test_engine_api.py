import numpy as np
import pytest

from gossamer.engine.api import BanTokens, ContextLengthError, SamplingParams, SubmitError


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"max_tokens": 1.5}, "max_tokens must be an integer at least 1, got 1.5"),
        ({"min_tokens": -1}, "min_tokens must be an integer at least 0, got -1"),
        ({"min_tokens": 4, "max_tokens": 3}, "min_tokens must be at most max_tokens, got 4 and 3"),
        ({"top_k": 0}, "top_k must be an integer at least 1, got 0"),
        ({"top_k": True}, "top_k"),
        ({"min_p": 1.1}, "min_p must be a number from 0 to 1, got 1.1"),
        ({"min_p": float("nan")}, "min_p"),
        ({"presence_penalty": 2.1}, "presence_penalty must be a number from -2 to 2, got 2.1"),
        ({"frequency_penalty": -2.1}, "frequency_penalty must be a number from -2 to 2"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be a number from 0.01 to 100, got 0.0"),
        ({"repetition_penalty": float("inf")}, "repetition_penalty"),
        ({"logit_bias": {-1: 0.0}}, "an id in logit_bias must be an integer at least 0, got -1"),
        ({"logit_bias": {"7": 0.0}}, "an id in logit_bias .* got '7'"),
        ({"logit_bias": {7: 101.0}}, r"logit_bias\[7\] must be a number from -100 to 100, got 101"),
        ({"logit_bias": {7: float("nan")}}, r"logit_bias\[7\]"),
        ({"logprobs": 21}, "logprobs must be an integer from 0 to 20, got 21"),
    ],
)
def test_unusable_sampling_is_refused_by_name(bad, named):
    with pytest.raises(SubmitError, match=named):
        SamplingParams(**bad)


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"logit_bias": {10: 1.0}}, "logit_bias holds token id 10, outside 0..9"),
        ({"stop_token_ids": frozenset({-1})}, "stop_token_ids holds token id -1, outside 0..9"),
    ],
)
def test_ids_the_model_lacks_are_refused(params, fault):
    with pytest.raises(SubmitError, match=fault):
        SamplingParams(**params).check_vocab(10)
    SamplingParams(logit_bias={0: 1.0, 9: 1.0}, stop_token_ids=frozenset({9})).check_vocab(10)


def test_a_bias_is_the_callers_no_longer():
    bias = {1: 2.0}
    params = SamplingParams(logit_bias=bias)
    bias[1] = 3.0
    assert params.logit_bias == {1: 2.0}
    with pytest.raises(TypeError):
        params.logit_bias[1] = 4.0


def test_ban_tokens_leaves_its_input_alone():
    logits = np.zeros(4, dtype=np.float32)
    masked = BanTokens(frozenset({1, 3})).apply(None, logits)
    assert masked.tolist() == [0.0, -np.inf, 0.0, -np.inf]
    assert not logits.any()


def test_context_error_says_what_would_fit():
    fits = ContextLengthError(max_context=10, num_prompt=8, max_tokens=5)
    assert (fits.max_context, fits.requested) == (10, 13)
    assert "exceeded model token limit: 10 (requested: 13" in str(fits)
    assert "lower the answer's limit to 2" in str(fits)
    assert "shorten the conversation" in str(
        ContextLengthError(max_context=10, num_prompt=12, max_tokens=None)
    )
