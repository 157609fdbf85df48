import json

import pytest
from hypothesis import given
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gossamer.protocol import sse
from gossamer.protocol.completion import Collector
from gossamer.protocol.events import (
    ContentDelta,
    Finish,
    ReasoningDelta,
    TokenLogprob,
    ToolCallBegin,
    Usage,
)
from gossamer.protocol.openai import ChatWire, ChunkWriter, Envelope, ResponseWriter, accumulate
from protocol.strategies import answers

ENVELOPE = Envelope(id="chatcmpl-1", model="m", created=1_700_000_000)


def chunks_of(events, *, include_usage=True):
    writer = ChunkWriter(ENVELOPE, include_usage=include_usage)
    return [chunk for event in events for chunk in writer.write(event)]


def response_of(events):
    writer = ResponseWriter(ENVELOPE)
    for event in events:
        writer.write(event)
    return writer.response()


@given(answers())
def test_a_stream_accumulates_to_the_whole_response(events):
    assert accumulate(chunks_of(events)) == response_of(events)


@given(answers())
def test_the_official_types_accept_both_forms(events):
    ChatCompletion.model_validate(response_of(events), strict=True)
    for chunk in chunks_of(events):
        ChatCompletionChunk.model_validate(chunk, strict=True)


@given(answers())
def test_stream_order(events):
    chunks = chunks_of(events)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in c["choices"][0]["delta"] for c in chunks[1:-1])
    assert {(c["id"], c["object"], c["created"]) for c in chunks} == {
        ("chatcmpl-1", "chat.completion.chunk", 1_700_000_000)
    }
    reasons = [c["choices"][0]["finish_reason"] for c in chunks[:-1]]
    assert reasons[-1] == events[-1].reason
    assert set(reasons[:-1]) <= {None}
    assert chunks[-1]["choices"] == []
    assert all(c["usage"] is None for c in chunks[:-1])


def test_usage_is_written_only_when_asked_for():
    events = [ContentDelta("x"), Usage(prompt_tokens=1, completion_tokens=1), Finish("stop")]
    assert all("usage" not in chunk for chunk in chunks_of(events, include_usage=False))


def test_usage_names_cached_tokens_twice_and_reasoning_once():
    usage = Usage(prompt_tokens=10, completion_tokens=5, cached_tokens=4, reasoning_tokens=3)
    body = response_of([usage, Finish("stop")])["usage"]
    assert body == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "cached_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_logprobs_are_the_official_entries():
    other = TokenLogprob(text="<|close|>", raw=None, logprob=-2.0)
    half = TokenLogprob(text="�", raw=b"\xc3", logprob=-0.5, top=(other,))
    rest = TokenLogprob(text="�", raw=b"\xa4", logprob=0.0)
    events = [ContentDelta("ä", (half, rest)), ContentDelta("x"), Finish("stop")]
    content = [
        {
            "token": "�",
            "logprob": -0.5,
            "bytes": [0xC3],
            "top_logprobs": [{"token": "<|close|>", "logprob": -2.0, "bytes": None}],
        },
        {"token": "�", "logprob": 0.0, "bytes": [0xA4], "top_logprobs": []},
    ]
    assert response_of(events)["choices"][0]["logprobs"] == {"content": content, "refusal": None}
    streamed = [c["choices"][0]["logprobs"] for c in chunks_of(events)]
    # The role, both pieces of content, and the end.
    assert streamed == [None, {"content": content, "refusal": None}, None, None]


def test_content_beside_calls_is_null_when_empty_and_reasoning_is_always_there():
    call = ToolCallBegin(index=0, id="f:0", name="f")
    message = response_of([call, Finish("tool_calls")])["choices"][0]["message"]
    assert message["content"] is None
    assert message["reasoning_content"] == ""
    assert response_of([Finish("stop")])["choices"][0]["message"]["content"] == ""


def test_an_unfinished_answer_is_not_a_response():
    with pytest.raises(ValueError, match="not finished"):
        response_of([ReasoningDelta("hm")])
    with pytest.raises(ValueError, match="before a finish_reason"):
        accumulate(chunks_of([ReasoningDelta("hm")]))
    with pytest.raises(ValueError, match="before a finish_reason"):
        accumulate([])


@given(answers())
def test_reasoning_can_have_both_names(events):
    """B01, B03: a client that reads the other name gets the same text, streamed or not."""
    wire, collector, writer = ChatWire(ENVELOPE, both_names=True), Collector(), ChatWire(ENVELOPE)
    for event in events:
        collector.write(event)
    message = wire.whole(collector.completion())["choices"][0]["message"]
    assert message.pop("reasoning") == message["reasoning_content"]
    assert message == writer.whole(collector.completion())["choices"][0]["message"]
    data = b"".join(wire.write(event) for event in events)
    chunks = [json.loads(event.data) for event in sse.Decoder().feed(data)]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == message["reasoning_content"]
    assert accumulate(chunks)["choices"][0]["message"] == message
