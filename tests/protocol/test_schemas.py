import contextlib

import pytest
from hypothesis import given

from gossamer.protocol.errors import RequestError
from gossamer.protocol.schemas import check_schema
from protocol.test_request import JSON


@pytest.mark.parametrize(
    ("tree", "param"),
    [
        (5, "p"),
        ({"type": 5}, "p.type"),
        ({"type": [["x"]]}, "p.type"),
        ({"type": []}, "p.type"),
        ({"properties": [1]}, "p.properties"),
        ({"properties": {"a": "string"}}, "p.properties.a"),
        ({"properties": {"a": {"items": {"not": 3}}}}, "p.properties.a.items.not"),
        ({"required": "a"}, "p.required"),
        ({"required": [1]}, "p.required"),
        ({"enum": "a"}, "p.enum"),
        ({"anyOf": {}}, "p.anyOf"),
        ({"anyOf": [{}, None]}, "p.anyOf[1]"),
        ({"$defs": {"n": {"type": True}}}, "p.$defs.n.type"),
        ({"additionalProperties": "no"}, "p.additionalProperties"),
    ],
)
def test_what_no_schema_can_hold_is_named(tree, param):
    with pytest.raises(RequestError) as caught:
        check_schema(tree, "p")
    assert caught.value.param == param


def test_what_schemas_hold_is_let_through():
    check_schema(
        {
            "type": ["object", "null"],
            "properties": {"a": True, "b": {"enum": [1, None]}, "c": {"$ref": "#/$defs/n"}},
            "required": [],
            "additionalProperties": False,
            "$defs": {"n": {"items": [{"type": "string"}], "format": 3, "x-own": [1]}},
            "anyOf": [{"required": ["a"]}, {}],
        },
        "p",
    )
    deep = {}
    for _ in range(5000):
        deep = {"items": deep}
    check_schema(deep, "p")


@given(JSON)
def test_any_json_is_let_through_or_refused(tree):
    with contextlib.suppress(RequestError):
        check_schema(tree, "p")
