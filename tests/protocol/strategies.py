"""Answers as event lists, as an upstream would send them."""

from hypothesis import strategies as st

from gossamer.protocol.events import (
    ContentDelta,
    Finish,
    ReasoningDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ALTERNATIVES = st.builds(
    TokenLogprob, text=TEXT, raw=st.none() | st.binary(max_size=4), logprob=st.floats(-100, 0)
)
LOGPROBS = st.lists(
    st.builds(
        TokenLogprob,
        text=TEXT,
        raw=st.binary(min_size=1, max_size=4),
        logprob=st.floats(-100, 0),
        top=st.lists(ALTERNATIVES, max_size=2).map(tuple),
    ),
    max_size=2,
).map(tuple)
USAGES = st.builds(
    Usage,
    prompt_tokens=st.integers(0, 9999),
    completion_tokens=st.integers(0, 9999),
    cached_tokens=st.integers(0, 99),
    reasoning_tokens=st.integers(0, 99),
)


@st.composite
def answers(draw) -> list:
    events: list = [ReasoningDelta(t) for t in draw(st.lists(TEXT, max_size=4))]
    events += [ContentDelta(*pair) for pair in draw(st.lists(st.tuples(TEXT, LOGPROBS), max_size=4))]
    num_calls = draw(st.integers(0, 3))
    for index in range(num_calls):
        events.append(ToolCallBegin(index=index, id=f"f:{index}", name=draw(TEXT)))
        events += [ToolCallArguments(index=index, text=t) for t in draw(st.lists(TEXT, max_size=3))]
        events.append(ToolCallEnd(index=index))
    reason = "tool_calls" if num_calls else draw(st.sampled_from(["stop", "length"]))
    return [*events, draw(USAGES), Finish(reason)]
