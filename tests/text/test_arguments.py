"""Argument assembly: the fragments are one JSON object, whatever arrives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.text.arguments import TYPES, ArgumentWriter, declared_types

from .strategies import hostile

kinds = st.sampled_from([*TYPES, "string", "string", None, "", "integer"])
values = st.tuples(st.none() | hostile, kinds, st.lists(hostile, max_size=3))


def write(writer, key, kind, texts):
    return [writer.open_argument(key, kind), *(writer.text(text) for text in texts)]


@given(arguments=st.lists(values, max_size=5), truncated=st.booleans())
def test_any_typed_values_make_one_json_object(arguments, truncated):
    writer, fragments, keys = ArgumentWriter({}), [], []
    for key, kind, texts in arguments:
        fragments += [writer.close_value(), *write(writer, key, kind, texts)]
        keys += [] if key is None else [key]
    fragments.append(writer.close(truncated=truncated))
    found = [key for key, _ in json.loads("".join(fragments), object_pairs_hook=list)]
    assert found == keys or (truncated and found == keys[:-1])


@given(texts=st.lists(hostile, max_size=5))
def test_a_string_is_escaped_as_it_arrives(texts):
    writer = ArgumentWriter({})
    head = writer.open_argument("k", "string")
    body = [writer.text(text) for text in texts]
    assert [json.loads(f'"{piece}"') for piece in body] == texts
    assert json.loads(head + "".join(body) + writer.close()) == {"k": "".join(texts)}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "1", "1"),
        ("number", "1", 1),
        ("number", " 1.0 ", 1.0),
        ("number", "one", "one"),
        ("number", "NaN", "NaN"),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("object", "{oops", "{oops"),
        ("boolean", "True", "True"),
        ("null", "null", None),
        ("array", "", ""),
        (None, "[1]", [1]),
        (None, "word", "word"),
        ("integer", "3", 3),
    ],
)
def test_values_are_json_or_else_text(kind, text, value):
    writer = ArgumentWriter({})
    found = json.loads("".join(write(writer, "k", kind, [text])) + writer.close())
    assert found == {"k": value}
    assert type(found["k"]) is type(value)


def test_a_missing_type_is_looked_up_in_the_schema():
    writer = ArgumentWriter({"zip": "string", "n": "integer"})
    text = "".join([*write(writer, "zip", None, ["01234"]), writer.close_value()])
    text += "".join([*write(writer, "n", None, ["7"]), writer.close()])
    assert json.loads(text) == {"zip": "01234", "n": 7}


def test_a_raw_block_passes_as_it_is():
    writer = ArgumentWriter({})
    assert writer.open_raw() + writer.text('{"a":') + writer.text(" 1}") + writer.close() == '{"a": 1}'
    blank = ArgumentWriter({})
    assert blank.open_raw() + blank.text("\n ") + blank.close() == "{}"
    spaced = ArgumentWriter({})
    assert spaced.open_raw() + spaced.text("\n ") + spaced.text("{") + spaced.close() == "\n {"


def test_the_first_kind_of_arguments_counts():
    typed = ArgumentWriter({})
    text = "".join([*write(typed, "a", "number", ["1"]), typed.close_value()])
    text += typed.open_raw() + typed.text('{"b": 2}') + typed.close()
    assert text == '{"a": 1}'
    raw = ArgumentWriter({})
    text = raw.open_raw() + raw.text('{"b": 2}') + raw.close_value()
    text += "".join([*write(raw, "a", "number", ["1"]), raw.close()])
    assert text == '{"b": 2}'


def test_truncated_values_keep_what_is_there():
    string, number, nothing = ArgumentWriter({}), ArgumentWriter({}), ArgumentWriter({})
    assert "".join(write(string, "k", "string", ["ab"])) + string.close(truncated=True) == '{"k": "ab"}'
    assert "".join(write(number, "k", "array", ["[1, "])) + number.close(truncated=True) == '{"k": "[1, "}'
    assert "".join(write(nothing, "k", "array", [])) + nothing.close(truncated=True) == "{}"


def test_declared_types_take_only_plain_types():
    tools = [
        {
            "function": {
                "name": "f",
                "parameters": {"properties": {"a": {"type": "string"}, "b": {}, "c": True}},
            }
        },
        {"function": {"name": "g"}},
        {"type": "builtin"},
        {"function": {"name": "h", "parameters": {"properties": {"a": {"type": ["string", "null"]}}}}},
    ]
    assert declared_types(tools) == {"f": {"a": "string"}, "h": {}}
    assert declared_types(None) == {}
