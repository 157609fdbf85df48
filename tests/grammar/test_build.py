"""What single keywords mean, and what is refused by name."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.grammar import tracker
from gossamer.grammar.automaton import NEVER
from gossamer.grammar.build import Builder
from gossamer.grammar.errors import NoValueError, SchemaError
from gossamer.grammar.guide import GuideError, History
from grammar.schemas import VALUES
from grammar.walks import BYTES, MERGED, MERGED_MASKS, guide, walk


def grammar_of(schema):
    builder = Builder(schema, BYTES)
    return builder.json(builder.root)


def accepts(schema, text):
    place = tracker.start(grammar_of(schema)).step(text.encode())
    return place is not None and place.complete


def texts(schema, count=20, *, budget=400):
    rng, one = random.Random(1), guide(schema)
    return [json.loads(walk(one, BYTES, max(budget, one.start.cost), rng)) for _ in range(count)]


@given(VALUES)
def test_any_value_is_accepted_as_it_is_usually_written(value):
    assert accepts({}, json.dumps(value, ensure_ascii=False))
    assert accepts({}, json.dumps(value, ensure_ascii=False, indent=2))
    assert accepts({}, json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    assert accepts({"const": value}, json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, "123456789012345678901234567890", "1.5"),
        ({"type": "integer"}, "-7", "-0"),
        ({"type": "integer", "minimum": 10**30}, "1" + "0" * 30, "9" * 30),
        ({"type": "number"}, "-1.5e-10", "01"),
        ({"type": "number", "exclusiveMinimum": 0}, "0.001", "0.000"),
        ({"type": "number", "maximum": -0.25}, "-0.25", "-0.2"),
        ({"type": "integer", "multipleOf": 25}, "-175", "30"),
        ({"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 100}, "84", "85"),
        ({"type": "number", "multipleOf": 0.25}, "1.75", "1.7"),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, "3", "3.5"),
        ({"type": "string", "minLength": 2, "maxLength": 2}, '"汉\\n"', '"a"'),
        ({"type": "string", "pattern": '^"\\\\$'}, '"\\"\\\\"', '"\\""'),
        ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, '"abc"', '"abcd"'),
        ({"type": "string", "pattern": "[0-9]", "allOf": [{"pattern": "[a-z]"}]}, '"a-1"', '"a-b"'),
        ({"type": "string", "format": "date"}, '"2020-02-28"', '"2020-02-30"'),
        ({"minLength": 1}, '"a"', "1"),
        ({"type": ["string", "null"]}, "null", "false"),
        ({"enum": [1, "1", None, [1, {"a": "é"}]]}, '[1, {"a": "é"}]', "true"),
        ({"enum": [1, 2, 3], "minimum": 2}, "3", "1"),
        ({"const": True}, "true", "1"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2}, "[null, null]", "[]"),
        ({"type": "array", "maxItems": 0}, "[]", "[1]"),
        ({"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}}, "[1, 2, 3, 3]", "[2]"),
        ({"prefixItems": [{"const": 1}], "items": False}, "[1]", "[1, 2]"),
        ({"type": "object", "properties": {"a": {}, "b": {}}}, '{"a": 1, "b": 2}', '{"b": 1, "a": 2}'),
        ({"properties": {"é\n": {"const": 1}}, "required": ["é\n"]}, '{"é\\n": 1}', "{}"),
        ({"properties": {"a": {}}}, '{"a": 1}', '{"b": 1}'),
        ({"properties": {"a": {}}, "additionalProperties": True}, '{"a": 1, "b": 1}', '{"a": 1, "a": 1}'),
        ({"additionalProperties": {"type": "null"}}, '{"x": null, "y": null}', '{"x": 1}'),
        ({"properties": {"a": {"const": 1}}, "required": ["b"]}, '{"a": 1, "b": [2]}', '{"a": 1}'),
        ({"properties": {"a": False, "b": {}}}, '{"b": 1}', '{"a": 1}'),
        ({"patternProperties": {"^n_": {"type": "number"}}}, '{"n_x": 1}', '{"x": 1}'),
        (
            {"properties": {"n_a": {"minimum": 5}}, "patternProperties": {"^n_": {"type": "number"}}},
            '{"n_a": 5, "n_b": 1}',
            '{"n_a": 1}',
        ),
        ({"type": "object", "propertyNames": {"pattern": "^[a-z]$"}}, '{"a": 1}', '{"ab": 1}'),
        ({"properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2}, '{"a": 1, "c": 1}', '{"b": 1}'),
        ({"properties": {"a": {}, "b": {}, "c": {}}, "maxProperties": 1}, '{"b": 1}', '{"b": 1, "c": 1}'),
        ({"type": "object", "maxProperties": 1}, '{"q": 1}', '{"q": 1, "r": 1}'),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}], "maximum": 5, "maxLength": 1}, '"a"', "6"),
        ({"oneOf": [{"type": "integer", "enum": [1, 2]}, {"enum": [3, "x"]}]}, '"x"', "4"),
        ({"$defs": {"a/b": {"const": 1}}, "$ref": "#/$defs/a~1b"}, "1", "2"),
        ({"$defs": {"a": {"minimum": 3}}, "$ref": "#/$defs/a", "type": "integer", "maximum": 4}, "4", "2"),
        (
            {"properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
            '{"next": {"next": {"next": null}}}',
            '{"next": {}}',
        ),
        (True, "[1]", "[1"),
        ({"title": "T", "description": "d", "default": 1, "x-order": 2, "const": 1}, "1", "2"),
    ],
)
def test_keywords(schema, good, bad):
    assert accepts(schema, good)
    assert not accepts(schema, bad)


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"not": {}}, "#/not"),
        ({"properties": {"a": {"if": {}}}}, "#/properties/a/if"),
        ({"properties": {"a/b": {"dependentRequired": {}}}}, "#/properties/a~1b/dependentRequired"),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems"),
        ({"type": "array", "contains": {}}, "#/contains"),
        ({"items": [{}]}, "#/items"),
        ({"type": "strnig"}, "#/type"),
        ({"type": "string", "format": "iri"}, "#/format"),
        ({"type": "string", "pattern": "(a)\\1"}, "#/pattern"),
        ({"type": "string", "minLength": -1}, "#/minLength"),
        ({"type": "integer", "multipleOf": 7}, "#/multipleOf"),
        ({"type": "integer", "multipleOf": 0}, "#/multipleOf"),
        ({"type": "integer", "minimum": "1"}, "#/minimum"),
        ({"enum": []}, "#/enum"),
        ({"anyOf": []}, "#/anyOf"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf"),
        ({"$ref": "https://example.com/s.json"}, "#/$ref"),
        ({"$ref": "#/$defs/missing"}, "#/$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "#/$defs/a"),
        ({"$ref": "#"}, "#"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "#"),
        ({"minProperties": 1, "type": "object"}, "#/minProperties"),
        ({"patternProperties": {"a": {}, "b": {}}}, "#/patternProperties"),
        ({"propertyNames": {"enum": ["a"]}}, "#/propertyNames"),
        ({"type": "object", "properties": []}, "#/properties"),
        ({"type": "object", "required": "a"}, "#/required"),
        ({"items": 5}, "#/items"),
        ({"unknownKeyword": 1}, "#/unknownKeyword"),
        (False, "#"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "#"),
        ({"type": "string", "pattern": "^a$", "minLength": 2}, "#"),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}, "#"),
        ({"properties": {"a": False}, "required": ["a"]}, "#"),
        ([], "#"),
    ],
)
def test_what_cannot_be_enforced_is_named(schema, where):
    with pytest.raises(SchemaError) as caught:
        grammar_of(schema)
    assert str(caught.value).startswith(where)


def test_impossible_alternatives_are_left_out():
    schema = {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 2}, {"const": "x"}]}
    assert set(texts(schema)) == {"x"}
    with pytest.raises(NoValueError):
        grammar_of({"type": "array", "items": False, "minItems": 1})


def test_costs_count_the_fewest_tokens():
    builder = Builder({"properties": {"name": {"type": "null"}}, "required": ["name"]}, MERGED)
    # {, "name": as " and name and ":, null, }
    assert builder.json(builder.root).cost == 1 + 3 + 1 + 1
    assert grammar_of({"type": "string", "minLength": 5}).cost == 7


@given(st.data())
def test_a_text_in_any_tokens_is_followed_to_the_same_place(data):
    schema = data.draw(
        st.sampled_from([{}, {"type": "object"}, {"type": "array", "items": {"type": "number"}}])
    )
    builder = Builder(schema, MERGED)
    start = tracker.start(builder.json(builder.root))
    value = data.draw(VALUES)
    text = json.dumps(value, ensure_ascii=False).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    whole, place = start.step(text), start
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        place = None if place is None else place.step(text[a:b])
    assert (whole is None) == (place is None)
    if whole is not None:
        assert (place.complete, place.cost) == (whole.complete, whole.cost)


@given(st.sampled_from([{}, {"type": "object"}]), st.integers(0, 2**32))
def test_every_cost_is_what_the_way_it_names_takes(schema, seed):
    """From anywhere in a text, the tokens that a place names lead to its end in as many as it says."""
    rng, one = random.Random(seed), guide(schema, MERGED_MASKS)
    text = walk(one, MERGED, 60, rng).encode()
    place = one.start.step(text[: rng.randrange(len(text) + 1)]) or one.start
    assert place.cost < NEVER
    while place.cost:
        after = place.step(MERGED.tokens[place.next_token()])
        assert after is not None
        assert after.cost <= place.cost - 1
        place = after
    assert place.complete


def test_nesting_does_not_multiply_the_readings_of_an_ambiguous_text():
    twice = {
        "anyOf": [
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}, "b": {}}},
            {"type": "null"},
        ]
    }
    start = tracker.start(
        grammar_of({"$defs": {"x": twice}, "type": "array", "items": {"$ref": "#/$defs/x"}})
    )
    place = start.step(b"[" + b'{"a":' * 60)
    assert len(place._readings) < 20
    assert place.depth > 60
    assert place.step(b"null" + b"}" * 60 + b"]").complete


def test_lists_do_not_nest():
    place = tracker.start(grammar_of({"type": "array"})).step(b"[" + b'{"a":[]},' * 200)
    assert place.depth < 10


def test_masks_are_the_same_after_tokens_were_taken_back():
    one = guide({"type": "object"})
    cursor, text = one.follow(), None
    seen = []
    for length, byte in enumerate(b'{"ab":[1,{"c":"d"}],"x":null}', 1):
        seen.append((text, cursor.mask(text)))
        text = History(byte, text, length)
    aside = History(ord("{"), seen[7][0], 8)
    assert cursor.mask(aside).any()
    for history, mask in reversed(seen):
        assert (cursor.mask(history) == mask).all()
    with pytest.raises(GuideError, match="cannot go on"):
        cursor.mask(History(ord("x"), None, 1))
