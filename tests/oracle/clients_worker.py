"""One agent loop by one outside client: ``clients_worker.py CLIENT URL`` prints the final text.

Each function is the client's own way to loop over tools, with nothing set but address, model and tool.
"""

import sys

ASK = "get weather please"
LIMIT = 12


def get_weather(city: str) -> str:
    """Weather of a city.

    Args:
        city: Its name.
    """
    return "sunny"


SCHEMA = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def langchain(model) -> str:
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool

    weather = tool(get_weather)
    bound = model.bind_tools([weather])
    messages = [HumanMessage(ASK)]
    for _ in range(LIMIT):
        answer = bound.invoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            return answer.text
        messages += [weather.invoke(call) for call in answer.tool_calls]
    raise AssertionError("the loop does not end")


def langchain_openai(url: str) -> str:
    from langchain_openai import ChatOpenAI

    return langchain(ChatOpenAI(model="loop", base_url=f"{url}/v1", api_key="none"))


def langchain_openai_responses(url: str) -> str:
    from langchain_openai import ChatOpenAI

    return langchain(
        ChatOpenAI(model="loop", base_url=f"{url}/v1", api_key="none", use_responses_api=True, store=False)
    )


def langchain_anthropic(url: str) -> str:
    from langchain_anthropic import ChatAnthropic

    return langchain(ChatAnthropic(model="loop", base_url=url, api_key="none", max_tokens=500))


def langchain_anthropic_stream(url: str) -> str:
    from langchain_anthropic import ChatAnthropic

    return langchain(
        ChatAnthropic(model="loop", base_url=url, api_key="none", max_tokens=500, streaming=True)
    )


def pydantic_ai(model) -> str:
    from pydantic_ai import Agent

    return Agent(model, tools=[get_weather]).run_sync(ASK).output


def pydantic_ai_chat(url: str) -> str:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return pydantic_ai(OpenAIChatModel("loop", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none")))


def pydantic_ai_responses(url: str) -> str:
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key="none")
    return pydantic_ai(OpenAIResponsesModel("loop", provider=provider))


def pydantic_ai_anthropic(url: str) -> str:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return pydantic_ai(AnthropicModel("loop", provider=AnthropicProvider(base_url=url, api_key="none")))


def agents(url: str, model_class: str) -> str:
    import agents as sdk
    from openai import AsyncOpenAI

    sdk.set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    model = getattr(sdk, model_class)(model="loop", openai_client=client)
    agent = sdk.Agent(name="a", model=model, tools=[sdk.function_tool(get_weather)])
    return sdk.Runner.run_sync(agent, ASK, max_turns=LIMIT).final_output


def openai_agents_chat(url: str) -> str:
    return agents(url, "OpenAIChatCompletionsModel")


def openai_agents_responses(url: str) -> str:
    return agents(url, "OpenAIResponsesModel")


def litellm(model: str, base: str) -> str:
    import litellm as sdk

    messages = [{"role": "user", "content": ASK}]
    for _ in range(LIMIT):
        answer = sdk.completion(
            model=model, api_base=base, api_key="none", messages=messages, tools=[SCHEMA], max_tokens=500
        )
        message = answer.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
        ]
    raise AssertionError("the loop does not end")


def litellm_openai(url: str) -> str:
    return litellm("openai/loop", f"{url}/v1")


def litellm_anthropic(url: str) -> str:
    return litellm("anthropic/loop", url)


if __name__ == "__main__":
    print(globals()[sys.argv[1]](sys.argv[2]))
