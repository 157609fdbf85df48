"""Deadlines against a plain dictionary, and that ended requests are let go."""

import hypothesis.strategies as st
from hypothesis import given

from gossamer.engine.api import RequestOptions, SamplingParams
from gossamer.engine.core import EngineCore
from gossamer.engine.deadlines import Deadlines
from gossamer.engine.settings import EngineSettings

from .fake_runner import FakeRunner

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), st.integers(0, 30)),
        st.tuples(st.just("forget"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 30)),
    ),
    max_size=60,
)


@given(STEPS)
def test_they_are_those_of_live_requests(steps):
    deadlines, live = Deadlines(), {}
    for what, request_id, value in steps:
        if what == "add" and request_id not in live:
            deadlines.add(request_id, float(value))
            live[request_id] = float(value)
        elif what == "forget":
            deadlines.forget(request_id)
            live.pop(request_id, None)
        elif what == "due":
            expected = sorted((at, i) for i, at in live.items() if at <= value)
            assert deadlines.due(value) == [i for _, i in expected]
            live = {i: at for i, at in live.items() if at > value}
        assert len(deadlines) <= 2 * len(live) + 1 or what == "due"


def test_an_id_that_is_given_again_has_its_new_deadline_only():
    deadlines = Deadlines()
    for request_id in range(4):
        deadlines.add(request_id, 5.0)
    deadlines.forget(3)
    deadlines.add(3, 9.0)
    assert deadlines.due(6.0) == [0, 1, 2]
    assert deadlines.due(9.0) == [3]


def test_a_core_keeps_no_deadline_of_what_has_ended():
    core = EngineCore(FakeRunner(), EngineSettings(), clock=lambda: 0.0)
    for _ in range(50):
        core.submit([1], SamplingParams(max_tokens=1), RequestOptions(deadline_s=3600.0))
        while core.has_work:
            core.step()
    assert len(core._deadlines) <= 1
