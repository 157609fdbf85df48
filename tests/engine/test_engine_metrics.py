"""Buckets and sums."""

import sys
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gossamer.engine.metrics import COUNT_BUCKETS, LATENCY_BUCKETS_S, Histogram


def test_bounds_are_inclusive_and_the_last_bucket_is_open():
    histogram = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, 99.0):
        histogram.add(value)
    record = histogram.record()
    assert (record.bounds, record.counts, record.count) == ((1.0, 2.0), (2, 2, 2), 6)
    assert record.total == 105.6
    histogram.add(0.5)
    assert record.counts == (2, 2, 2)


def test_buckets_rise():
    for bounds in (COUNT_BUCKETS, LATENCY_BUCKETS_S):
        assert list(bounds) == sorted(set(bounds))


@given(st.lists(st.floats(0, 5000)))
def test_counts_are_those_of_numpy(values):
    histogram = Histogram(LATENCY_BUCKETS_S)
    for value in values:
        histogram.add(value)
    upto = [int(np.sum(np.asarray(values) <= bound)) for bound in LATENCY_BUCKETS_S]
    assert list(np.cumsum(histogram.record().counts)) == [*upto, len(values)]


def test_a_record_holds_the_sum_of_its_buckets_while_another_thread_adds():
    histogram = Histogram((1.0,))
    done = threading.Event()

    def add():
        while not done.is_set():
            histogram.add(0.5)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    worker = threading.Thread(target=add)
    worker.start()
    try:
        for _ in range(3000):
            record = histogram.record()
            assert record.total == 0.5 * record.count
    finally:
        done.set()
        worker.join()
        sys.setswitchinterval(old)
