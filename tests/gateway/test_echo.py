import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.gateway.echo import EchoUpstream
from gossamer.gateway.upstream import Context
from gossamer.protocol.errors import RequestError
from gossamer.protocol.events import Finish, Usage
from gossamer.protocol.openai import Envelope, ResponseWriter
from gossamer.protocol.request import parse

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"enum": ["C", "F"]},
                "note": {"type": "string"},
            },
            "required": ["city", "unit"],
        },
    },
}


def answer(*messages, **extra):
    request = parse({"model": "echo", "messages": list(messages), **extra})

    async def collect():
        return [event async for event in EchoUpstream().send(request, Context(request_id="t"))]

    events = asyncio.run(collect())
    writer = ResponseWriter(Envelope(id="i", model="echo", created=0))
    for event in events:
        writer.write(event)
    return events, writer.response()["choices"][0]


def user(text):
    return {"role": "user", "content": text}


@given(st.text(max_size=30))
def test_says_the_text_back_and_ends_in_order(text):
    events, choice = answer(user(text))
    assert choice["message"]["content"] == f"You said: {text}"
    assert choice["finish_reason"] == "stop"
    assert isinstance(events[-2], Usage)
    assert isinstance(events[-1], Finish)
    assert events == answer(user(text))[0]


def test_has_no_log_probabilities():
    with pytest.raises(RequestError, match="an echo has no log-probabilities") as caught:
        answer(user("hi"), logprobs=True)
    assert (caught.value.param, caught.value.code) == ("logprobs", "unsupported_value")


def test_calls_the_tool_that_the_text_names():
    _, choice = answer(user("please get weather now"), tools=[TOOL])
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "text", "unit": "C"}'}
    assert choice["finish_reason"] == "tool_calls"


def test_tool_choice_decides():
    assert "tool_calls" not in answer(user("hello"), tools=[TOOL])[1]["message"]
    assert "tool_calls" in answer(user("hello"), tools=[TOOL], tool_choice="required")[1]["message"]
    assert "tool_calls" not in answer(user("get weather"), tools=[TOOL], tool_choice="none")[1]["message"]


def test_repeats_a_tool_result():
    message = answer(user("get weather"), tools=[TOOL])[1]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"}
    _, choice = answer(user("get weather"), message, result, tools=[TOOL])
    assert choice["message"]["content"] == "The tool said: sunny"


def test_max_tokens_cuts_and_says_so():
    events, choice = answer(user("hello there"), max_tokens=3)
    assert choice["finish_reason"] == "length"
    assert events[-2].completion_tokens == 3
