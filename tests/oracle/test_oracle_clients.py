"""Other people's clients, unmodified: an agent loop of eight tool calls with its reasoning passed back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.live import live
from gossamer.gateway.app import create_app
from gossamer.gateway.upstream import Context
from gossamer.protocol.errors import RequestError
from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.request import Request

pytestmark = pytest.mark.oracle

NUM_CALLS = 8
CLIENTS = [
    "openai_chat",
    "openai_responses",
    "anthropic_messages",
    "anthropic_tool_runner",
    "langchain_openai",
    "langchain_anthropic",
    "pydantic_ai_chat",
    "pydantic_ai_responses",
    "pydantic_ai_anthropic",
    "openai_agents",
    "litellm_chat",
]


def thought(number: int) -> str:
    """What is easily damaged: quotes, a backslash, two newlines, several scripts, a space at the end.

    Not what looks like a control token: pydantic-ai puts a joiner into those before it sends them."""
    return f'step {number}: "über" \\n 步骤\n\n<x> 🪡 '


def arguments(number: int) -> str:
    """Not as json.dumps writes it: only kept bytes give it back."""
    return f'{{"note":"ü \\u0041 {number}",  "number":{number}}}'


class Walk:
    """Asks for one step after another; refuses a history that is not what it said."""

    max_context = 1 << 20

    async def send(self, request: Request, context: Context) -> AsyncIterator[Event]:
        said = [m for m in request.messages if m.role == "assistant"]
        results = [m.text for m in request.messages if m.role == "tool"]
        for number, message in enumerate(said):
            if message.reasoning != thought(number):
                raise RequestError(f"turn {number} came back with reasoning {message.reasoning!r}")
            (call,) = message.tool_calls
            if json.loads(call.arguments) != json.loads(arguments(number)):
                raise RequestError(f"turn {number} came back with arguments {call.arguments!r}")
        if results != [f"step {n} taken" for n in range(len(said))]:
            raise RequestError(f"results came back as {results!r}")
        number = len(said)
        for character in thought(number):
            yield ReasoningDelta(character)
        if number < NUM_CALLS:
            yield ToolCallBegin(index=0, id=f"next_step:{number}", name="next_step")
            text = arguments(number)
            for start in range(0, len(text), 3):
                yield ToolCallArguments(index=0, text=text[start : start + 3])
            yield ToolCallEnd(index=0)
        else:
            yield ContentDelta(f"saw {number} ")
            yield ContentDelta("步骤")
        yield Usage(prompt_tokens=10 + number, completion_tokens=5, cached_tokens=number, reasoning_tokens=2)
        yield Finish("tool_calls" if number < NUM_CALLS else "stop")


@pytest.fixture(scope="module")
def url():
    with live(create_app({"loop": Walk()})) as base:
        yield base


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_loop_of_calls_keeps_its_reasoning(ask, url, client, stream):
    answer = ask("clients", "clients_worker.py", "walk", {}, client=client, url=url, stream=stream)
    found = json.loads(str(answer["json"]))
    assert found["calls"] == [[n, f"ü A {n}"] for n in range(NUM_CALLS)]
    assert found["text"] == f"saw {NUM_CALLS} 步骤"
