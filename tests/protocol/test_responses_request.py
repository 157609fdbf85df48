import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol.errors import RequestError
from gossamer.protocol.messages import Message
from gossamer.protocol.responses_items import parse_input, write_input
from gossamer.protocol.responses_request import RESPONSES, parse_responses_request
from protocol.test_request import JSON

BASE = {"model": "m", "input": "x"}
CALL = {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{ }"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "ok"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "on it"}]}
USER = {"role": "user", "content": "x"}


def test_items_of_one_turn_are_one_message():
    message = parse_input([USER, THOUGHT, SAID, CALL, {**CALL, "call_id": "b"}, OUTPUT])[1]
    assert (message.reasoning, message.text) == ("hm", "on it")
    assert [call.arguments for call in message.tool_calls] == ["{ }", "{ }"]


def test_a_text_between_a_call_and_its_result_belongs_to_the_call():
    roles = [(m.role, m.text) for m in parse_input([USER, THOUGHT, CALL, SAID, OUTPUT])]
    assert roles == [("user", "x"), ("assistant", "on it"), ("tool", "ok")]


def test_two_answers_in_a_row_stay_two():
    assert [m.text for m in parse_input([USER, THOUGHT, SAID, THOUGHT, SAID])] == ["x", "on it", "on it"]
    assert [m.text for m in parse_input([USER, SAID, SAID])] == ["x", "on it", "on it"]


def test_content_that_contradicts_its_seal_is_refused():
    (item,) = write_input([Message(role="assistant", reasoning="hm")])
    assert parse_input([item, THOUGHT | {"content": []}, USER])[0].reasoning == "hm"
    with pytest.raises(RequestError, match="differs from encrypted_content"):
        parse_input([{**THOUGHT, "content": [{"type": "reasoning_text", "text": "other"}], **_sealed(item)}])


def _sealed(item):
    return {"encrypted_content": item["encrypted_content"]}


def test_free_text_comes_back_as_it_was():
    item = {"type": "custom_tool_call", "call_id": "a", "name": "patch", "input": 'a "b" ä\n'}
    output = {"type": "custom_tool_call_output", "call_id": "a", "output": "ok"}
    messages = parse_input([USER, THOUGHT, item, output])
    assert messages[1].tool_calls[0].arguments == '{"input": "a \\"b\\" ä\\n"}'
    assert write_input(messages)[2:] == [item, output]


@given(
    JSON, st.sampled_from([field.name for field in RESPONSES]), st.sampled_from([THOUGHT, SAID, CALL, OUTPUT])
)
def test_any_json_is_parsed_or_refused(tree, field, item):
    changed = [{**item, key: tree} for key in item]
    for candidate in (tree, {**BASE, field: tree}, *({**BASE, "input": [USER, one]} for one in changed)):
        with contextlib.suppress(RequestError):
            parse_responses_request(candidate)


@pytest.mark.parametrize("field", ["name", "is_error", "partial"])
def test_what_has_no_place_is_not_written(field):
    role = {"name": "user", "is_error": "tool", "partial": "assistant"}[field]
    with pytest.raises(RequestError, match=rf"messages\[0\].{field} has no place"):
        write_input([Message(role=role, content="x", tool_call_id="a", **{field: True})])
