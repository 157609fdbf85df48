"""Ports and signals, with the echo upstream: no model has to load."""

import contextlib
import json
import socket
import sys

import openai
import pytest

from gateway.child import ECHO, SIGNALS, child, is_closed, is_free
from gateway.live import live
from gossamer.gateway import process
from gossamer.gateway.app import create_app
from gossamer.gateway.echo import EchoUpstream
from gossamer.gateway.process import ServeError, address, bind, check_exposure, configure_logging

ASK = {"model": "slow", "messages": [{"role": "user", "content": "canary-8812 " * 50}]}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_second_signal_ends_the_stream_with_an_error_and_the_process_with_0(number):
    with child(sys.executable, "-c", ECHO) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as sdk:
            seen = iter(sdk.chat.completions.create(**ASK, stream=True))
            next(seen)
            server.signal(number)
            while not is_closed(server.port):
                next(seen)
            server.signal(number)
            with pytest.raises(openai.APIError, match="shutting down"):
                list(seen)
        assert server.wait() == 0
        assert server.said.endswith("stopped\n")
        assert "error_code=server_shutdown" in server.said
        assert "Traceback" not in server.said
        assert "canary" not in server.said
        assert is_free(server.port)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_streams_finish_and_nobody_else_in(number):
    with child(sys.executable, "-c", ECHO) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as sdk:
            ask = {**ASK, "messages": [{"role": "user", "content": "one two three"}]}
            seen = iter(sdk.chat.completions.create(**ask, stream=True))
            next(seen)
            server.signal(number)
            chunks = list(seen)
            assert chunks[-1].choices[0].finish_reason == "stop"
            with pytest.raises(openai.APIConnectionError):
                sdk.models.list()
        assert server.wait() == 0
        assert "finish_reason=stop" in server.said
        assert "error_code" not in server.said


def test_streams_have_so_long_and_no_longer():
    with child(sys.executable, "-c", ECHO.replace("on_ready=", "drain_s=0.5, on_ready=")) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as sdk:
            seen = iter(sdk.chat.completions.create(**ASK, stream=True))
            next(seen)
            server.signal(SIGNALS[1])
            with pytest.raises(openai.APIError, match="shutting down"):
                list(seen)
        assert server.wait() == 0


def test_a_signal_while_idle_ends_at_once():
    with child(sys.executable, "-c", ECHO) as server:
        server.signal(SIGNALS[0])
        assert server.wait() == 0


def test_a_taken_port_is_one_line_with_the_fix():
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ServeError) as caught:
            bind("127.0.0.1", port)
    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 is taken; stop what listens there or choose another with --port {port + 1}"
    )


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70000), ("203.0.113.1", 0), ("no host", 0)])
def test_addresses_that_cannot_be_used(host, port):
    with pytest.raises(ServeError, match=f"cannot listen on {host} port {port}"):
        bind(host, port)


def test_bind_listens_at_once():
    with bind("127.0.0.1", 0) as sock, socket.create_connection(sock.getsockname(), timeout=5):
        assert address(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}/v1"


def test_an_unknown_log_level_is_refused():
    with pytest.raises(ServeError, match="log level 'loud'"):
        configure_logging("loud")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "2130706433"])
def test_strangers_are_let_in_only_with_keys_or_on_demand(host):
    with pytest.raises(ServeError, match="--allow-public-without-keys"):
        check_exposure(host, has_keys=False, allow_public=False)
    check_exposure(host, has_keys=True, allow_public=False)
    check_exposure(host, has_keys=False, allow_public=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_alone_needs_no_keys(host):
    check_exposure(host, has_keys=False, allow_public=False)


def raw(port, data, *, then_wait=True):
    """What a server says to bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        sock.sendall(data)
        said = b""
        while then_wait and (piece := sock.recv(65536)):
            said += piece
        return said


def get(*lines):
    return (
        b"GET /healthz HTTP/1.1\r\n"
        + b"".join(line + b"\r\n" for line in (*lines, b"connection: close"))
        + b"\r\n"
    )


HOST = b"host: localhost"
HEADS = {
    # The shapes of the raw-socket table in the facts: what frames a request in two ways is refused.
    "both framings": (get(HOST, b"content-length: 1", b"transfer-encoding: chunked"), 400),
    "two lengths": (get(HOST, b"content-length: 1", b"content-length: 2"), 400),
    "equal lengths": (get(HOST, b"content-length: 0", b"content-length: 0"), 400),
    "unknown coding": (get(HOST, b"transfer-encoding: xchunked"), 400),
    "blank before the colon": (get(HOST, b"x : 1"), 400),
    "NUL": (get(HOST, b"x: \0"), 400),
    "bare CR": (get(HOST, b"x: a\rb"), 400),
    "signed length": (get(HOST, b"content-length: +2"), 400),
    "folded": (get(HOST, b"x: a\r\n b"), 400),
    "bare LF": (get(HOST).replace(b"\r\n", b"\n"), 400),
    "no host": (get(), 400),
    "two hosts": (get(HOST, HOST), 400),
    "many headers": (get(HOST, *[b"x: 1"] * 300), 431),
    "64 KiB of header": (get(HOST, b"x: " + b"a" * 65536), 431),
    "no HTTP": (b"hello\r\n\r\n", 400),
    "fine": (get(HOST, b"x: " + b"a" * 30000), 200),
}


@pytest.fixture(scope="module")
def echo_port():
    with child(sys.executable, "-c", ECHO) as server:
        yield server.port


@pytest.mark.parametrize("name", HEADS)
def test_heads(echo_port, name):
    data, status = HEADS[name]
    said = raw(echo_port, data)
    assert said.startswith(f"HTTP/1.1 {status} ".encode())
    body = json.loads(said.partition(b"\r\n\r\n")[2])
    assert body.get("status") == "ok" if status == 200 else body["error"]["code"]


def test_a_head_without_end_is_cut_off(echo_port):
    with socket.create_connection(("127.0.0.1", echo_port), timeout=30) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                sent += sock.send(b"a" * 65536)
        # Some lies in buffers of the system.
        assert sent < 32 << 20


def test_a_head_that_never_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(process, "HEAD_S", 0.2)
    with live(create_app({"echo": EchoUpstream()})) as url:
        port = int(url.rpartition(":")[2])
        assert raw(port, b"GET / HTTP/1.1\r\nhost:").startswith(b"HTTP/1.1 408 ")
        assert raw(port, b"").startswith(b"HTTP/1.1 408 ")
