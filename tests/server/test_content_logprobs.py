"""Log-probabilities and stop strings over content whose characters and stops span several tokens.

The byte vocabulary makes every character beyond ASCII, and every stop string, several tokens long.
"""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.engine.api import TokenEvent
from gossamer.gateway.upstream import Context
from gossamer.protocol.events import ContentDelta
from gossamer.protocol.openai import ChunkWriter, Envelope, ResponseWriter, accumulate
from gossamer.protocol.request import parse
from gossamer.server.engine_upstream import EngineUpstream
from gossamer.server.logprobs import ContentLogprobs
from gossamer.text.tokenizer import Tokenizer
from server.scripted import ScriptedEngine, speech
from server.test_stop_strings import shown_by_definition

TOKENIZER = Tokenizer.bytes_only()
THINK = "hm{close}think{sep}{open}response{sep}"
END = "{close}response{sep}{close}message{sep}{end}"
# Characters of one to four bytes, few enough for stop strings to come up by chance.
TEXT = st.text("aé한🙂", max_size=12)
STOPS = st.lists(st.text("aé한🙂", min_size=1, max_size=3), max_size=3)


def send(token_ids, **extra):
    """Events, and the response made of them."""
    tree = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **extra}
    engine = ScriptedEngine(token_ids)
    upstream = EngineUpstream(engine=engine, tokenizer=TOKENIZER, vocab_size=TOKENIZER.vocab_size)

    async def collect():
        return [event async for event in upstream.send(parse(tree), Context(request_id="t"))]

    events = asyncio.run(collect())
    writer = ResponseWriter(Envelope(id="i", model="m", created=0))
    for event in events:
        writer.write(event)
    return events, writer.response()["choices"][0], engine


@given(TEXT, STOPS)
@example("aé한🙂a", ["한🙂"])
@example("🙂🙂🙂", ["🙂🙂"])
def test_stops_of_several_tokens_and_bytes(text, stops):
    events, choice, engine = send(speech(TOKENIZER, THINK + text + END), stop=stops)
    expected = shown_by_definition(text, stops)
    assert choice["message"]["content"] == expected
    assert "".join(e.text for e in events if isinstance(e, ContentDelta)) == expected
    assert choice["finish_reason"] == "stop"
    hits = [n for n in range(len(text) + 1) if any(s in text[:n] for s in stops)]
    if hits:
        # The engine was stopped at the last byte of the stop string that was completed first.
        assert engine.num_spoken == len(speech(TOKENIZER, THINK + text[: hits[0]]))


def test_a_stop_may_begin_inside_one_token_and_end_in_another():
    """With merges a token can hold the end of the text and the beginning of a stop."""
    ranks = {bytes((byte,)): byte for byte in range(256)} | {b"on": 256, b"e st": 257, b"op": 258}
    specials = {name: 259 + i for i, name in enumerate(TOKENIZER.specials)}
    merged = Tokenizer(ranks, specials=specials, digits=1)
    scripted = [
        *speech(merged, THINK),
        *(256, 257, 258),
        *speech(merged, "!" + END),
    ]
    upstream = EngineUpstream(engine=ScriptedEngine(scripted), tokenizer=merged, vocab_size=merged.vocab_size)
    tree = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stop": "stop", "logprobs": True}

    async def collect():
        return [event async for event in upstream.send(parse(tree), Context(request_id="t"))]

    deltas = [event for event in asyncio.run(collect()) if isinstance(event, ContentDelta)]
    assert [delta.text for delta in deltas] == ["on", "e "]
    # The token whose end was swallowed is still the one that said "e ".
    assert [[t.raw for t in delta.logprobs] for delta in deltas] == [[b"on"], [b"e st"]]


@given(TEXT, STOPS, st.integers(0, 3))
def test_entries_are_the_tokens_of_what_is_shown(text, stops, count):
    ids = speech(TOKENIZER, THINK + text + END)
    events, choice, _ = send(ids, stop=stops, logprobs=True, top_logprobs=count)
    shown = choice["message"]["content"].encode()
    entries = [] if choice["logprobs"] is None else choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries) == shown
    first = len(speech(TOKENIZER, THINK))
    assert [entry["logprob"] for entry in entries] == [-1.0 - first - i for i in range(len(shown))]
    for entry in entries:
        assert entry["token"] == bytes(entry["bytes"]).decode("utf-8", "replace")
        assert [top["logprob"] for top in entry["top_logprobs"]] == [
            entry["logprob"] - i for i in range(count)
        ]
    # Each delta brings the entries of its own text: the stream needs no look back.
    for event in events:
        if isinstance(event, ContentDelta):
            assert b"".join(token.raw for token in event.logprobs) == event.text.encode()


@given(TEXT)
def test_streams_carry_the_same_entries(text):
    events, choice, _ = send(speech(TOKENIZER, THINK + text + END), logprobs=True, top_logprobs=1)
    writer = ChunkWriter(Envelope(id="i", model="m", created=0), include_usage=False)
    chunks = [chunk for event in events for chunk in writer.write(event)]
    assert accumulate(chunks)["choices"][0]["logprobs"] == choice["logprobs"]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_half_a_character_at_the_cut_has_no_entry(cut):
    ids = speech(TOKENIZER, THINK + "a")
    tail = list("🙂".encode())[:cut]
    choice = send([*ids, *tail], logprobs=True)[1]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("a", "length")
    assert [entry["bytes"] for entry in choice["logprobs"]["content"]] == [[97]]


def test_broken_bytes_inside_the_text_keep_their_entry():
    ids = [*speech(TOKENIZER, THINK), 0xF0, *speech(TOKENIZER, "a" + END)]
    choice = send(ids, logprobs=True)[1]
    assert choice["message"]["content"] == "�a"
    assert [entry["bytes"] for entry in choice["logprobs"]["content"]] == [[0xF0], [97]]


def test_the_token_that_closes_half_a_character_has_no_entry():
    ids = [*speech(TOKENIZER, THINK + "a"), 0xF0, *speech(TOKENIZER, END)]
    choice = send(ids, logprobs=True)[1]
    assert choice["message"]["content"] == "a�"
    assert [entry["bytes"] for entry in choice["logprobs"]["content"]] == [[97], [0xF0]]


def test_no_entries_unless_asked_for_nor_for_reasoning():
    ids = speech(TOKENIZER, THINK + "x" + END)
    assert send(ids)[1]["logprobs"] is None
    assert len(send(ids, logprobs=True)[1]["logprobs"]["content"]) == 1
    assert send(speech(TOKENIZER, "only thought"), logprobs=True)[1]["logprobs"] is None


def test_a_control_token_among_the_alternatives_has_a_name_and_no_bytes():
    last = TOKENIZER.num_ranks - 1
    logprobs = ContentLogprobs(TOKENIZER)
    top = ((last, -1.0), (TOKENIZER.special("<|close|>"), -2.0))
    logprobs.add(TokenEvent(token_id=65, index=0, logprob=-3.0, top_logprobs=top), begins_at=0)
    assert logprobs.take(0) == ()
    (entry,) = logprobs.take(1)
    assert (entry.text, entry.raw, entry.logprob) == ("A", b"A", -3.0)
    assert [(t.text, t.raw) for t in entry.top] == [("�", b"\xff"), ("<|close|>", None)]
    assert logprobs.take(9) == ()


def test_an_engine_that_gave_no_logprob_is_a_fault():
    with pytest.raises(ValueError, match="token 4 has no log-probability"):
        ContentLogprobs(TOKENIZER).add(TokenEvent(token_id=65, index=4), begins_at=0)
