import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol.errors import RequestError
from gossamer.protocol.messages import parse_message

TEXT = st.text(max_size=10)
CALLS = st.lists(
    st.builds(
        lambda name, arguments: {"name": name, "arguments": arguments}, st.text(min_size=1, max_size=5), TEXT
    ),
    max_size=3,
).map(lambda fs: [{"id": f"c{i}", "type": "function", "function": f} for i, f in enumerate(fs)])
PARTS = st.lists(
    TEXT.map(lambda t: {"type": "text", "text": t})
    | st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA", "detail": "low"}}),
    max_size=3,
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXT | PARTS}, optional={"name": TEXT}),
    st.fixed_dictionaries({"role": st.just("system"), "content": TEXT}),
    st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": st.text(min_size=1)}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXT, "reasoning_content": TEXT}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "reasoning_content": TEXT, "tool_calls": CALLS.filter(bool)}
    ),
)


def read(tree):
    return parse_message(tree, 3, set())


def refused(tree) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read(tree)
    return caught.value


@given(MESSAGES)
def test_what_is_parsed_is_written_back_whole(tree):
    assert read(tree).to_dict() == tree


def test_reasoning_has_two_names_and_one_value():
    assert read({"role": "assistant", "content": "x", "reasoning": "r"}).reasoning == "r"
    both = {"role": "assistant", "content": "x", "reasoning": "r", "reasoning_content": "r"}
    assert read(both).reasoning == "r"
    assert refused({**both, "reasoning": "other"}).param == "messages[3].reasoning"


def test_developer_is_system():
    assert read({"role": "developer", "content": "x"}).role == "system"


def test_empty_echoes_of_a_response_are_accepted():
    echo = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "audio": None,
        "annotations": [],
        "function_call": None,
        "tool_calls": None,
    }
    assert read(echo).text == "x"
    assert refused({**echo, "refusal": "no"}).param == "messages[3].refusal"


def test_text_joins_parts():
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": "data:x"},
        {"type": "text", "text": "b"},
    ]
    message = read({"role": "user", "content": parts})
    assert message.text == "ab"
    assert [part.kind for part in message.content] == ["text", "image_url", "text"]


def test_dynamic_tools_stand_alone_in_a_system_message():
    tool = {"type": "function", "function": {"name": "f"}}
    assert read({"role": "system", "tools": [tool]}).tools == (tool,)
    assert read({"role": "system", "content": "", "tools": [tool]}).tools == (tool,)
    assert refused({"role": "system", "content": "x", "tools": [tool]}).param == "messages[3].content"
    assert refused({"role": "user", "content": "x", "tools": [tool]}).param == "messages[3].tools"
    assert refused({"role": "system", "tools": []}).param == "messages[3].tools"


@pytest.mark.parametrize(
    ("tree", "param"),
    [
        ("hi", "messages[3]"),
        ({}, "messages[3].role"),
        ({"role": "function"}, "messages[3].role"),
        ({"role": ["user"]}, "messages[3].role"),
        ({"role": "user"}, "messages[3].content"),
        ({"role": "user", "content": 5}, "messages[3].content"),
        ({"role": "user", "content": "x", "name": 5}, "messages[3].name"),
        ({"role": "user", "content": "x", "reasoning_content": "r"}, "messages[3].reasoning_content"),
        ({"role": "user", "content": ["x"]}, "messages[3].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[3].content[0].text"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[3].content[0].type"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
            "messages[3].content[0].image_url",
        ),
        ({"role": "system"}, "messages[3].content"),
        ({"role": "tool", "content": "x"}, "messages[3].tool_call_id"),
        ({"role": "tool", "tool_call_id": "a"}, "messages[3].content"),
        ({"role": "assistant"}, "messages[3].content"),
        ({"role": "assistant", "content": "x", "partial": "yes"}, "messages[3].partial"),
        ({"role": "assistant", "tool_calls": {}}, "messages[3].tool_calls"),
        ({"role": "assistant", "tool_calls": ["x"]}, "messages[3].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{"type": "x"}]}, "messages[3].tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "messages[3].tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ""}}]},
            "messages[3].tool_calls[0].id",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": ""}}]},
            "messages[3].tool_calls[0].function.name",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {}}}]},
            "messages[3].tool_calls[0].function.arguments",
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": ""}}] * 2,
            },
            "messages[3].tool_calls",
        ),
    ],
)
def test_faults_are_named_by_path(tree, param):
    assert refused(tree).param == param


@pytest.mark.parametrize(
    "call",
    [
        {"id": "a", "type": "shell", "function": {"name": "f", "arguments": {"command": "ls"}}},
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "a", "type": "function", "name": "f", "arguments": "{}"},
    ],
)
def test_other_shapes_of_a_call_are_shown_the_right_one(call):
    error = refused({"role": "assistant", "reasoning_content": "", "tool_calls": [call]})
    shown = json.loads(error.message.partition("the form is ")[2])
    tree = {"role": "assistant", "reasoning_content": "", "tool_calls": [shown]}
    assert read(tree).to_dict() == tree
