"""Schemas of every supported kind, up to four levels deep, and values that they allow."""

from hypothesis import strategies as st

NAMES = st.sampled_from(
    ["id", "name", "type", "größe", "名前", "a b", 'qu"ote', "back\\slash", "tab\t", "emoji😀", "", "x" * 40]
) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PATTERNS = st.sampled_from(
    [
        "^[a-z]+$",
        "^\\d{3}-\\d{4}$",
        "[A-Z]{2}",
        "^(?:foo|bar)+$",
        "^#[0-9a-f]{6}$",
        "^\\w+@\\w+\\.com$",
        "^.{2,5}$",
        "é+|汉$",
        "^[^\\s]*$",
        "a.c",
        '^"[^"]*"$',
        "^v\\d+\\.\\d+(?:-[a-z]+)?$",
    ]
)
FORMATS = st.sampled_from(
    ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTEGERS = st.integers(-1000, 1000) | st.integers(-(10**30), 10**30)
DECIMALS = st.integers(-(10**6), 10**6).map(lambda n: n / 1000)
SCALARS = st.none() | st.booleans() | INTEGERS | DECIMALS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3), max_leaves=4
)
# About one schema in forty has one of these: they are refused by name.
REFUSED = st.sampled_from(
    [
        {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "format": "iri"},
        {"type": "integer", "multipleOf": 7},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"if": {"type": "string"}, "then": {"minLength": 1}},
    ]
)


@st.composite
def strings(draw):
    schema = {"type": "string"}
    match draw(st.integers(0, 5)):
        case 0:
            schema["pattern"] = draw(PATTERNS)
        case 1:
            schema["format"] = draw(FORMATS)
        case 2:
            low = draw(st.integers(0, 6))
            schema["minLength"] = low
            if draw(st.booleans()):
                schema["maxLength"] = low + draw(st.integers(0, 10))
        case 3:
            schema["pattern"] = draw(st.sampled_from(["^[a-z]+$", "[A-Z]{2}", "^.{2,5}$", "é+|汉$"]))
            schema["minLength"] = draw(st.integers(0, 5))
    return schema


@st.composite
def numbers(draw):
    schema = {"type": draw(st.sampled_from(["integer", "number"]))}
    bounds = st.integers(-1000, 1000) if schema["type"] == "integer" else st.integers(-1000, 1000) | DECIMALS
    shape = draw(st.integers(0, 5))
    if shape in (1, 2, 5):
        low = draw(bounds)
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
        if shape == 2:
            schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = (
                low + 2 + draw(st.integers(0, 5000))
            )
    elif shape == 3:
        schema["maximum"] = draw(bounds)
    if shape in (4, 5):
        schema["multipleOf"] = draw(st.sampled_from([2, 5, 10, 25, 100]))
        if schema["type"] == "number" and draw(st.booleans()):
            schema["multipleOf"] = draw(st.sampled_from([0.5, 0.25]))
    return schema


def enums():
    listed = st.lists(VALUES, min_size=1, max_size=5).map(lambda vs: {"enum": vs})
    return listed | VALUES.map(lambda v: {"const": v})


@st.composite
def arrays(draw, inner):
    schema = {"type": "array"}
    if draw(st.integers(0, 4)):
        schema["items"] = draw(inner)
    if draw(st.integers(0, 4)) == 0:
        schema["prefixItems"] = draw(st.lists(inner, min_size=1, max_size=3))
    low = draw(st.integers(0, 3))
    if draw(st.booleans()):
        schema["minItems"] = low
    if draw(st.booleans()):
        schema["maxItems"] = low + draw(st.integers(0, 3))
    return schema


@st.composite
def objects(draw, inner):
    properties = draw(st.dictionaries(NAMES, inner, max_size=4))
    schema = {"type": "object", "properties": properties}
    if properties and draw(st.integers(0, 3)):
        schema["required"] = draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    match draw(st.integers(0, 5)):
        case 0 | 1:
            schema["additionalProperties"] = False
        case 2:
            schema["additionalProperties"] = draw(inner)
        case 3:
            schema["maxProperties"] = max(1, len(schema.get("required", ())))
    return schema


@st.composite
def branches(draw, inner):
    if draw(st.integers(0, 3)):
        return {"anyOf": draw(st.lists(inner, min_size=1, max_size=3))}
    if draw(st.booleans()):
        return {"allOf": [draw(strings()), {"maxLength": draw(st.integers(40, 60))}]}
    variants = draw(st.lists(inner, min_size=2, max_size=3))
    return {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": i}, "v": v}, "required": ["kind", "v"]}
            for i, v in enumerate(variants)
        ]
    }


def below(depth):
    leaves = (
        strings()
        | strings()
        | numbers()
        | enums()
        | st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}, {}])
    )
    if depth == 0:
        return leaves
    inner = st.deferred(lambda: below(depth - 1))
    return leaves | arrays(inner) | objects(inner) | branches(inner)


@st.composite
def schemas(draw):
    """A schema: usually an object, with shared and recursive definitions in some."""
    inner = below(3)
    top = draw(objects(inner) | objects(inner) | objects(inner) | arrays(inner) | branches(inner) | below(0))
    if draw(st.integers(0, 2)) == 0:
        node = {
            "type": "object",
            "properties": {
                "value": draw(below(1)),
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                "shared": {"$ref": "#/$defs/shared~1thing"},
            },
            "required": ["next"],
            "additionalProperties": False,
        }
        top = {
            "$defs": {"node": node, "shared/thing": draw(below(1))},
            "type": "object",
            "properties": {"head": {"$ref": "#/$defs/node"}, "body": top},
            "required": draw(st.sampled_from([["head"], ["body"], ["head", "body"]])),
        }
        if "oneOf" in top["properties"]["body"]:
            # Inside of this schema, references of its own would point elsewhere.
            top["properties"].pop("body")
            top["required"] = ["head"]
    # Hypothesis likes the ends of a range: one in forty is somewhere in the middle.
    if draw(st.integers(0, 39)) == 17:
        top = {"type": "object", "properties": {"odd": draw(REFUSED), "top": draw(strings())}}
    return top
