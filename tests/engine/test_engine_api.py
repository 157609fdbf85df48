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
    ],
)
def test_unusable_sampling_is_refused_by_name(bad, named):
    with pytest.raises(SubmitError, match=named):
        SamplingParams(**bad)


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
