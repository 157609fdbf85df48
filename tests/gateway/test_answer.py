"""The relay driven over bare ASGI, where the test decides when the client leaves."""

import asyncio
import gc
import json
import logging

import pytest

from gateway.scripted import ScriptedUpstream
from gossamer.gateway.answer import Answer
from gossamer.protocol import sse
from gossamer.protocol.anthropic import MessagesWire
from gossamer.protocol.errors import ApiError, RequestError
from gossamer.protocol.events import (
    ContentDelta,
    Finish,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.openai import ChatWire
from gossamer.protocol.request import parse
from gossamer.protocol.responses import ResponsesWire
from gossamer.protocol.wire import Envelope

HANG = ScriptedUpstream.HANG
ENVELOPE = Envelope(id="chatcmpl-r1", model="m", created=0)
USAGE = Usage(prompt_tokens=1, completion_tokens=2)
CANARY = "canary-7391"
WHOLE = [ReasoningDelta(CANARY), ContentDelta(CANARY), USAGE, Finish("stop")]


class Client:
    """The other end of one ASGI exchange."""

    def __init__(self, *, fail_send_after: int | None = None, stall_after: int | None = None):
        self.leave = asyncio.Event()
        self._stall_after = stall_after
        self.sent: list[dict] = []
        self.got_some = asyncio.Event()
        self._fail_after = fail_send_after

    async def receive(self):
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if self._fail_after is not None and len(self.sent) >= self._fail_after:
            raise OSError("connection lost")
        if self._stall_after is not None and len(self.sent) >= self._stall_after:
            await asyncio.Event().wait()
        self.sent.append(message)
        if message.get("body"):
            self.got_some.set()

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def body(self):
        return b"".join(m.get("body", b"") for m in self.sent)

    @property
    def complete(self):
        return self.sent[-1]["type"] == "http.response.body" and not self.sent[-1].get("more_body", False)

    def events(self):
        decoder = sse.Decoder()
        return [e.data if e.data == sse.DONE else json.loads(e.data) for e in decoder.feed(self.body)]


def start(client, upstream, *, stream=True, closing=None, wire=None, **options):
    request = parse({"model": "m", "messages": [{"role": "user", "content": CANARY}], "stream": stream})
    wire = wire or ChatWire(ENVELOPE)
    answer = Answer(request, upstream, wire, request_id="r1", closing=closing or asyncio.Event(), **options)
    return asyncio.create_task(answer({}, client.receive, client.send))


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario(), timeout=30))


def test_a_stream_ends_with_done():
    async def scenario():
        client, upstream = Client(), ScriptedUpstream(WHOLE)
        await start(client, upstream)
        assert client.status == 200
        assert client.complete
        events = client.events()
        assert events[-1] == sse.DONE
        assert events[-2]["choices"][0]["finish_reason"] == "stop"
        assert upstream.closed.is_set()

    run(scenario)


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_before_the_first_event_has_its_own_status(stream):
    async def scenario():
        client = Client()
        await start(
            client,
            ScriptedUpstream([RequestError("too long", code="context_length_exceeded")]),
            stream=stream,
        )
        assert client.status == 400
        assert json.loads(client.body)["error"]["code"] == "context_length_exceeded"
        assert client.complete

    run(scenario)


def test_an_error_mid_stream_is_an_event_and_ends_the_stream():
    async def scenario():
        client = Client()
        await start(client, ScriptedUpstream([ContentDelta("a"), ApiError("broke", code="engine_error")]))
        assert client.status == 200
        assert client.complete
        assert client.events()[-1] == {
            "error": {"message": "broke", "type": "server_error", "param": None, "code": "engine_error"}
        }

    run(scenario)


def test_an_error_after_events_of_a_whole_answer_still_has_a_status():
    async def scenario():
        client = Client()
        await start(
            client, ScriptedUpstream([ContentDelta("a"), ApiError("broke", status=502)]), stream=False
        )
        assert client.status == 502

    run(scenario)


@pytest.mark.parametrize("stream", [True, False])
def test_a_bug_is_told_without_its_text(stream, caplog):
    async def scenario():
        client = Client()
        await start(client, ScriptedUpstream([ContentDelta("a"), KeyError(CANARY)]), stream=stream)
        assert b"internal error; request id r1" in client.body
        assert CANARY.encode() not in client.body
        assert client.complete

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    assert "outcome=KeyError@scripted.py:" in caplog.text
    assert CANARY not in caplog.text


def test_an_upstream_that_stops_without_finishing_is_an_error():
    async def scenario():
        client = Client()
        await start(client, ScriptedUpstream([ContentDelta("a")]))
        assert client.events()[-1]["error"]["code"] == "upstream_incomplete"

    run(scenario)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("script", [[HANG], [ContentDelta("a"), HANG]])
def test_a_client_that_leaves_cancels_the_upstream(stream, script):
    async def scenario():
        client, upstream = Client(), ScriptedUpstream(script)
        task = start(client, upstream, stream=stream)
        if stream and len(script) > 1:
            await client.got_some.wait()
        await asyncio.sleep(0)
        client.leave.set()
        await task
        assert upstream.closed.is_set()
        assert b"error" not in client.body

    run(scenario)


def test_a_send_that_fails_cancels_the_upstream():
    async def scenario():
        client = Client(fail_send_after=2)
        upstream = ScriptedUpstream([ContentDelta("a")] * 50)
        await start(client, upstream)
        assert upstream.closed.is_set()
        assert upstream.num_sent < 5

    run(scenario)


@pytest.mark.parametrize("stall_after", [0, 1, 3])
def test_a_client_that_stops_reading_does_not_hold_the_upstream(stall_after, caplog):
    async def scenario():
        client, upstream = Client(stall_after=stall_after), ScriptedUpstream([ContentDelta("a")] * 50)
        await start(client, upstream, stall_s=0.01)
        assert upstream.closed.is_set()
        assert upstream.num_sent < 5

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    assert "outcome=client_stalled" in caplog.text


def test_a_failure_that_nobody_is_left_to_hear_is_not_logged(caplog):
    async def scenario():
        client = Client()

        class FailsWhenTheClientLeaves:
            async def send(self, request, context):
                yield ContentDelta("a")
                client.leave.set()
                # Both are ready at the relay's next look: the client's leaving and the failure.
                await asyncio.sleep(0)
                raise KeyError(CANARY)

        await start(client, FailsWhenTheClientLeaves())
        gc.collect()

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    assert "outcome=client_gone" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_closes_ends_the_answer_with_an_error(stream):
    async def scenario():
        client, closing = Client(), asyncio.Event()
        upstream = ScriptedUpstream([ContentDelta("a"), HANG])
        task = start(client, upstream, stream=stream, closing=closing)
        if stream:
            await client.got_some.wait()
        await asyncio.sleep(0)
        closing.set()
        await task
        assert upstream.closed.is_set()
        assert client.complete
        last = client.events()[-1] if stream else json.loads(client.body)
        assert last["error"]["code"] == "server_shutdown"
        assert client.status == (200 if stream else 503)

    run(scenario)


def test_cancelling_the_task_closes_the_upstream():
    async def scenario():
        client, upstream = Client(), ScriptedUpstream([ContentDelta("a"), HANG])
        task = start(client, upstream)
        await client.got_some.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert upstream.closed.is_set()

    run(scenario)


def test_the_log_holds_counts_and_no_text(caplog):
    async def scenario():
        await start(Client(), ScriptedUpstream(WHOLE))

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    assert (
        "answer id=r1 model=m stream=True outcome=ok finish=stop prompt_tokens=1 completion_tokens=2"
        in caplog.text
    )
    assert CANARY not in caplog.text


@pytest.mark.parametrize(
    ("wire", "ping"),
    [
        (ChatWire(ENVELOPE), b": keep-alive"),
        (MessagesWire(ENVELOPE, request_id="r1"), b"event: ping"),
        (ResponsesWire(ENVELOPE), b"event: response.in_progress"),
    ],
)
def test_a_silent_stream_is_kept_warm(wire, ping):
    """B46: with what restarts the clocks of each format's clients, before the first event and between two."""

    client = Client()

    async def until(warm):
        async with asyncio.timeout(30):
            while not warm():
                await asyncio.sleep(0.005)

    class Slow:
        async def send(self, request, context):
            await until(lambda: client.body.count(ping) >= 2)
            yield ContentDelta("a")
            await until(lambda: client.body.partition(b'"a"')[2].count(ping) >= 2)
            yield USAGE
            yield Finish("stop")

    async def scenario():
        await start(client, Slow(), wire=wire, ping_s=0.01)
        assert client.complete

    run(scenario)


def test_a_call_that_is_held_back_is_no_silence():
    """The input of an Anthropic call is sent whole; meanwhile the stream is kept warm."""
    pieces = [ToolCallArguments(index=0, text="1")] * 20

    class Slow:
        async def send(self, request, context):
            yield ToolCallBegin(index=0, id="f:0", name="f")
            for piece in pieces:
                await asyncio.sleep(0.004)
                yield piece
            yield ToolCallEnd(index=0)
            yield USAGE
            yield Finish("tool_calls")

    async def scenario():
        client = Client()
        await start(client, Slow(), wire=MessagesWire(ENVELOPE, request_id="r1"), ping_s=0.02)
        assert client.body.count(b"event: ping") >= 2
        assert client.body.count(b"event: message_stop") == 1

    run(scenario)


@pytest.mark.parametrize("stream", [True, False])
def test_a_silent_whole_answer_is_left_alone(stream):
    async def scenario():
        client = Client()
        upstream = ScriptedUpstream([RequestError("no")])
        await start(client, upstream, stream=stream, ping_s=0.001)
        assert client.status == 400

    run(scenario)


def test_warnings_are_told_in_a_header():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]

    async def scenario():
        client = Client()
        request = parse({"model": "m", "messages": messages}, passback="warn")
        answer = Answer(
            request, ScriptedUpstream(WHOLE), ChatWire(ENVELOPE), request_id="r", closing=asyncio.Event()
        )
        await answer({"type": "http", "path": "/"}, client.receive, client.send)
        told = b"reasoning_content is missing in assistant tool call message at index 1"
        assert (b"x-gossamer-warning", told) in client.sent[0]["headers"]

    run(scenario)
