"""Agent loops as the users of other people's clients write them, run in the environment `clients`.

Every task calls the tool `next_step` until the model stops asking for it, and gives back what the client
library itself keeps of each turn; nothing here touches reasoning by hand except where the library hands plain
messages to its user (openai, anthropic, litellm).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import worker_loop

QUESTION = "Walk the steps, one call each, then say what you saw."
SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["number", "note"],
    "additionalProperties": False,
}
DESCRIPTION = "Take one step."
MOST_TURNS = 20


class Steps:
    """The tool, and what it was called with."""

    def __init__(self) -> None:
        self.seen: list[list[Any]] = []

    def take(self, number: int, note: str) -> str:
        self.seen.append([number, note])
        return f"step {number} taken"


def openai_chat(url: str, steps: Steps, *, stream: bool) -> str:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    function = {"name": "next_step", "description": DESCRIPTION, "parameters": SCHEMA, "strict": True}
    ask: dict[str, Any] = {"model": "loop", "tools": [{"type": "function", "function": function}]}
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(MOST_TURNS):
        if stream:
            with client.chat.completions.stream(messages=messages, **ask) as events:
                for _event in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(messages=messages, **ask).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = steps.take(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise AssertionError("the loop does not end")


def openai_responses(url: str, steps: Steps, *, stream: bool) -> str:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    tool = {
        "type": "function",
        "name": "next_step",
        "description": DESCRIPTION,
        "parameters": SCHEMA,
        "strict": True,
    }
    ask: dict[str, Any] = {
        "model": "loop",
        "tools": [tool],
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(MOST_TURNS):
        if stream:
            with client.responses.stream(input=items, **ask) as events:
                for _event in events:
                    pass
                response = events.get_final_response()
        else:
            response = client.responses.create(input=items, **ask)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            result = steps.take(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    raise AssertionError("the loop does not end")


def anthropic_messages(url: str, steps: Steps, *, stream: bool) -> str:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    ask: dict[str, Any] = {
        "model": "loop",
        "max_tokens": 2000,
        "tools": [{"name": "next_step", "description": DESCRIPTION, "input_schema": SCHEMA}],
    }
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(MOST_TURNS):
        if stream:
            with client.messages.stream(messages=messages, **ask) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(messages=messages, **ask)
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            return "".join(block.text for block in message.content if block.type == "text")
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": steps.take(**block.input)}
            for block in message.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
    raise AssertionError("the loop does not end")


def anthropic_tool_runner(url: str, steps: Steps, *, stream: bool) -> str:
    import anthropic

    @anthropic.beta_tool
    def next_step(number: int, note: str) -> str:
        """Take one step."""
        return steps.take(number, note)

    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    runner = client.beta.messages.tool_runner(
        model="loop",
        max_tokens=2000,
        tools=[next_step],
        messages=[{"role": "user", "content": QUESTION}],
        stream=stream,
    )
    last = None
    for turn in runner:
        last = turn.get_final_message() if stream else turn
    assert last is not None
    return "".join(block.text for block in last.content if block.type == "text")


def langchain_openai(url: str, steps: Steps, *, stream: bool) -> str:
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="loop",
        base_url=f"{url}/v1",
        api_key="none",
        use_responses_api=True,
        output_version="responses/v1",
        store=False,
        include=["reasoning.encrypted_content"],
        max_retries=0,
    )
    return _langchain(model, steps, stream)


def langchain_anthropic(url: str, steps: Steps, *, stream: bool) -> str:
    from langchain_anthropic import ChatAnthropic

    model = ChatAnthropic(model="loop", base_url=url, api_key="none", max_tokens=2000, max_retries=0)
    return _langchain(model, steps, stream)


def _langchain(model: Any, steps: Steps, stream: bool) -> str:
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool

    @tool
    def next_step(number: int, note: str) -> str:
        """Take one step."""
        return steps.take(number, note)

    bound = model.bind_tools([next_step])
    messages: list[Any] = [HumanMessage(QUESTION)]
    for _ in range(MOST_TURNS):
        if stream:
            answer = None
            for chunk in bound.stream(messages):
                answer = chunk if answer is None else answer + chunk
            assert answer is not None
        else:
            answer = bound.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return answer.text if isinstance(answer.text, str) else answer.text()
        messages += [next_step.invoke(call) for call in answer.tool_calls]
    raise AssertionError("the loop does not end")


def pydantic_ai_chat(url: str, steps: Steps, *, stream: bool) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(
        "loop",
        provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"),
        profile=OpenAIModelProfile(
            openai_chat_thinking_field="reasoning_content", openai_chat_send_back_thinking_parts="field"
        ),
    )
    return _pydantic_ai(model, steps, stream)


def pydantic_ai_responses(url: str, steps: Steps, *, stream: bool) -> str:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIResponsesModel("loop", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    return _pydantic_ai(model, steps, stream, openai_store=False)


def pydantic_ai_anthropic(url: str, steps: Steps, *, stream: bool) -> str:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    model = AnthropicModel("loop", provider=AnthropicProvider(base_url=url, api_key="none"))
    return _pydantic_ai(model, steps, stream)


def _pydantic_ai(model: Any, steps: Steps, stream: bool, **settings: Any) -> str:
    from pydantic_ai import Agent

    agent = Agent(model, model_settings=settings or None)
    agent.tool_plain(name="next_step", description=DESCRIPTION)(steps.take)

    async def streamed() -> str:
        async with agent.run_stream(QUESTION) as result:
            return await result.get_output()

    return asyncio.run(streamed()) if stream else agent.run_sync(QUESTION).output


def openai_agents(url: str, steps: Steps, *, stream: bool) -> str:
    import openai
    from agents import (
        Agent,
        ModelSettings,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)

    @function_tool
    def next_step(number: int, note: str) -> str:
        """Take one step."""
        return steps.take(number, note)

    async def walk() -> str:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        agent = Agent(
            name="walker",
            model=OpenAIResponsesModel(model="loop", openai_client=client),
            tools=[next_step],
            model_settings=ModelSettings(store=False, response_include=["reasoning.encrypted_content"]),
        )
        if not stream:
            return (await Runner.run(agent, QUESTION, max_turns=MOST_TURNS)).final_output
        running = Runner.run_streamed(agent, QUESTION, max_turns=MOST_TURNS)
        async for _event in running.stream_events():
            pass
        return running.final_output

    return asyncio.run(walk())


def litellm_chat(url: str, steps: Steps, *, stream: bool) -> str:
    import litellm

    tools = [
        {
            "type": "function",
            "function": {"name": "next_step", "description": DESCRIPTION, "parameters": SCHEMA},
        }
    ]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    ask = {"model": "openai/loop", "api_base": f"{url}/v1", "api_key": "none", "tools": tools}
    for _ in range(MOST_TURNS):
        answer = litellm.completion(messages=messages, stream=stream, num_retries=0, **ask)
        if stream:
            answer = litellm.stream_chunk_builder(list(answer), messages=messages)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        for call in message.tool_calls:
            result = steps.take(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise AssertionError("the loop does not end")


LOOPS: dict[str, Callable[..., str]] = {
    loop.__name__: loop
    for loop in (
        openai_chat,
        openai_responses,
        anthropic_messages,
        anthropic_tool_runner,
        langchain_openai,
        langchain_anthropic,
        pydantic_ai_chat,
        pydantic_ai_responses,
        pydantic_ai_anthropic,
        openai_agents,
        litellm_chat,
    )
}


def walk(arrays: dict[str, Any], client: str, url: str, stream: bool) -> dict[str, Any]:
    """One loop from question to answer; text and calls as JSON."""
    steps = Steps()
    text = LOOPS[client](url, steps, stream=stream)
    return {"json": json.dumps({"text": text, "calls": steps.seen})}


if __name__ == "__main__":
    worker_loop.serve({"walk": walk})
