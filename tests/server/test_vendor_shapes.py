"""The shapes that the vendor's verifier sends, over HTTP to an untrained model, whole and streamed.

What a verifier asks of a server is asked here of ours: parameters, schemas of tools, tools that come late,
tool choice, effort, response formats and token counts.
"""

import json

import httpx
import jsonschema
import pytest

from gateway.live import live
from gossamer.gateway.app import create_app
from gossamer.protocol import sse
from gossamer.protocol.openai import accumulate
from gossamer.server.load import load

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "Add 2 and 3."}
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
SCHEMAS = {
    "plain": NUMBERS,
    "nested": {
        "type": "object",
        "properties": {"p": NUMBERS},
        "required": ["p"],
        "additionalProperties": False,
    },
    "choice": {
        "type": "object",
        "properties": {"c": {"enum": ["x", "y"]}},
        "required": ["c"],
        "additionalProperties": False,
    },
    "reference": {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/n"}},
        "required": ["p"],
        "additionalProperties": False,
        "$defs": {"n": NUMBERS},
    },
    "empty": {"type": "object", "properties": {}, "additionalProperties": False},
}


def tool(name="add", parameters=NUMBERS, **function):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **function}}


@pytest.fixture(scope="module")
def http():
    loaded = load("debug", seed=0, warn=lambda text: None)
    app = create_app({"debug": loaded.upstream}, on_close=[loaded.engine.close])
    with live(app) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def strict():
    loaded = load("debug", seed=0, warn=lambda text: None)
    app = create_app({"debug": loaded.upstream}, on_close=[loaded.engine.close], strict_kimi=True)
    with live(app) as url, httpx.Client(base_url=url, timeout=120) as client:
        yield client


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def ask(http, request):
    """``ask(**fields)``: the answer, put together from the stream where there is one."""

    def send(client=http, **fields):
        tree = {"model": "debug", "messages": [USER], "max_tokens": 200, "seed": 1, **fields}
        if not request.param:
            response = client.post(CHAT, json=tree)
            return response.json() if response.is_success else response
        tree |= {"stream": True, "stream_options": {"include_usage": True}}
        with client.stream("POST", CHAT, json=tree) as response:
            if not response.is_success:
                response.read()
                return response
            events = [event.data for event in sse.Decoder().feed(response.read())]
        assert events[-1] == sse.DONE
        return accumulate(json.loads(event) for event in events[:-1])

    return send


def refused(response, param=None):
    assert response.status_code == 400, response
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    return error["message"]


@pytest.mark.parametrize(
    ("name", "fixed", "other"),
    [
        ("temperature", 1, 0.6),
        ("top_p", 0.95, 0.5),
        ("n", 1, 2),
        ("presence_penalty", 0, 0.5),
        ("frequency_penalty", 0, 0.5),
    ],
)
def test_fixed_parameters(ask, strict, name, fixed, other):
    assert ask(strict, **{name: fixed}, max_tokens=3)["choices"]
    message = refused(ask(strict, **{name: other}), name)
    assert message == f"invalid {name}: only {fixed} is allowed for this model"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_arguments_satisfy_their_schema(ask, schema):
    answer = ask(tools=[tool(parameters=SCHEMAS[schema], strict=True)], tool_choice="required")
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    for call in choice["message"]["tool_calls"]:
        assert call["function"]["name"] == "add"
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[schema])


@pytest.mark.parametrize(
    "tools",
    [
        [{"function": {"name": "f"}}],
        [{"type": "function"}],
        [{"type": "function", "function": {}}],
        [{"type": "retrieval", "function": {"name": "f"}}],
        *([tool(name)] for name in ("", "1st", "a b", "f!", "f" * 257)),
        [tool(), tool()],
    ],
)
def test_declarations_that_are_refused(ask, tools):
    assert refused(ask(tools=tools)).startswith("tools[")


def late(*tools, **extra):
    return {"role": "system", "tools": list(tools), **extra}


@pytest.mark.parametrize("content", [{}, {"content": ""}, {"content": None}])
@pytest.mark.parametrize("at_end", [True, False])
def test_tools_that_come_late_are_offered_like_all_others(ask, content, at_end):
    messages = [USER, late(tool("late"), **content)]
    answer = ask(messages=messages if at_end else messages[::-1], tools=[tool()], tool_choice="required")
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert {call["function"]["name"] for call in calls} <= {"add", "late"}
    named = {"type": "function", "function": {"name": "late"}}
    answer = ask(messages=messages, tools=[tool()], tool_choice=named)
    assert {c["function"]["name"] for c in answer["choices"][0]["message"]["tool_calls"]} == {"late"}


@pytest.mark.parametrize(
    ("messages", "tools"),
    [
        ([USER, late(tool(), content="Use it.")], []),
        ([{**USER, "tools": [tool()]}], []),
        ([USER, {"role": "assistant", "content": "x", "tools": [tool()]}, USER], []),
        ([late(tool()), USER], [tool()]),
        ([late(tool()), late(tool()), USER], []),
    ],
)
def test_tools_in_the_wrong_place_are_refused(ask, messages, tools):
    refused(ask(messages=messages, tools=tools))


@pytest.mark.parametrize("tools", [{}, {"tools": []}])
def test_a_choice_without_tools(ask, tools):
    refused(ask(tool_choice="required", **tools), "tool_choice")
    for choice in ("none", "auto"):
        assert ask(tool_choice=choice, max_tokens=3, **tools)["choices"][0]["message"]
    refused(ask(tool_choice="always", **tools), "tool_choice")


def test_choice(ask):
    required = ask(tools=[tool()], tool_choice="required")["choices"][0]
    assert required["finish_reason"] == "tool_calls"
    assert "reasoning_content" in required["message"]
    none = ask(tools=[tool()], tool_choice="none", max_tokens=60)["choices"][0]
    assert "tool_calls" not in none["message"]


@pytest.mark.parametrize("effort", ["low", "high", "max"])
def test_efforts(ask, effort):
    message = ask(reasoning_effort=effort, max_tokens=20)["choices"][0]["message"]
    assert message["reasoning_content"]


def test_an_effort_that_is_not_known_is_refused(ask):
    refused(ask(reasoning_effort="extreme"), "reasoning_effort")


@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_formats(ask, kind):
    form = {"type": kind}
    if kind == "json_schema":
        form["json_schema"] = {"name": "sum", "schema": NUMBERS, "strict": True}
    answer = ask(response_format=form, max_tokens=300)
    text = answer["choices"][0]["message"]["content"]
    value = json.loads(text)
    assert isinstance(value, dict)
    if kind == "json_schema":
        jsonschema.validate(value, NUMBERS)
        assert answer["usage"]["prompt_tokens"] > ask(max_tokens=1)["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    "form",
    [
        {"type": "yaml"},
        {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"schema": NUMBERS}},
        {"type": "json_schema", "json_schema": {"name": "n"}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": NUMBERS, "strict": "yes"}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": [1]}},
    ],
)
def test_formats_that_are_refused(ask, form):
    assert "response_format" in refused(ask(response_format=form))


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "Be brief."}, USER],
        [USER, {"role": "assistant", "content": "5", "reasoning_content": "2 + 3"}, USER],
        [USER, {"role": "assistant", "content": "The sum", "partial": True}],
    ],
)
def test_prompt_tokens(ask, http, messages):
    counted = ask(messages=messages, max_tokens=1)["usage"]["prompt_tokens"]
    listed = http.post("/v1/tokenize", json={"model": "debug", "messages": messages}).json()
    assert counted == listed["count"]


def test_a_result_without_an_id_is_refused(ask):
    call = {"id": "add:0", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    said = {"role": "assistant", "reasoning_content": "", "tool_calls": [call]}
    refused(ask(messages=[USER, said, {"role": "tool", "content": "5"}]), "messages[2].tool_call_id")
