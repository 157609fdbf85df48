"""Who is next, and what everybody has paid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.engine.api import SamplingParams
from gossamer.engine.block_hash import BlockHasher
from gossamer.engine.fair_queue import OUTPUT_WEIGHT, FairQueue
from gossamer.engine.request import Request, RequestOptions
from gossamer.engine.sampler import Sampler

PARAMS = SamplingParams()


def request(number, key="a", *, priority=0, arrival_s=0.0, num_prompt=10):
    return Request(
        id=number,
        params=PARAMS,
        options=RequestOptions(priority=priority, fairness_key=key),
        num_prompt=num_prompt,
        limit=5,
        sampler=Sampler(PARAMS, default_seed=0),
        hasher=BlockHasher(b"", 4),
        arrival_s=arrival_s,
        token_ids=[0] * num_prompt,
    )


def begin(queue, *requests):
    for one in requests:
        queue.open(one)
        queue.push(one)
    return requests


def test_priority_then_fairness_then_arrival():
    queue = FairQueue(aging_s=30.0)
    first, second, other, urgent = begin(
        queue, request(0), request(1), request(2, "b"), request(3, "b", priority=1)
    )
    order = []
    while (head := queue.head(0.0)) is not None:
        order.append(head)
        queue.remove(head)
        queue.charge(head, 10)
    # Its urgent request was on key b's account, so nothing but arrival decides after the first of key a.
    assert order == [urgent, first, second, other]
    assert len(queue) == 0


def test_a_preempted_request_is_back_in_front_of_those_that_came_later():
    queue = FairQueue(aging_s=30.0)
    first, second, third = begin(queue, request(0), request(1), request(2))
    for one in (first, second):
        queue.remove(one)
    queue.push(second)
    queue.push(first)
    assert [queue.head(0.0), len(queue)] == [first, 3]
    queue.remove(first)
    queue.remove(second)
    assert queue.waiting() == [third]


def test_age_counts_as_priority():
    queue = FairQueue(aging_s=10.0)
    old, new = begin(queue, request(0, "old"), request(1, "new", priority=2, arrival_s=15.0))
    assert queue.head(15.0) is new
    assert queue.head(20.0) is old
    # A level is a whole interval: at 25 s both are at 3 and 2.
    assert (queue.level(old, 29.0), queue.level(new, 24.0), queue.level(new, 25.0)) == (2, 2, 3)
    # Memory is taken from low priority first, from late arrivals among equals.
    assert queue.urgency(old, 15.0) > queue.urgency(new, 15.0)
    assert queue.urgency(old, 20.0) < queue.urgency(new, 20.0)


def test_generated_tokens_cost_more_and_nothing_is_paid_twice():
    queue = FairQueue(aging_s=30.0)
    (one,) = begin(queue, request(0, num_prompt=10))
    queue.charge(one, 8)
    assert queue.served("a") == 8
    queue.charge(one, 4)
    assert queue.served("a") == 8
    queue.charge(one, 12)
    assert queue.served("a") == 10 + 2 * OUTPUT_WEIGHT
    queue.charge(one, 13)
    assert queue.served("a") == 10 + 3 * OUTPUT_WEIGHT


def test_who_comes_back_starts_no_lower_than_the_least_at_work():
    queue = FairQueue(aging_s=30.0)
    busy, rich = begin(queue, request(0, "busy"), request(1, "rich"))
    queue.charge(busy, 7)
    queue.charge(rich, 10)
    begin(queue, request(2, "new"))
    assert queue.served("new") == 7
    # Leaving for a moment does not pay a debt.
    queue.remove(rich)
    queue.close(rich)
    begin(queue, request(3, "rich"))
    assert queue.served("rich") == 10


def test_accounts_of_those_who_left_do_not_pile_up():
    queue = FairQueue(aging_s=30.0)
    (stays,) = begin(queue, request(0, "stays"))
    queue.charge(stays, 10)
    for number in range(1, 500):
        (one,) = begin(queue, request(number, f"key {number}"))
        queue.remove(one)
        queue.close(one)
    assert queue.keys() == {"stays": 1}
    assert len(queue._served) == 1
    queue.remove(stays)
    queue.close(stays)
    assert not queue._served


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20)), min_size=10, max_size=60))
def test_keys_that_always_have_work_are_served_alike(jobs):
    """The bound of fair queueing: two busy keys never differ by more than the largest job."""
    queue = FairQueue(aging_s=1e9)
    jobs = [*jobs, *((key, 1) for key in "abc")]
    begin(queue, *(request(i, key, num_prompt=size) for i, (key, size) in enumerate(jobs)))
    largest = max(size for _, size in jobs)
    while (head := queue.head(0.0)) is not None:
        queue.remove(head)
        queue.charge(head, head.num_prompt)
        busy = {one.options.fairness_key for one in queue.waiting()}
        served = [queue.served(key) for key in busy]
        assert not served or max(served) - min(served) <= largest


@pytest.mark.parametrize("key", ["", "a" * 1000])
def test_any_key_will_do(key):
    queue = FairQueue(aging_s=1.0)
    (one,) = begin(queue, request(0, key))
    assert queue.head(0.0) is one
