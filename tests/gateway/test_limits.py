"""Limits of a key on a clock that the test turns."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gossamer.gateway.keys import new_key
from gossamer.gateway.limits import Limiter
from gossamer.protocol.errors import ApiError


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def refused(limiter, key, code):
    with pytest.raises(ApiError) as caught:
        limiter.enter(key)
    assert (caught.value.status, caught.value.code) == (429, code)
    return caught.value.retry_after_s


def test_as_many_at_a_time_as_the_key_may_have():
    limiter = Limiter(clock=Clock())
    (_, ann), (_, bob) = new_key("ann", max_concurrent=2), new_key("bob", max_concurrent=1)
    first, _ = limiter.enter(ann), limiter.enter(ann)
    assert refused(limiter, ann, "concurrency_limit_exceeded") >= 1
    limiter.enter(bob)
    first.end(0)
    first.end(0)
    limiter.enter(ann)
    refused(limiter, ann, "concurrency_limit_exceeded")


def test_tokens_are_paid_for_at_the_end_and_come_back_with_time():
    clock = Clock()
    limiter = Limiter(clock=clock)
    _, key = new_key("ann", tokens_per_minute=60)
    limiter.enter(key).end(90)
    wait = refused(limiter, key, "token_limit_exceeded")
    assert wait == 31
    clock.now += wait - 1.5
    refused(limiter, key, "token_limit_exceeded")
    clock.now += 1.5
    limiter.enter(key)


def test_the_bucket_holds_a_minute_at_most():
    clock = Clock()
    limiter = Limiter(clock=clock)
    _, key = new_key("ann", tokens_per_minute=60)
    clock.now += 1e6
    limiter.enter(key).end(61)
    refused(limiter, key, "token_limit_exceeded")


def test_a_key_without_limits_has_none():
    limiter = Limiter(clock=Clock())
    _, key = new_key("ann")
    leases = [limiter.enter(key) for _ in range(1000)]
    for lease in leases:
        lease.end(10**9)
    limiter.enter(key)


@given(st.lists(st.tuples(st.integers(0, 500), st.floats(0, 30)), min_size=20, max_size=60))
def test_over_any_time_no_more_is_taken_than_came_and_one_request_over(asked):
    clock = Clock()
    limiter = Limiter(clock=clock)
    _, key = new_key("ann", tokens_per_minute=600)
    taken = 0
    for tokens, pause in asked:
        clock.now += pause
        try:
            lease = limiter.enter(key)
        except ApiError as error:
            # What it says is true: then it is admitted.
            clock.now += error.retry_after_s
            lease = limiter.enter(key)
        lease.end(tokens)
        taken += tokens
        assert taken <= 600 + (clock.now - 100.0) * 10 + 500
