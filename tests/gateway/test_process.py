"""Ports and signals, with the echo upstream: no model has to load."""

import socket
import sys

import openai
import pytest

from gateway.child import ECHO, SIGNALS, child, is_free
from gossamer.gateway.process import ServeError, address, bind, configure_logging

ASK = {"model": "slow", "messages": [{"role": "user", "content": "canary-8812 " * 50}]}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_the_stream_with_an_error_and_the_process_with_0(number):
    with child(sys.executable, "-c", ECHO) as process:
        with openai.OpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0, timeout=60) as sdk:
            seen = iter(sdk.chat.completions.create(**ASK, stream=True))
            next(seen)
            process.signal(number)
            with pytest.raises(openai.APIError, match="shutting down"):
                list(seen)
        assert process.wait() == 0
        assert process.said.endswith("stopped\n")
        assert "outcome=server_shutdown" in process.said
        assert "Traceback" not in process.said
        assert "canary" not in process.said
        assert is_free(process.port)


def test_a_signal_while_idle_ends_at_once():
    with child(sys.executable, "-c", ECHO) as process:
        process.signal(SIGNALS[0])
        assert process.wait() == 0


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
