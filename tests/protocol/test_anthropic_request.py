import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol.anthropic_messages import write_messages
from gossamer.protocol.anthropic_request import MESSAGES, parse_messages_request
from gossamer.protocol.errors import RequestError
from gossamer.protocol.fields import EFFORTS, EFFORTS_OFF
from gossamer.protocol.messages import Message
from protocol.test_request import JSON

USER = {"role": "user", "content": "hi"}
BASE = {"model": "m", "max_tokens": 5, "messages": [USER]}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
SAID = {"type": "text", "text": "and?"}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "ok"}


def parse(**extra):
    return parse_messages_request({**BASE, **extra}).request


def refused(**extra) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(**extra)
    return caught.value


def turns(*assistant, results=(RESULT,)):
    blocks = {"role": "assistant", "content": list(assistant)}
    return [USER, blocks, *([{"role": "user", "content": list(results)}] if results else [])]


def test_fields_become_those_of_the_one_request():
    request = parse(
        system="Be brief.",
        tools=[{**TOOL, "type": "custom", "description": "d", "strict": True, "cache_control": {}}],
        tool_choice={"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        thinking={"type": "enabled", "budget_tokens": 2000},
        output_config={"effort": "medium", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        temperature=0.5,
        top_k=3,
        metadata={"user_id": "u"},
    )
    assert [m.role for m in request.messages] == ["system", "user"]
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}
    assert request.tools == ({"type": "function", "function": function},)
    assert (request.tool_choice, request.named_tool, request.parallel_tool_calls) == ("required", "f", False)
    assert (request.stop, request.reasoning_effort, request.top_k) == (("END",), "high", 3)
    assert request.response_format["json_schema"]["schema"] == {"type": "object"}
    assert request.extra == {"metadata": {"user_id": "u"}}


@pytest.mark.parametrize(("sent", "runs_as"), EFFORTS.items())
def test_the_efforts_are_those_of_the_other_formats(sent, runs_as):
    """B19: no effort is changed but as the table says."""
    assert parse(output_config={"effort": sent}).reasoning_effort == runs_as


@pytest.mark.parametrize("sent", EFFORTS_OFF)
def test_there_is_no_off_switch(sent):
    assert "always reasons" in refused(output_config={"effort": sent}).message
    assert "always reasons" in refused(thinking={"type": "disabled"}).message


def test_what_a_coding_agent_sends_is_taken():
    """Reminders in the middle, a billing header that changes, prefixes marked, thinking that stays."""
    header = {"type": "text", "text": "x-anthropic-billing-header: cch=1;"}
    rules = {"type": "text", "text": "Rules.", "cache_control": {"type": "ephemeral"}}
    edit = {"type": "clear_thinking_20251015", "keep": "all"}
    request = parse(
        system=[header, rules],
        messages=[USER, {"role": "system", "content": "Reminder."}, USER],
        thinking={"type": "adaptive", "display": "summarized"},
        context_management={"edits": [edit]},
        service_tier="auto",
    )
    assert [(m.role, m.text) for m in request.messages] == [
        ("system", "Rules."),
        ("user", "hi"),
        ("system", "Reminder."),
        ("user", "hi"),
    ]


def test_results_come_before_what_is_said_with_them():
    request = parse(
        messages=turns(
            THOUGHT, CALL, results=({"type": "text", "text": "and?"}, {**RESULT, "is_error": True})
        )
    )
    assert [(m.role, m.is_error) for m in request.messages[2:]] == [("tool", True), ("user", False)]


def test_a_last_assistant_message_is_continued():
    assert parse(messages=[USER, {"role": "assistant", "content": "Once"}]).messages[-1].partial


def test_missing_reasoning_can_be_warned_of_or_allowed():
    tree = {**BASE, "messages": turns(CALL)}
    warned = parse_messages_request(tree, passback="warn").request
    assert warned.warnings == ("reasoning_content is missing in assistant tool call message at index 1",)
    assert parse_messages_request(tree, passback="allow").request.warnings == ()


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{**USER, "name": "x"}]}, "messages[0].name"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": turns(CALL)}, "messages[1].content"),
        ({"messages": turns(THOUGHT, CALL, results=())}, "messages[1].content"),
        ({"messages": turns(THOUGHT, CALL, CALL)}, "messages[1].content"),
        (
            {"messages": turns(THOUGHT, CALL, results=(RESULT, {**RESULT, "tool_use_id": "b"}))},
            "messages[2].content[1].tool_use_id",
        ),
        ({"messages": turns({"type": "redacted_thinking", "data": "x"})}, "messages[1].content[0].type"),
        ({"messages": turns({**CALL, "input": "x"})}, "messages[1].content[0].input"),
        ({"messages": turns({**CALL, "raw_input": "{}"})}, "messages[1].content[0].raw_input"),
        ({"messages": turns({**CALL, "mood": 1})}, "messages[1].content[0].mood"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages[0].content[0].type"),
        ({"system": 5}, "system"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"),
        ({"tools": [{**TOOL, "name": "9"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "input_schema": {"type": "string"}}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name"),
        ({"stop_sequences": ["x"] * 6}, "stop_sequences"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management"),
        ({"temprature": 1}, "temprature"),
    ],
)
def test_faults_are_named_by_path(extra, param):
    error = refused(**extra)
    assert (error.param, error.status) == (param, 400)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("temperature", 0.7, "invalid temperature: only 1 is allowed for this model"),
        ("top_p", 1, "invalid top_p: only 0.95 is allowed for this model"),
    ],
)
def test_strict_kimi_fixes_sampling(name, value, text):
    with pytest.raises(RequestError) as caught:
        parse_messages_request({**BASE, name: value}, strict_kimi=True)
    assert caught.value.message == text
    parse_messages_request({**BASE, "temperature": 1.0, "top_p": 0.95}, strict_kimi=True)


@given(JSON, st.sampled_from([field.name for field in MESSAGES]))
def test_any_json_is_parsed_or_refused(tree, field):
    blocks = [{"role": "user", "content": tree}, {"role": "assistant", "content": [tree]}]
    for candidate in (tree, {**BASE, field: tree}, {**BASE, "messages": blocks}):
        with contextlib.suppress(RequestError):
            parse_messages_request(candidate)


@pytest.mark.parametrize(
    "message",
    [
        Message(role="user", content="x", name="ann"),
        Message(role="system", tools=({"type": "function", "function": {"name": "f"}},)),
    ],
)
def test_what_has_no_place_is_not_written(message):
    with pytest.raises(RequestError, match="Anthropic format"):
        write_messages([Message(role="user", content="x"), message])
