import pytest

from gossamer.protocol.errors import RequestError
from gossamer.protocol.request import parse
from gossamer.protocol.tools import parse_named_tool, parse_response_format, parse_tool_choice, parse_tools

USER = {"role": "user", "content": "hi"}


def tool(name="f", **function):
    return {"type": "function", "function": {"name": name, **function}}


def refused(work, *arguments) -> RequestError:
    with pytest.raises(RequestError) as caught:
        work(*arguments)
    return caught.value


@pytest.mark.parametrize("name", ["f", "_x", "a-b_9", "a" * 64])
def test_good_names(name):
    names: set[str] = set()
    assert parse_tools([tool(name)], "tools", names) == (tool(name),)
    assert names == {name}


@pytest.mark.parametrize("name", ["", "9f", "a b", "é", "a" * 65, "$web", None, 5, "f\n"])
def test_bad_names(name):
    assert refused(parse_tools, [tool(name)], "tools", set()).param == "tools[0].function.name"


@pytest.mark.parametrize(
    ("tree", "param"),
    [
        ({}, "tools"),
        (["x"], "tools[0]"),
        ([{"function": {"name": "f"}}], "tools[0].type"),
        ([{"type": "builtin_function", "function": {"name": "$web_search"}}], "tools[0].type"),
        ([{"type": "function"}], "tools[0].function"),
        ([tool(description=5)], "tools[0].function.description"),
        ([tool(parameters=[])], "tools[0].function.parameters"),
        ([tool(parameters={"type": "string"})], "tools[0].function.parameters"),
        ([tool(), tool()], "tools[1].function.name"),
        ([tool(f"f{i}") for i in range(129)], "tools"),
    ],
)
def test_bad_declarations(tree, param):
    assert refused(parse_tools, tree, "tools", set()).param == param


def test_names_are_unique_across_dynamic_tools():
    tree = {"model": "m", "tools": [tool()], "messages": [USER, {"role": "system", "tools": [tool()]}]}
    assert refused(parse, tree).param == "messages[1].tools[0].function.name"


def test_tool_choice():
    assert [parse_tool_choice(c, True) for c in (None, "auto", "none", "required")] == [
        "auto",
        "auto",
        "none",
        "required",
    ]
    assert "at least one tool" in refused(parse_tool_choice, "required", False).message
    assert parse_tool_choice({"type": "function", "function": {"name": "f"}}, True) == "required"
    assert refused(parse_tool_choice, "any", True).param == "tool_choice"
    assert refused(parse_tool_choice, ["auto"], True).param == "tool_choice"


def test_required_may_rest_on_dynamic_tools():
    tree = {
        "model": "m",
        "tool_choice": "required",
        "messages": [USER, {"role": "system", "tools": [tool()]}],
    }
    assert parse(tree).tool_choice == "required"


def test_response_format():
    assert parse_response_format(None) is None
    assert parse_response_format({"type": "text"}) is None
    assert parse_response_format({"type": "json_object"}) == {"type": "json_object"}
    spec = {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": False}}
    assert parse_response_format(spec) == spec


@pytest.mark.parametrize(
    ("tree", "param"),
    [
        ("json", "response_format"),
        ({"type": "xml"}, "response_format.type"),
        ({}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, "response_format.json_schema.schema"),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": "yes"}},
            "response_format.json_schema.strict",
        ),
    ],
)
def test_bad_response_formats(tree, param):
    assert refused(parse_response_format, tree).param == param


def test_a_named_tool_must_be_declared():
    named = {"type": "function", "function": {"name": "f"}}
    assert parse_named_tool(named, {"f", "g"}) == "f"
    assert parse_named_tool("required", {"f"}) is None
    assert refused(parse_named_tool, named, {"g"}).param == "tool_choice.function.name"
    for malformed in ({"type": "function"}, {"type": "tool", "name": "f"}, {"function": {"name": 1}}):
        assert '"function": {"name"' in refused(parse_named_tool, malformed, {"f"}).message
