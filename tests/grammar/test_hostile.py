"""Schemas that want to cost more than they may: refused, or worked through in bounded time."""

import json
import random
import time

import jsonschema
import pytest

from gossamer.grammar.build import Builder
from gossamer.grammar.errors import SchemaError
from gossamer.grammar.guide import Guide
from grammar.walks import BYTES, MASKS, walk

LIMIT_S = 20.0
"""Of CPU time, for compiling and a text of 300 tokens; what it takes is a tenth or less."""


def nested(depth, make):
    schema = {"type": "null"}
    for _ in range(depth):
        schema = make(schema)
    return schema


def product(count, width):
    """Alternatives that multiply: width ** count combinations."""
    return {"allOf": [{"anyOf": [{"minLength": 10 * i + k} for k in range(width)]} for i in range(count)]}


REFUSED = {
    "levels": nested(5000, lambda s: {"items": s}),
    "alternatives": nested(60, lambda s: {"anyOf": [s, s]}),
    "values": {"enum": list(range(300_000))},
    "enum text": {"enum": ["x" * 40_000, "y" * 40_000]},
    "text": {"description": "x" * 10_000_000},
    "products": product(10, 4),
    "references": {
        "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"minLength": i}]} for i in range(300)}
        | {"d300": {}},
        "allOf": [{"$ref": "#/$defs/d0"}, {"$ref": "#/$defs/d1"}],
    },
    "items": {"type": "array", "minItems": 10**9},
    "length": {"type": "string", "maxLength": 10**12},
    "digits": {"type": "number", "minimum": 1e300, "maximum": 1e301, "multipleOf": 3},
    "intersection": {"type": "string", "pattern": "a.{40}b.{40}c", "minLength": 200, "maxLength": 5000},
    "two patterns": {"type": "string", "allOf": [{"pattern": "(a.{9}){3}$"}, {"pattern": "^(.{7}b)*$"}]},
    "tiny digits": {"type": "number", "exclusiveMinimum": 1e-300, "maximum": 1e300},
    "counted properties": {"properties": {f"p{i}": {} for i in range(900)}, "maxProperties": 400},
    "name": {"properties": {"x" * 5000: {}}},
    "groups": {"pattern": "(" * 200 + ")" * 200},
    "repeats": {"pattern": "((a{1,50}){1,50}){1,50}"},
}
ACCEPTED = {
    "backtracking": {"type": "string", "pattern": "^(a+)+$"},
    "ambiguous": {"type": "string", "pattern": "^(a|a|aa)*b$"},
    "stars": {"type": "string", "pattern": ".*.*.*.*=.*.*.*.*"},
    "window": {"type": "string", "pattern": "a.{500}$"},
    "windows": {"type": "string", "pattern": "^(.*a){12}$"},
    # Not larger: the validator, which backtracks, would never end.
    "optional": {"type": "string", "pattern": "^(a?){12}a{12}$"},
    "long": {"type": "string", "maxLength": 1_000_000},
    "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 10_000},
    "properties": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)}},
    "branches": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"a": {"const": i}, "b": {"type": "string"}},
                "required": ["a", "b"],
            }
            for i in range(250)
        ]
    },
    "enum": {"enum": [f"value number {i}" for i in range(3000)]},
    "recursion": {
        "$defs": {"t": {"properties": {k: {"$ref": "#/$defs/t"} for k in "abcdefgh"}, "required": []}},
        "$ref": "#/$defs/t",
    },
    "anything": {},
}


def compiled(schema):
    builder = Builder(schema, BYTES)
    return Guide(builder.json(builder.root), MASKS)


@pytest.mark.parametrize("name", REFUSED)
def test_too_much_is_refused_soon(name):
    begin = time.process_time()
    with pytest.raises(SchemaError) as caught:
        compiled(REFUSED[name])
    assert len(str(caught.value)) < 500
    assert time.process_time() - begin < LIMIT_S


@pytest.mark.parametrize("name", ACCEPTED)
def test_hard_schemas_are_worked_through(name):
    begin = time.process_time()
    guide, rng = compiled(ACCEPTED[name]), random.Random(0)
    ready = time.process_time()
    text = walk(guide, BYTES, guide.start.cost + 300, rng, stop=0.05)
    jsonschema.validate(json.loads(text), ACCEPTED[name])
    took = time.process_time() - begin
    print(f"{name}: ready after {ready - begin:.3f} s, {len(text.encode())} bytes after {took:.3f} s")
    assert took < LIMIT_S


def test_chains_of_rules_are_measured():
    """The measure that keeps llguidance's own walk within its stack is never too small."""
    flat = compiled({"type": "object", "properties": {f"p{i}": {"const": i} for i in range(1000)}})
    assert flat.grammar._longest_chain() < 30
    with pytest.raises(SchemaError, match="nests more than 400 rules"):
        compiled({"prefixItems": [{"const": i} for i in range(450)]})
    chain = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(150)}
    deep = {"$defs": {**chain, "d150": {"const": 1}}, "$ref": "#/$defs/d0"}
    assert 300 <= compiled(deep).grammar._longest_chain() <= 400
