"""Laws of every format: nothing is lost between any two, and a stream is its whole answer in pieces."""

import contextlib
import itertools
import json

from anthropic.types import Message as AnthropicMessage
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gossamer.protocol import anthropic, responses, sse
from gossamer.protocol.anthropic_messages import parse_messages, parse_system, write_messages
from gossamer.protocol.completion import Collector
from gossamer.protocol.errors import RequestError
from gossamer.protocol.events import ToolCallBegin
from gossamer.protocol.messages import parse_message
from gossamer.protocol.openai import ChatWire, accumulate
from gossamer.protocol.responses import ResponsesWire
from gossamer.protocol.responses_items import parse_input, seal, unseal, write_input
from gossamer.protocol.wire import Envelope
from protocol.strategies import answers, conversations

ECHO = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
EVENTS = TypeAdapter(ResponseStreamEvent)
ENVELOPE = Envelope(id="x-1", model="m", created=1_700_000_000)


def through_json(tree):
    return json.loads(json.dumps(tree))


def openai_round(messages):
    names = set()
    trees = through_json([message.to_dict() for message in messages])
    return tuple(parse_message(tree, index, names) for index, tree in enumerate(trees))


def anthropic_round(messages):
    body = through_json(write_messages(messages))
    return (*parse_system(body.get("system")), *parse_messages(body["messages"]))


def without_signatures(messages):
    """Anthropic clients need one; an empty one stands for none."""
    return tuple(
        parse_message({**m.to_dict(), "reasoning_signature": None}, i, set()) for i, m in enumerate(messages)
    )


@given(conversations())
def test_openai_gives_back_what_it_was_given(messages):
    assert openai_round(messages) == messages


@given(conversations())
def test_anthropic_gives_back_what_it_was_given(messages):
    """B02, B08, B11, B29, B32: reasoning, repeated ids, argument strings and the order of results."""
    assert without_signatures(anthropic_round(messages)) == messages


@given(conversations())
def test_openai_to_anthropic_and_back(messages):
    there = anthropic_round(openai_round(messages))
    assert without_signatures(openai_round(there)) == messages
    assert anthropic_round(there) == there


def collected(events):
    collector = Collector()
    for event in events:
        collector.write(event)
    return collector.completion()


def streamed(wire, events, cuts=()):
    """The stream's events as a client reads them, whatever the pieces that they come in."""
    data = b"".join([*(wire.write(event) for event in events), wire.end()])
    decoder = sse.Decoder()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    return [event for piece in pieces for event in decoder.feed(piece)]


CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)


@given(answers(), CUTS)
def test_a_chat_stream_is_the_whole_answer(events, cuts):
    """B20, B24: whatever the pieces."""
    sent = streamed(ChatWire(ENVELOPE, include_usage=True), events, cuts)
    assert sent[-1].data == sse.DONE
    chunks = [json.loads(event.data) for event in sent[:-1]]
    assert accumulate(chunks) == through_json(ChatWire(ENVELOPE).whole(collected(events)))


@given(answers(), CUTS)
def test_an_anthropic_stream_is_the_whole_answer(events, cuts):
    """B09, B14, B26, B36: signed once, no thought in the text, a block a call, usage at the end."""
    wire = anthropic.MessagesWire(ENVELOPE, request_id="r")
    sent = streamed(wire, events, cuts)
    bodies = [json.loads(event.data) for event in sent]
    assert [event.event for event in sent] == [body["type"] for body in bodies]
    whole = through_json(wire.whole(collected(events)))
    assert anthropic.accumulate(bodies) == whole
    AnthropicMessage.model_validate(whole, strict=True)
    indexes = [body["index"] for body in bodies if body["type"] == "content_block_start"]
    assert indexes == list(range(len(whole["content"])))


@given(answers(), CUTS, st.booleans())
def test_a_responses_stream_is_the_whole_answer(events, cuts, is_custom):
    """B06: a reasoning item comes before every call; numbers count on."""
    custom = frozenset(
        {event.name for event in events if isinstance(event, ToolCallBegin)} if is_custom else ()
    )
    sent = streamed(ResponsesWire(ENVELOPE, echo=ECHO, custom=custom), events, cuts)
    bodies = [json.loads(event.data) for event in sent]
    assert [event.event for event in sent] == [body["type"] for body in bodies]
    assert [body["sequence_number"] for body in bodies] == list(range(len(bodies)))
    whole = through_json(ResponsesWire(ENVELOPE, echo=ECHO, custom=custom).whole(collected(events)))
    assert responses.accumulate(bodies) == whole
    assert whole["output"][0]["type"] == "reasoning"
    assert [body["type"] for body in bodies[:2]] == ["response.created", "response.in_progress"]
    Response.model_validate(whole)
    for body in bodies:
        EVENTS.validate_python(body)


@given(conversations())
def test_responses_gives_back_what_it_was_given(messages):
    """B31: calls and outputs keep their ids."""
    assert parse_input(through_json(write_input(messages))) == messages


@given(conversations())
def test_a_round_through_every_format(messages):
    there = openai_round(anthropic_round(parse_input(through_json(write_input(messages)))))
    assert without_signatures(there) == messages


@given(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.text(max_size=5), st.data())
def test_sealed_reasoning_opens_or_is_refused(reasoning, signature, data):
    sealed = seal(reasoning, signature)
    assert unseal(sealed, "x") == (reasoning, signature)
    at = data.draw(st.integers(0, len(sealed) - 1))
    broken = sealed[:at] + data.draw(st.sampled_from("AZ.9é")) + sealed[at + 1 :]
    with contextlib.suppress(RequestError):
        assert unseal(broken, "x") == (reasoning, signature)


@given(answers())
def test_an_answer_comes_back_as_it_was_given(events):
    """An answer, appended to its conversation by the client, is the message that the model wrote."""
    completion = collected(events)
    user = {"role": "user", "content": "x"}
    blocks = through_json(anthropic.content_blocks(completion))
    by_blocks = parse_messages([user, {"role": "assistant", "content": blocks}, user])[1]
    by_items = parse_input(through_json(ResponsesWire(ENVELOPE).whole(completion))["output"])[0]
    by_message = parse_message(
        through_json(ChatWire(ENVELOPE).whole(completion))["choices"][0]["message"], 0, set()
    )
    for message in (by_blocks, by_items, by_message):
        assert message.reasoning == completion.reasoning
        assert message.text == completion.content
        assert message.tool_calls == completion.tool_calls
