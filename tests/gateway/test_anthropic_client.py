"""The official Anthropic client, unmodified, against a real server: whole, streamed, and its tool runner."""

import json
import time

import anthropic
import httpx
import pytest

from gateway.live import live
from gateway.scripted import ScriptedUpstream
from gossamer.gateway.app import create_app
from gossamer.gateway.echo import EchoUpstream
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import (
    ContentDelta,
    Finish,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)

TOOL = {
    "name": "get_weather",
    "description": "Weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK = {
    "model": "echo",
    "max_tokens": 500,
    "messages": [{"role": "user", "content": "get weather please"}],
    "tools": [TOOL],
}
RAW = '{"b":1.0,  "a": "\\u00e4"}'
USAGE = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=64, reasoning_tokens=3)


def calls(*arguments):
    events = [ReasoningDelta("hm")]
    for index, text in enumerate(arguments):
        events += [
            ToolCallBegin(index=index, id=f"get_weather:{index}", name="get_weather"),
            *(ToolCallArguments(index=index, text=text[i : i + 3]) for i in range(0, len(text), 3)),
            ToolCallEnd(index=index),
        ]
    return [*events, USAGE, Finish("tool_calls")]


UPSTREAMS = {
    "echo": EchoUpstream(),
    "small": EchoUpstream(max_context=5),
    "breaks": ScriptedUpstream([ContentDelta("a"), ApiError("broke", code="engine_error")]),
    "thinks": ScriptedUpstream([ReasoningDelta("hm"), USAGE, Finish("stop")]),
    "says": ScriptedUpstream([ContentDelta("hello"), USAGE, Finish("stop")]),
    "stops": ScriptedUpstream([ContentDelta("one "), USAGE, Finish("stop", "END")]),
    "calls": ScriptedUpstream(calls(RAW, "{}", "not json")),
}


@pytest.fixture(scope="module")
def url():
    with live(create_app(UPSTREAMS)) as base:
        yield base


@pytest.fixture(scope="module", params=["", "/anthropic"])
def client(url, request):
    with anthropic.Anthropic(base_url=url + request.param, api_key="none", max_retries=0, timeout=30) as sdk:
        yield sdk


def test_whole_answer_with_a_call(client):
    message = client.messages.create(**ASK)
    thinking, call = message.content
    assert thinking.type == "thinking"
    assert thinking.thinking.startswith("The user wrote 3 words; effort is max.")
    assert thinking.signature
    assert (call.type, call.name, call.input) == ("tool_use", "get_weather", {"city": "text"})
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)
    assert message.id == f"msg_{message._request_id}"
    assert message.usage.input_tokens == 3
    assert message.usage.output_tokens_details.thinking_tokens > 0


@pytest.mark.parametrize("model", ["echo", "thinks", "says", "stops", "calls"])
def test_the_stream_helper_assembles_the_whole_message(client, model):
    whole = client.messages.create(**{**ASK, "model": model})
    with client.messages.stream(**{**ASK, "model": model}) as stream:
        names = [event.type for event in stream]
        streamed = stream.get_final_message()
    assert streamed.to_dict(exclude_unset=False) | {"id": 0} == whole.to_dict(exclude_unset=False) | {"id": 0}
    assert names[0] == "message_start"
    assert names[-1] == "message_stop"


def test_cached_tokens_are_not_input_tokens(client):
    """B36, B39: cache fields of streamed answers; the total is the aggregate."""
    for usage in (
        client.messages.create(**{**ASK, "model": "says"}).usage,
        client.messages.create(**{**ASK, "model": "says"}).usage,
    ):
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (36, 64, 7)


def test_arguments_keep_their_bytes_through_a_loop(url):
    """B29, B32: the ids and the strings of three calls, one no JSON, come back as they went out."""
    seen = []

    class Remembers(ScriptedUpstream):
        def send(self, request, context):
            seen.append(request)
            return super().send(request, context)

    app = create_app({"m": Remembers(calls(RAW, "{}", "not json"))})
    with live(app) as base, anthropic.Anthropic(base_url=base, api_key="x", max_retries=0) as sdk:
        for stream in (False, True):
            ask = {**ASK, "model": "m"}
            if stream:
                with sdk.messages.stream(**ask) as events:
                    message = events.get_final_message()
            else:
                message = sdk.messages.create(**ask)
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "ok"}
                for block in message.content
                if block.type == "tool_use"
            ]
            turns = [
                *ASK["messages"],
                {"role": "assistant", "content": message.content},
                {"role": "user", "content": results},
            ]
            sdk.messages.create(**{**ask, "messages": turns})
            said = seen[-1].messages[1]
            assert said.reasoning == "hm"
            assert [call.arguments for call in said.tool_calls] == [RAW, "{}", "not json"]
            assert [m.tool_call_id for m in seen[-1].messages[2:]] == [call.id for call in said.tool_calls]


def test_eager_tools_stream_their_input_as_it_comes(client):
    eager = {**TOOL, "eager_input_streaming": True}
    pieces = []
    with client.messages.stream(**{**ASK, "tools": [eager]}) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        assert stream.get_final_message().content[-1].input == {"city": "text"}
    assert len(pieces) > 1


def test_the_tool_runner_loops(client):
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Weather of a city.

        Args:
            city: Its name.
        """
        asked.append(city)
        return "sunny"

    runner = client.beta.messages.tool_runner(
        model="echo", max_tokens=500, messages=ASK["messages"], tools=[get_weather]
    )
    final = runner.until_done()
    assert asked == ["text"]
    assert final.content[-1].text == "The tool said: sunny"
    assert final.stop_reason == "end_turn"


def test_an_answer_of_thought_alone_has_an_empty_text(client):
    """B35: passed on truthfully."""
    message = client.messages.create(**{**ASK, "model": "thinks"})
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].text == ""
    assert message.stop_reason == "end_turn"


def test_stop_sequences_are_named(client):
    message = client.messages.create(**{**ASK, "model": "stops", "stop_sequences": ["END"]})
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")


def test_effort_and_system(client):
    message = client.messages.create(
        **ASK, system=[{"type": "text", "text": "Be brief."}], output_config={"effort": "low"}
    )
    assert "effort is low" in message.content[0].thinking
    assert message.usage.input_tokens == 5


def test_a_billing_header_is_not_part_of_the_prompt(client):
    header = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=0a1b2;"}
    counted = client.messages.count_tokens(
        model="echo", system=[header, {"type": "text", "text": "Be brief."}], messages=ASK["messages"]
    )
    assert counted.input_tokens == 5


def test_reasoning_must_come_back(client):
    """B05, B07: the published text with the index in the client's own array."""
    call = {"type": "tool_use", "id": "f:0", "name": "get_weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "f:0", "content": "x", "is_error": True}
    turns = [
        *ASK["messages"],
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**{**ASK, "messages": turns})
    assert caught.value.type == "invalid_request_error"
    assert caught.value.api_message == (
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"
    )
    # B12: a block without a signature of ours is thought all the same.
    turns[1]["content"].insert(0, {"type": "thinking", "thinking": "", "signature": ""})
    assert client.messages.create(**{**ASK, "messages": turns}).content[-1].text == "The tool said: x"


def test_typed_errors(client):
    with pytest.raises(anthropic.NotFoundError) as lost:
        client.messages.create(**{**ASK, "model": "nothing"})
    assert lost.value.type == "not_found_error"
    assert lost.value.request_id
    with pytest.raises(anthropic.BadRequestError, match=r"token limit: 5 \(requested: 503"):
        client.messages.create(**{**ASK, "model": "small"})


def test_an_error_mid_stream_raises(client):
    with (
        pytest.raises(anthropic.APIStatusError, match="broke"),
        client.messages.stream(**{**ASK, "model": "breaks"}) as stream,
    ):
        list(stream)


def test_models(client):
    listed = client.models.list()
    assert [model.id for model in listed] == list(UPSTREAMS)
    assert client.models.retrieve("echo").display_name == "echo"


def test_every_event_is_named_and_in_order(url):
    """B33: text, then a call; each block is closed before the next one begins."""
    with httpx.stream("POST", f"{url}/v1/messages?beta=true", json={**ASK, "stream": True}) as response:
        lines = [line for line in response.iter_lines() if line]
    names = [line.removeprefix("event: ") for line in lines[::2]]
    bodies = [json.loads(line.removeprefix("data: ")) for line in lines[1::2]]
    assert names == [body["type"] for body in bodies]
    starts = [body["index"] for body in bodies if body["type"] == "content_block_start"]
    stops = [body["index"] for body in bodies if body["type"] == "content_block_stop"]
    assert starts == stops == [0, 1]
    assert names[-2:] == ["message_delta", "message_stop"]
    assert bodies[0]["message"]["usage"]["input_tokens"] == 3


def test_a_closed_stream_ends_the_work(client):
    hangs = ScriptedUpstream([ContentDelta("a"), ScriptedUpstream.HANG])
    with live(create_app({"m": hangs})) as base, anthropic.Anthropic(base_url=base, api_key="x") as sdk:
        with sdk.messages.stream(**{**ASK, "model": "m"}) as stream:
            next(iter(stream.text_stream))
        deadline = time.monotonic() + 20
        while not hangs.closed.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert hangs.closed.is_set()
