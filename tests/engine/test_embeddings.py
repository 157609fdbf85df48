"""Embeddings of their own for some prompt tokens: what is refused, and what of them is shared."""

import numpy as np
import pytest

from gossamer.engine.api import Embeddings, SamplingParams, SubmitError
from gossamer.engine.settings import CacheSettings

from .test_engine_core import drain, make


@pytest.mark.parametrize(
    ("start", "shape", "digest", "names"),
    [
        (0, (2, 3), bytes(16), r"must be \[tokens, 2\]"),
        (3, (2, 2), bytes(16), "outside a prompt of 4"),
        (-1, (2, 2), bytes(16), "outside a prompt"),
        (0, (0, 2), bytes(16), "empty"),
        (0, (2, 2), b"short", "16 bytes"),
    ],
)
def test_embeddings_that_do_not_fit_are_refused_by_name(start, shape, digest, names):
    _, core = make()
    given = Embeddings(start=start, rows=np.zeros(shape, np.float32), digest=digest)
    with pytest.raises(SubmitError, match=names):
        core.submit([1, 2, 3, 4], SamplingParams(max_tokens=1), embeddings=[given])


def test_embeddings_that_overlap_or_are_no_numbers_are_refused():
    _, core = make()
    two = [Embeddings(start=at, rows=np.zeros((2, 2), np.float32), digest=bytes(16)) for at in (0, 1)]
    with pytest.raises(SubmitError, match="overlap"):
        core.submit([1, 2, 3, 4], SamplingParams(max_tokens=1), embeddings=two)
    bad = Embeddings(start=0, rows=np.full((1, 2), np.nan, np.float32), digest=bytes(16))
    with pytest.raises(SubmitError, match="not finite"):
        core.submit([1, 2, 3, 4], SamplingParams(max_tokens=1), embeddings=[bad])


def test_a_prompt_with_another_image_resumes_only_before_it():
    _, core = make(cache=CacheSettings(snapshot_every=1))
    prompt, asked = [1] * 20, SamplingParams(max_tokens=1, temperature=0)

    def ask(content):
        rows = np.full((6, 2), content, np.float32)
        image = Embeddings(start=9, rows=rows, digest=bytes([content]) * 16)
        core.submit(prompt, asked, embeddings=[image])
        ((event,),) = drain(core).values()
        return event.cached_tokens

    assert [ask(1), ask(1), ask(2), ask(2)] == [0, 16, 8, 16]
