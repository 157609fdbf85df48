"""Answers as event lists, as an upstream would send them."""

import json

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
from gossamer.protocol.messages import Message, Part, ToolCall

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


ARGUMENTS = st.one_of(
    st.dictionaries(
        TEXT, st.none() | st.booleans() | st.integers() | TEXT | st.lists(st.integers(), max_size=2)
    ).map(lambda value: json.dumps(value, ensure_ascii=False)),
    st.sampled_from(
        [
            "",
            "{}",
            "{ }",
            '{"a":1}',
            '{"a": 1.0}',
            '{"a": "\\u00e4"}',
            "[1]",
            "not json",
            '{"a": NaN}',
            "null",
        ]
    ),
    TEXT,
)
IMAGE = Part(
    kind="image_url", media={"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
)
CONTENT = TEXT | st.lists(
    TEXT.map(lambda text: Part(kind="text", text=text)) | st.just(IMAGE), min_size=2, max_size=3
).map(tuple)


@st.composite
def turns(draw) -> list[Message]:
    """A user's message, and answers with the results of their calls, whose ids begin anew each time."""
    messages = [Message(role="user", content=draw(CONTENT))]
    for _ in range(draw(st.integers(0, 2))):
        num_calls = draw(st.integers(1, 3))
        calls = tuple(
            ToolCall(id=f"f:{index}", name="f", arguments=draw(ARGUMENTS)) for index in range(num_calls)
        )
        messages.append(
            Message(
                role="assistant",
                content=draw(st.none() | TEXT),
                reasoning=draw(st.just("") | TEXT),
                tool_calls=calls,
            )
        )
        messages += [
            Message(role="tool", content=draw(CONTENT), tool_call_id=call.id)
            for call in draw(st.permutations(calls))
        ]
    if draw(st.booleans()):
        messages.append(Message(role="assistant", content=draw(TEXT), reasoning=draw(st.just("") | TEXT)))
    return messages


@st.composite
def conversations(draw) -> tuple[Message, ...]:
    """What every format has a place for; the last message is a user's."""
    head = [Message(role="system", content=draw(TEXT))] if draw(st.booleans()) else []
    middle = [message for turn in draw(st.lists(turns(), max_size=2)) for message in turn]
    return (*head, *middle, Message(role="user", content=draw(CONTENT)))
