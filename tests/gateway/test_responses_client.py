"""The official OpenAI client's Responses side, unmodified, against a real server; and what Codex sends."""

import httpx
import openai
import pytest
from pydantic import BaseModel

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
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
ASK = {"model": "echo", "input": "get weather please", "tools": [TOOL], "store": False}
USAGE = Usage(prompt_tokens=100, completion_tokens=7, cached_tokens=64, reasoning_tokens=3)
PATCH = '*** Begin Patch\n+ "ä"\n*** End Patch'
UPSTREAMS = {
    "echo": EchoUpstream(),
    "small": EchoUpstream(max_context=12),
    "breaks": ScriptedUpstream([ContentDelta("a"), ApiError("broke", code="engine_error")]),
    "cut": ScriptedUpstream([ReasoningDelta("hm"), USAGE, Finish("length")]),
    "json": ScriptedUpstream([ContentDelta('{"city": "Rome"}'), USAGE, Finish("stop")]),
    "patches": ScriptedUpstream(
        [
            ReasoningDelta("hm"),
            ContentDelta("on it"),
            ToolCallBegin(index=0, id="apply_patch:0", name="apply_patch"),
            ToolCallArguments(index=0, text='{"input": "*** Begin Patch\\n+ \\"ä'),
            ToolCallArguments(index=0, text='\\"\\n*** End Patch"}'),
            ToolCallEnd(index=0),
            USAGE,
            Finish("tool_calls"),
        ]
    ),
}


@pytest.fixture(scope="module")
def client():
    with (
        live(create_app(UPSTREAMS)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30) as sdk,
    ):
        yield sdk


def final_of(client, **ask):
    with client.responses.stream(**ask) as stream:
        names = [event.type for event in stream]
        return names, stream.get_final_response()


def test_whole_answer_with_a_call(client):
    response = client.responses.create(**ASK, reasoning={"effort": "low"}, metadata={"a": "b"})
    thought, call = response.output
    assert thought.content[0].text.startswith("The user wrote 3 words; effort is low.")
    assert (call.name, call.arguments, call.call_id) == ("get_weather", '{"city": "text"}', "get_weather:0")
    assert (response.status, response.metadata, response.reasoning.effort) == ("completed", {"a": "b"}, "low")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


@pytest.mark.parametrize("model", ["echo", "json", "patches"])
def test_the_stream_helper_assembles_the_whole_response(client, model):
    ask = {**ASK, "model": model, "tools": [TOOL, {"type": "custom", "name": "apply_patch"}]}
    whole = client.responses.create(**ask)
    names, streamed = final_of(client, **ask)
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] == "response.completed"

    def shown(response):
        items = [item.to_dict() for item in response.output]
        for item in items:
            del item["id"]
            for part in item.get("content") or ():
                part.pop("parsed", None)
            item.pop("parsed_arguments", None)
        return items, response.usage

    assert shown(streamed) == shown(whole)


def test_a_custom_tool_gets_free_text(client):
    """What Codex asks and brings back: apply_patch, encrypted reasoning without its content."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    ask = {
        "model": "patches",
        "instructions": "You are an agent.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix"}]}],
        "tools": [TOOL, {"type": "custom", "name": "apply_patch", "description": "Edits", "format": grammar}],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "text": {"verbosity": "medium"},
    }
    names, response = final_of(client, **ask)
    assert "response.custom_tool_call_input.done" in names
    thought, said, call = response.output
    assert (said.content[0].text, call.type, call.input) == ("on it", "custom_tool_call", PATCH)
    kept = {"type": "reasoning", "summary": [], "encrypted_content": thought.encrypted_content}
    result = {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "Done"}
    turns = [*ask["input"], kept, said.to_dict(), call.to_dict(), result]
    again = client.responses.create(**{**ask, "model": "echo", "input": turns})
    assert again.output_text == "The tool said: Done"


def test_a_loop_of_eight_calls_with_reasoning_passed_back(client):
    """B06, B31: every call has its reasoning before it, and its own id."""
    turns = [{"role": "user", "content": "get weather please"}]
    for _ in range(8):
        response = client.responses.create(**{**ASK, "input": turns})
        assert [item.type for item in response.output] == ["reasoning", "function_call"]
        call = response.output[1]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        turns += [*response.output, output]
        turns.append({"role": "user", "content": "get weather again"})
    assert len(turns) == 1 + 8 * 4


def test_reasoning_must_come_back(client):
    call = {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "sunny"}
    user = {"role": "user", "content": "x"}
    with pytest.raises(openai.BadRequestError, match="assistant tool call message at index 1"):
        client.responses.create(**{**ASK, "input": [user, call, output]})
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB"}
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{**ASK, "input": [user, sealed, call, output]})
    assert (caught.value.code, caught.value.param) == (
        "invalid_encrypted_content",
        "input[1].encrypted_content",
    )


def test_an_answer_that_was_cut_is_incomplete(client):
    response = client.responses.create(**{**ASK, "model": "cut"})
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    events = list(client.responses.create(**{**ASK, "model": "cut"}, stream=True))
    assert events[-1].type == "response.incomplete"


def test_parsed_output(client):
    class Place(BaseModel):
        city: str

    parsed = client.responses.parse(model="json", input="where?", text_format=Place)
    assert parsed.output_parsed == Place(city="Rome")


def test_an_error_mid_stream(client):
    events = list(client.responses.create(**{**ASK, "model": "breaks"}, stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.message == "broke"


def test_truncation_drops_whole_turns_and_says_so(client):
    """B16: a dropped turn takes its reasoning, calls and results along; what stays keeps its own."""
    said = {"type": "message", "role": "assistant", "content": "a b"}
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    call = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "a", "output": "c d"}
    first = [{"role": "user", "content": "one two three"}, thought, call, output, said]
    second = [{"role": "user", "content": "four five six"}, thought, call, output, thought, said]
    ask = {"model": "small", "input": [*first, *second, {"role": "user", "content": "seven"}]}
    ask |= {"instructions": "Be brief.", "max_output_tokens": 2}
    with pytest.raises(openai.BadRequestError, match=r"token limit: 12 \(requested: 19 = 17 prompt"):
        client.responses.create(**ask)
    raw = client.responses.with_raw_response.create(**ask, truncation="auto")
    told = "truncation dropped the 1 oldest turns: 4 messages from input[0] to input[4]"
    assert raw.headers["x-gossamer-warning"] == told
    response = raw.parse()
    assert (
        response.truncated_input
        == ["input[0]", "input[2]", "input[3]", "input[4]"][:1] + response.truncated_input[1:]
    )
    assert response.usage.input_tokens == 10
    assert client.responses.create(**{**ask, "model": "echo"}, truncation="auto").truncated_input == []


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "9"}]}, "tools[0].name"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": "x", "mood": 1}]}, "input[0].mood"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"truncation": "most"}, "truncation"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(client, extra, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": "echo", "input": "x", "extra_body": extra})
    assert caught.value.param == param


def test_tokens_are_listed(client):
    base = str(client.base_url)
    body = {"model": "echo", "messages": [{"role": "user", "content": "a b a "}]}
    listed = httpx.post(f"{base}tokenize", json=body).json()
    assert (listed["count"], listed["max_model_len"]) == (3, 1 << 20)
    assert listed["tokens"][0] == listed["tokens"][2] != listed["tokens"][1]
