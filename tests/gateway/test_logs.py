"""No word of a conversation and no key reaches the log, at any level, however things go wrong."""

import io
import json
import logging
import sys
from pathlib import Path

import httpx
import hypothesis.strategies as st
import pytest
from hypothesis import given

from gateway.child import SIGNALS, child
from gossamer.gateway.keys import new_key, write_keys
from gossamer.gateway.logs import LEVELS, LogError, SafeFormatter, configure
from gossamer.records.envelope import decode
from gossamer.records.request_log import RequestLog

SERVER = str(Path(__file__).with_name("canary_server.py"))
WAYS = (
    "raise",
    "chain",
    "api",
    "thread",
    "task",
    "callback",
    "unraisable",
    "warning",
    "foreign",
    "misfit",
)
CHAT = "/v1/chat/completions"


def conversation(way, stream):
    call = {
        "id": "a:0",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city": "canary"}'},
    }
    schema = {"type": "object", "description": "canary", "properties": {"canary": {"type": "string"}}}
    return {
        "model": "leaky",
        "stream": stream,
        "user": "canary",
        "metadata": {"canary": "canary"},
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}],
        "messages": [
            {"role": "system", "content": "canary"},
            {"role": "user", "content": "canary"},
            {"role": "assistant", "content": "canary", "reasoning_content": "canary", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a:0", "content": "canary"},
            {"role": "user", "content": f"{way} canary"},
        ],
    }


def misuse(http):
    """Requests that are wrong in as many places as a client can reach."""
    wrong = {"model": "canary", "canary": 1, "messages": [{"role": "canary", "content": "canary"}]}
    http.post(CHAT, json=wrong)
    http.post(CHAT, json={**wrong, "messages": []})
    http.post(CHAT, content=b'{"canary": canary', headers={"content-type": "application/json"})
    http.post(CHAT, content=b"canary", headers={"content-type": "canary/canary"})
    http.post(
        CHAT + "?canary=canary", json={"model": "canary", "messages": [{"role": "user", "content": "canary"}]}
    )
    http.get("/canary?canary=canary")
    http.get("/v1/models/canary")
    http.get("/crash?canary")
    http.get("/broken?canary")
    http.get("/healthz", headers={"canary": "canary", "host": "canary", "x-request-id": "canary"})
    http.get("/v1/models", headers={"authorization": "Bearer gsk-canary"})
    http.get("/v1/models", headers={"authorization": "canary canary"})
    http.put(CHAT, headers={"x-stainless-retry-count": "canary"})


def talk(url, secret):
    """What one server is asked; returns how many requests reached the model."""
    with httpx.Client(base_url=url, timeout=60, headers={"authorization": f"Bearer {secret}"}) as http:
        for way in WAYS:
            for stream in (False, True):
                answer = http.post(CHAT, json=conversation(way, stream))
                assert (answer.status_code == 200) == stream
        echo = {**conversation("say", True), "model": "echo", "tool_choice": "required"}
        assert '"name":"get_weather"' in http.post(CHAT, json=echo).text
        misuse(http)
        with http.stream("POST", CHAT, json={**conversation("raise", True), "model": "echo"}) as answer:
            next(answer.iter_bytes())


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("level", LEVELS)
def test_canaries(level, style, tmp_path):
    secret, entry = new_key("ann")
    write_keys(tmp_path / "keys.json", [entry])
    with child(sys.executable, SERVER, level, style, str(tmp_path / "keys.json")) as server:
        talk(server.url, secret)
        server.signal(SIGNALS[1])
        code = server.wait()
    said = server.said
    # The last error ends the process, as an error of ours would; even that is told without its text.
    assert code == (1 if level == "error" else 0)
    assert said.isascii()
    lines = [line for line in said.splitlines() if "canary" in line.replace("canary_server", "")]
    assert not lines, lines[:3]
    assert secret.split("-", 2)[2] not in said
    assert "gsk-" not in said
    # It is quiet because nothing leaks, not because nothing is logged.
    assert "KeyError" in said
    assert "canary_server.py" in said
    if level in ("debug", "info"):
        assert "get_weather" in said
        assert "upstream_failed" in said


def test_every_line_is_json_where_that_was_asked_for(tmp_path):
    secret, entry = new_key("ann")
    write_keys(tmp_path / "keys.json", [entry])
    with child(sys.executable, SERVER, "debug", "json", str(tmp_path / "keys.json")) as server:
        talk(server.url, secret)
        server.signal(SIGNALS[1])
        server.wait()
    lines = [line for line in server.said.splitlines() if not line.startswith(("serving ", "stopped"))]
    records = [decode(line, RequestLog) for line in lines if '"gossamer.request_log/1"' in line]
    others = [json.loads(line) for line in lines if '"gossamer.request_log/1"' not in line]
    assert len(records) > 2 * len(WAYS)
    assert {record.error_code for record in records} >= {"internal_error", "upstream_failed", "invalid_json"}
    assert {record.tenant for record in records} == {entry.id}
    assert any(record.tool_names == ("get_weather",) for record in records)
    assert all(set(o) - {"frames"} == {"time", "level", "logger", "event"} for o in others)
    assert any(o.get("frames") for o in others)


class Fatal(Exception):
    def __str__(self):
        raise ValueError("no text")


@given(st.text(min_size=4), st.sampled_from(["a", "uvicorn.error", "asyncio"]), st.booleans())
def test_texts_of_other_packages_are_left_out(text, name, is_argument):
    error = Fatal(text)
    args = (text,) if is_argument else ()
    record = logging.LogRecord(
        name, 10, "/x/place.py", 7, "%s" if is_argument else text, args, (Fatal, error, None)
    )
    record.created = record.msecs = 0.0
    line = SafeFormatter("json").format(record)
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "DEBUG",
        "logger": name,
        "event": "place:7",
        "frames": ["Fatal"],
    }


def test_causes_are_followed_once():
    first, second = ValueError("a"), KeyError("b")
    first.__cause__, second.__cause__ = second, first
    record = logging.LogRecord("gossamer.x", 40, "p", 1, "failed", (), (ValueError, first, None))
    assert SafeFormatter("text").format(record).splitlines()[1:] == ["  ValueError", "  KeyError"]


@pytest.mark.parametrize(("level", "style"), [("loud", "text"), ("info", "xml")])
def test_unknown_ways_of_logging(level, style):
    with pytest.raises(LogError, match="unknown; use one of"):
        configure(level, style, stream=io.StringIO())
