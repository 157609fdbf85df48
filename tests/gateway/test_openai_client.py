"""The official client against a real server, whole and streamed."""

import asyncio
import time

import openai
import pytest

from gateway.live import live
from gateway.scripted import ScriptedUpstream
from gossamer.gateway.app import create_app
from gossamer.gateway.echo import EchoUpstream
from gossamer.protocol.errors import ApiError
from gossamer.protocol.events import ContentDelta

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ASK = {"model": "echo", "messages": [{"role": "user", "content": "get weather please"}], "tools": [TOOL]}
BREAKS = ScriptedUpstream([ContentDelta("a"), ApiError("broke", code="engine_error")])
HANGS = ScriptedUpstream([ContentDelta("a"), ScriptedUpstream.HANG])


@pytest.fixture(scope="module")
def client():
    with (
        live(create_app({"echo": EchoUpstream(), "breaks": BREAKS, "hangs": HANGS})) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30) as sdk,
    ):
        yield sdk


def test_whole_answer_with_a_call(client):
    response = client.chat.completions.create(**ASK)
    choice = response.choices[0]
    assert choice.message.reasoning_content.startswith("The user wrote 3 words")
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name, call.function.arguments) == (
        "function",
        "get_weather",
        '{"city": "text"}',
    )
    assert choice.finish_reason == "tool_calls"
    assert response.usage.total_tokens == response.usage.prompt_tokens + response.usage.completion_tokens
    assert response.usage.completion_tokens_details.reasoning_tokens > 0
    assert response.usage.prompt_tokens_details.cached_tokens == 0


def test_streamed_answer_equals_the_whole_one(client):
    whole = client.chat.completions.create(**ASK).choices[0].message
    reasoning, arguments, names, finish, usage = "", "", [], None, None
    for chunk in client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                names += [call.function.name] if call.function.name else []
                arguments += call.function.arguments or ""
    assert reasoning == whole.reasoning_content
    assert names == ["get_weather"]
    assert arguments == whole.tool_calls[0].function.arguments
    assert finish == "tool_calls"
    assert usage.completion_tokens > 0


def test_the_sdk_stream_helper_assembles_the_message(client):
    with client.chat.completions.stream(**ASK) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"city": "text"}'


def test_a_tool_loop_needs_no_care_for_reasoning(client):
    """The client's own message object, appended as it is, brings the reasoning back."""
    message = client.chat.completions.create(**ASK).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    again = {**ASK, "messages": [*ASK["messages"], message, result]}
    assert client.chat.completions.create(**again).choices[0].message.content == "The tool said: sunny"


def test_typed_errors(client):
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="echo", messages=[])
    assert (bad.value.param, bad.value.code, bad.value.type) == (
        "messages",
        "invalid_value",
        "invalid_request_error",
    )
    with pytest.raises(openai.NotFoundError) as lost:
        client.chat.completions.create(**{**ASK, "model": "nothing"})
    assert lost.value.code == "model_not_found"


def test_an_error_mid_stream_raises(client):
    stream = client.chat.completions.create(**{**ASK, "model": "breaks"}, stream=True)
    with pytest.raises(openai.APIError, match="broke") as caught:
        list(stream)
    assert caught.value.code == "engine_error"


def test_closing_a_stream_cancels_the_upstream(client):
    stream = client.chat.completions.create(**{**ASK, "model": "hangs"}, stream=True)
    assert next(iter(stream)).choices[0].delta.role == "assistant"
    stream.close()
    deadline = time.monotonic() + 20
    while not HANGS.closed.is_set() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert HANGS.closed.is_set()


def test_models(client):
    assert [model.id for model in client.models.list()] == ["echo", "breaks", "hangs"]
    assert client.models.retrieve("echo").owned_by == "gossamer"


def test_the_async_client_runs_requests_side_by_side(client):
    async def ask_many():
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key="none", max_retries=0) as sdk:
            asks = (sdk.chat.completions.create(**ASK) for _ in range(8))
            return await asyncio.gather(*asks)

    assert len({response.id for response in asyncio.run(ask_many())}) == 8
