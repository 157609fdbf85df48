"""Answers of a fixed shape from the untrained model: whatever it would rather say, what it says is valid."""

import asyncio
import json
import random

import jsonschema
import numpy as np
import pytest

from gossamer.gateway.upstream import Context
from gossamer.grammar.errors import SchemaError
from gossamer.protocol.errors import RequestError
from gossamer.protocol.openai import Envelope, ResponseWriter
from gossamer.protocol.request import parse
from gossamer.server.constraints import Constraints, is_constrained
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.server.load import Resources, load
from gossamer.text.tokenizer import Tokenizer
from grammar.schemas import below, objects, schemas
from grammar.test_schemas import different, drawn

DRAFT = jsonschema.Draft202012Validator
CONTEXT = 4096
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def tool(name="f", parameters=PERSON, *, strict=True):
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}


def schema_format(schema, **spec):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **spec}}


def body(**extra):
    messages = extra.pop("messages", [{"role": "user", "content": "hi"}])
    return {"model": "debug", "messages": messages, **extra}


def valid(value, schema):
    DRAFT(schema, format_checker=DRAFT.FORMAT_CHECKER).validate(value)


async def ask(upstream, tree):
    writer = ResponseWriter(Envelope(id="i", model="m", created=0))
    async for event in upstream.send(parse(tree), Context(request_id="t")):
        writer.write(event)
    return writer.response()


async def ask_all(trees, *, at_once=8, **resources):
    loaded = load("debug", seed=0, resources=Resources(**resources), warn=lambda text: None)
    gate = asyncio.Semaphore(at_once)

    async def one(tree):
        async with gate:
            try:
                return await ask(loaded.upstream, tree)
            except RequestError as error:
                return error

    try:
        return await asyncio.gather(*map(one, trees)), loaded.engine.metrics.num_preemptions
    finally:
        await loaded.engine.close()


def answers(trees, **options):
    return asyncio.run(ask_all(trees, **options))[0]


def choice(response):
    assert not isinstance(response, Exception), response
    found = response["choices"][0]
    return found["message"], found["finish_reason"], response["usage"]["completion_tokens"]


def least_of(tree):
    """The shortest answer: what is said in the error about a budget of one token."""
    upstream = EngineUpstream(engine=None, tokenizer=Tokenizer.bytes_only(), vocab_size=320)
    request = parse({**tree, "max_tokens": 1})
    with pytest.raises(RequestError) as caught:
        upstream.constraints.mask(request, upstream.render(request), limit=1)
    if caught.value.param != "max_completion_tokens":
        raise caught.value
    return int(str(caught.value).split("takes ")[1].split(";")[0])


def check_schemas(count, seed):
    rng = random.Random(seed)
    asked, refused = [], []
    for schema in different(drawn(schemas(), 2 * count, seed), count):
        tree = body(response_format=schema_format(schema), seed=rng.randrange(1000), temperature=1.5)
        try:
            least = least_of(tree)
        except RequestError as error:
            refused.append(error)
            continue
        for budget in (least, least + rng.randrange(300)):
            if budget < CONTEXT // 2:
                asked.append((schema, {**tree, "max_tokens": budget}))
    assert {error.code for error in refused} <= {"unsupported_schema"}
    assert all(error.param.startswith("response_format.json_schema.schema") for error in refused)
    assert len(refused) <= max(1, 0.05 * count)
    for (schema, tree), response in zip(asked, answers([t for _, t in asked]), strict=True):
        message, finish, num_tokens = choice(response)
        assert finish == "stop"
        assert num_tokens <= tree["max_tokens"]
        valid(json.loads(message["content"]), schema)
    print(f"{len(asked)} answers to {count} schemas, seed {seed}")


def test_every_answer_to_an_accepted_schema_validates(seeded):
    check_schemas(12, seeded)


@pytest.mark.slow
def test_every_answer_to_300_schemas_validates(seeded):
    check_schemas(300, seeded)


def check_tools(count, seed):
    rng = random.Random(seed)
    asked, refused = [], []
    for schema in different(drawn(objects(below(2)), 2 * count, seed), count):
        tree = body(
            tools=[tool("first", schema), tool("second", PERSON)],
            tool_choice={"type": "function", "function": {"name": "first"}},
            seed=rng.randrange(1000),
        )
        try:
            least = least_of(tree)
        except RequestError as error:
            refused.append(error)
            continue
        if least < CONTEXT // 4:
            asked.append((schema, {**tree, "max_tokens": least + rng.choice([0, 1, rng.randrange(500)])}))
    assert all(error.param.startswith("tools[0].function.parameters") for error in refused)
    assert len(asked) >= 0.9 * count
    for (schema, tree), response in zip(asked, answers([t for _, t in asked]), strict=True):
        message, finish, num_tokens = choice(response)
        assert finish == "tool_calls"
        assert num_tokens <= tree["max_tokens"]
        assert message["tool_calls"]
        for call in message["tool_calls"]:
            assert call["function"]["name"] == "first"
            valid(json.loads(call["function"]["arguments"]), schema)


def test_every_call_of_a_strict_tool_validates(seeded):
    check_tools(12, seeded)


@pytest.mark.slow
def test_every_call_of_many_strict_tools_validates(seeded):
    check_tools(150, seeded)


def test_tools_may_be_called_where_they_are_offered():
    tools = [tool("a"), tool("b", {"type": "object", "properties": {}}), tool("c", None, strict=False)]
    trees = [body(tools=tools, max_tokens=500, seed=seed) for seed in range(5)]
    required = [{**tree, "tool_choice": "required"} for tree in trees]
    forms = [{**tree, "response_format": {"type": "json_object"}} for tree in trees]
    single = [{**tree, "parallel_tool_calls": False} for tree in required]
    none = [{**tree, "tool_choice": "none", "response_format": {"type": "json_object"}} for tree in trees]
    found = [choice(r) for r in answers([*trees, *required, *forms, *single, *none])]
    for message, finish, _ in found:
        calls = message.get("tool_calls", [])
        assert finish == ("tool_calls" if calls else "stop")
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            valid(arguments, PERSON if call["function"]["name"] == "a" else {"const": {}})
    counts = [[len(m.get("tool_calls", [])) for m, _, _ in found[i : i + 5]] for i in range(0, 25, 5)]
    assert any(counts[0])
    assert not all(counts[0])
    assert all(counts[1])
    assert max(counts[1]) > 1
    assert set(counts[3]) == {1}
    assert not any(counts[4])
    for message, _, _ in found[10:15] + found[20:]:
        if not message.get("tool_calls"):
            assert isinstance(json.loads(message["content"]), dict)


def test_an_answer_does_not_depend_on_what_shares_the_batch():
    trees = [
        body(
            response_format=schema_format(PERSON),
            max_tokens=300 + 50 * i,
            seed=i,
            logprobs=True,
            top_logprobs=2,
        )
        for i in range(4)
    ]
    trees += [body(tools=[tool()], tool_choice="required", max_tokens=400, seed=i) for i in range(3)]
    alone = answers(trees, at_once=1)
    crowd, _ = asyncio.run(ask_all(trees, at_once=9))
    # Room for two sequences at most: the others are sent back to the queue in the middle of their answers.
    narrow, num_preemptions = asyncio.run(ask_all(trees, at_once=9, cache_bytes=1 << 20))
    assert [r["choices"] for r in alone] == [r["choices"] for r in crowd] == [r["choices"] for r in narrow]
    assert num_preemptions > 0


def test_log_probabilities_cover_the_content():
    tree = body(response_format=schema_format(PERSON), max_tokens=300, seed=3, logprobs=True, top_logprobs=3)
    response = answers([tree])[0]
    entries = response["choices"][0]["logprobs"]["content"]
    assert bytes(b for e in entries for b in e["bytes"]).decode() == choice(response)[0]["content"]
    # Where one token is all that is allowed, it is certain.
    assert entries[0]["token"] == "{"
    assert entries[0]["logprob"] == 0
    assert len(entries[0]["top_logprobs"]) == 1


def test_stop_strings_and_partial_answers():
    form = schema_format(PERSON)
    stopped, continued, impossible = answers(
        [
            body(response_format=form, max_tokens=300, stop=['"age"']),
            body(
                response_format=form,
                max_tokens=100,
                messages=[
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": '{"name": "é', "partial": True},
                ],
            ),
            body(
                response_format=form,
                messages=[
                    {"role": "user", "content": "hi"},
                    {"role": "assistant", "content": "Sure: {", "partial": True},
                ],
            ),
        ]
    )
    assert choice(stopped)[1] == "stop"
    assert '"age"' not in choice(stopped)[0]["content"]
    valid(json.loads('{"name": "é' + choice(continued)[0]["content"]), PERSON)
    assert isinstance(impossible, RequestError)
    assert impossible.param == "messages[1].content"


@pytest.mark.parametrize(
    ("extra", "param", "part"),
    [
        ({"max_tokens": 20}, "max_completion_tokens", "may take 20 tokens"),
        ({"ignore_eos": True}, "ignore_eos", "leave ignore_eos out"),
        ({"min_tokens": 5}, "min_tokens", "leave min_tokens out"),
        ({"max_tokens": 5000}, "messages", "token limit"),
        (
            {"response_format": schema_format({"type": "array", "uniqueItems": True})},
            "response_format.json_schema.schema",
            "#/uniqueItems",
        ),
        (
            {"tools": [tool("f", {"type": "object", "properties": {"a": {"not": {}}}})]},
            "tools[0].function.parameters/properties/a",
            "#/properties/a/not",
        ),
        (
            {"response_format": schema_format({"type": "string", "minLength": 9000})},
            "max_completion_tokens",
            "90",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_before_any_token(extra, param, part):
    (error,) = answers([body(**{"response_format": schema_format(PERSON), **extra})])
    assert isinstance(error, RequestError)
    assert error.status == 400
    assert error.param == param
    assert part in str(error)


def test_a_schema_that_is_not_strict_is_told_only():
    (loose,) = answers([body(response_format=schema_format({"not": {}}, strict=False), max_tokens=200)])
    json.loads(choice(loose)[0]["content"])
    assert not is_constrained(parse(body(tools=[tool(strict=False)])))
    assert not is_constrained(parse(body(tools=[tool()], tool_choice="none")))


def masks_of(tree, limit):
    upstream = EngineUpstream(engine=None, tokenizer=Tokenizer.bytes_only(), vocab_size=320)
    request = parse(tree)
    return upstream.constraints.mask(request, upstream.render(request), limit=limit)


def test_states_are_values(seeded):
    """A token taken back leaves no trace: every state allows the same whenever it is asked."""
    mask = masks_of(body(response_format=schema_format(PERSON), tools=[tool()]), 400)
    rng = np.random.default_rng(seeded)
    state, seen = mask.start(), []
    logits = np.zeros(320, dtype=np.float32)
    while len(seen) < 120:
        allowed = mask.apply(state, logits) > -np.inf
        seen.append((state, allowed))
        options = [int(i) for i in np.flatnonzero(allowed) if mask.allows(state, int(i))]
        if options == [mask._tokens.end]:
            break
        for token in rng.choice(options, size=min(2, len(options)), replace=False):
            after = mask.advance(state, int(token))
            mask.apply(after, logits)
        state = after
    for index in rng.permutation(len(seen)):
        state, allowed = seen[index]
        assert np.array_equal(mask.apply(state, logits) > -np.inf, allowed)


def test_the_same_schema_is_compiled_once(monkeypatch):
    constraints = Constraints(Tokenizer.bytes_only())
    compiled = []
    original = Constraints._guide
    monkeypatch.setattr(Constraints, "_guide", lambda self, s: compiled.append(s) or original(self, s))
    upstream = EngineUpstream(engine=None, tokenizer=Tokenizer.bytes_only(), vocab_size=320)
    request = parse(body(response_format=schema_format(PERSON)))
    for _ in range(3):
        constraints.mask(request, upstream.render(request), limit=400)
    assert compiled == [PERSON]


def test_costs_of_exits_are_those_of_what_they_lead_to():
    """A budget kept by the sum is kept only if the sum is right."""
    mask = masks_of(body(tools=[tool("a"), tool("b", {"type": "object"})], tool_choice="required"), 500)
    rng = np.random.default_rng(0)
    for _ in range(3):
        state, logits = mask.start(), np.zeros(320, dtype=np.float32)
        while state.spot.cost:
            cost = state.spot.cost
            options = np.flatnonzero(mask.apply(state, logits) > -np.inf)
            token = int(rng.choice([t for t in options if mask.allows(state, int(t))]))
            state = mask.advance(state, token)
            # No single token brings the end nearer by more than itself.
            assert state.spot.cost >= cost - 1


def test_errors_name_the_schema():
    with pytest.raises(SchemaError, match="holds for no value"):
        Constraints(Tokenizer.bytes_only())._guide(False)
