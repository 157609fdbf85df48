"""Every mistake in a conversation is one error that names the message and the key."""

import pytest

from gossamer.text import chat
from gossamer.text.errors import ChatFormatError

WEATHER = {"type": "function", "function": {"name": "weather"}}
NEWS = {"type": "function", "function": {"name": "news"}}
CALLING = {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": "{}"}}]}
SYSTEM_TOOLS = {"role": "system", "tools": [WEATHER]}


def assistant_call(**function):
    return [{"role": "assistant", "tool_calls": [{"id": "x", "function": function}]}]


@pytest.mark.parametrize(
    ("conversation", "settings", "text"),
    [
        ("hi", {}, r"messages: expected a list, got str"),
        (["hi"], {}, r"messages\[0\]: expected an object, got str"),
        ([{"content": "x"}], {}, r"messages\[0\]\.role: expected one of .* got None"),
        ([{"role": "user"}, {"role": "boss"}], {}, r"messages\[1\]\.role: .* got 'boss'"),
        ([{"role": ["user"]}], {}, r"messages\[0\]\.role"),
        (
            [{"role": "user", "content": 3}],
            {},
            r"messages\[0\]\.content: expected text or a list of parts, got int",
        ),
        ([{"role": "user", "content": ["x"]}], {}, r"messages\[0\]\.content\[0\]\.type: .* got None"),
        ([{"role": "user", "content": [{"type": "audio"}]}], {}, r"content\[0\]\.type: .* got 'audio'"),
        ([{"role": "user", "content": [{"type": "text"}]}], {}, r"content\[0\]\.text: expected text"),
        ([{"role": "user", "name": 3}], {}, r"messages\[0\]\.name: expected text, got int"),
        (
            [{"role": "assistant", "reasoning_content": []}],
            {},
            r"messages\[0\]\.reasoning_content: expected text",
        ),
        ([{"role": "tool", "tool_call_id": 1}], {}, r"messages\[0\]\.tool_call_id: expected text, got int"),
        ([{"role": "user", "tools": [NEWS]}], {}, r"messages\[0\]\.tools: only a system message"),
        (
            [SYSTEM_TOOLS | {"content": "x"}],
            {},
            r"messages\[0\]\.content: a message with tools has no content",
        ),
        (
            [SYSTEM_TOOLS, SYSTEM_TOOLS],
            {},
            r"messages\[1\]\.tools\[0\]\.function\.name: 'weather' is declared",
        ),
        ([SYSTEM_TOOLS], {"tools": [WEATHER]}, r"messages\[0\]\.tools\[0\].*already in tools\[0\]"),
        ([], {"tools": [{"name": "x"}]}, r"tools\[0\]\.function: expected an object"),
        ([], {"tools": [{"function": {"name": ""}}]}, r"tools\[0\]\.function\.name: expected a tool name"),
        ([], {"tools": {}}, r"tools: expected a list, got dict"),
        (
            [],
            {"tools": [{"function": {"name": "f", "x": float("nan")}}]},
            r"tools\[0\]: not expressible as JSON",
        ),
        ([{"role": "user", "tool_calls": [1]}], {}, r"messages\[0\]\.tool_calls: only an assistant"),
        (
            [{"role": "assistant", "tool_calls": "f"}],
            {},
            r"messages\[0\]\.tool_calls: expected a list, got str",
        ),
        ([{"role": "assistant", "tool_calls": ["f"]}], {}, r"tool_calls\[0\]\.function: expected an object"),
        (
            assistant_call(arguments="{}"),
            {},
            r"tool_calls\[0\]\.function\.name: expected a tool name, got None",
        ),
        (
            assistant_call(name="f", arguments=3),
            {},
            r"function\.arguments: expected JSON text or an object, got int",
        ),
        (
            assistant_call(name="f", arguments={"a": float("inf")}),
            {},
            r"function\.arguments: not expressible",
        ),
        ([{"role": "user", "partial": True}], {}, r"messages\[0\]\.partial: only an assistant message"),
        ([{"role": "assistant", "partial": 1}], {}, r"messages\[0\]\.partial: expected true or false, got 1"),
        (
            [{"role": "assistant", "partial": True}, {"role": "user"}],
            {},
            r"messages\[0\]\.partial: only the last",
        ),
        ([CALLING | {"partial": True}], {}, r"messages\[0\]\.tool_calls: a partial message is left open"),
        ([], {"reasoning_effort": "huge"}, r"reasoning_effort: expected one of .* got 'huge'"),
        ([], {"tool_choice": "required"}, r"tool_choice: 'required' needs at least one declared tool"),
        ([], {"tool_choice": {"type": "function"}}, r"tool_choice: expected one of"),
        ([], {"response_format": {"type": "xml"}}, r"response_format\.type: .* got 'xml'"),
        ([], {"response_format": "json_object"}, r"response_format\.type: .* got 'json_object'"),
        (
            [],
            {"response_format": {"type": "json_schema"}},
            r"json_schema\.schema: expected an object, got NoneType",
        ),
    ],
)
def test_mistakes_are_named_by_message_and_key(byte_tokenizer, conversation, settings, text):
    with pytest.raises(ChatFormatError, match=text):
        chat.render(conversation, tokenizer=byte_tokenizer, **settings)
