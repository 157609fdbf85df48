"""Markers: attribute escaping, argument types, strict JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.text import xtml

from .strategies import hostile, json_values

keys = st.sampled_from(["key", "type", "tool", "index", "name"])


@given(value=hostile | st.text())
def test_escaping_round_trips_and_leaves_no_quote(value):
    assert '"' not in xtml.escape(value)
    assert xtml.unescape(xtml.escape(value)) == value


def test_unescaping_never_makes_a_new_escape():
    assert xtml.escape('&quot;"') == "&amp;quot;&quot;"
    assert xtml.unescape("&amp;quot;") == "&quot;"


@given(attributes=st.dictionaries(keys, hostile))
def test_a_written_marker_is_read_back(attributes):
    pieces = xtml.open_tag("call", attributes.items())
    assert [piece.text for piece in pieces if piece.control] == ["<|open|>", "<|sep|>"]
    text = "".join(piece.text for piece in pieces if not piece.control)
    assert xtml.parse_marker(text) == xtml.Marker("call", attributes)


@given(text=hostile | st.text())
def test_any_text_can_stand_in_a_marker(text):
    tag, attributes = xtml.parse_marker(text)
    assert tag == (text.split() or [""])[0]
    assert all(key and value is not None for key, value in attributes.items())


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("1", "string", "1"),
        ("", "string", ""),
        (True, "boolean", "true"),
        (1, "number", "1"),
        (1.5, "number", "1.5"),
        (None, "null", "null"),
        ({"b": 1, "a": "é"}, "object", '{"b": 1, "a": "é"}'),
        ([1, "x"], "array", '[1, "x"]'),
    ],
)
def test_values_have_a_type_and_a_text(value, kind, text):
    assert (xtml.type_of(value), xtml.value_text(value)) == (kind, text)


def test_compact_json_sorts_at_every_level_and_keeps_non_ascii():
    assert xtml.compact_json([{"b": {"d": 1, "c": "é"}, "a": [2, 1]}]) == '[{"a":[2,1],"b":{"c":"é","d":1}}]'


@given(value=json_values)
def test_compact_json_is_json(value):
    assert xtml.loads(xtml.compact_json(value)) == value


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "-Infinity", "1e999", "{", "", "[" * 100_000])
def test_what_is_not_plain_json_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        xtml.loads(text)
