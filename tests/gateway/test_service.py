"""What stands before the routes, over a real socket: keys, limits, hosts, ids, counts."""

import asyncio
import threading
import time

import httpx
import pytest

from gateway.live import live
from gateway.scripted import ScriptedUpstream
from gossamer.gateway.app import create_app
from gossamer.gateway.echo import EchoUpstream
from gossamer.gateway.keys import KeyRing, new_key, write_keys
from gossamer.gateway.service import ServiceSettings, host_name, is_loopback
from gossamer.protocol.events import ContentDelta

CHAT = "/v1/chat/completions"
ASK = {"model": "echo", "messages": [{"role": "user", "content": "one two three"}]}


@pytest.fixture
def keys(tmp_path):
    """Secrets by name, and the ring that knows them."""
    limits = {"ann": {}, "one": {"max_concurrent": 1}, "few": {"tokens_per_minute": 60}}
    made = {name: new_key(name, **limit) for name, limit in limits.items()}
    write_keys(tmp_path / "keys.json", [entry for _, entry in made.values()])
    return {name: secret for name, (secret, _) in made.items()}, KeyRing(tmp_path / "keys.json")


@pytest.fixture
def client(keys):
    upstreams = {"echo": EchoUpstream(), "hang": ScriptedUpstream([ContentDelta("a"), ScriptedUpstream.HANG])}
    app = create_app(upstreams, settings=ServiceSettings(keys=keys[1]))
    with live(app) as url, httpx.Client(base_url=url, timeout=30) as http:
        http.app = app
        yield http


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def test_who_brings_a_key_is_served(client, keys):
    secrets, _ = keys
    assert client.post(CHAT, json=ASK, headers=bearer(secrets["ann"])).status_code == 200
    assert client.post(CHAT, json=ASK, headers={"x-api-key": secrets["ann"]}).status_code == 200
    assert client.get("/v1/models", headers=bearer(secrets["ann"])).status_code == 200


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/models/echo", "/none", "/metrics"])
@pytest.mark.parametrize("headers", [{}, bearer("gsk-x"), {"authorization": "Basic eDp5"}])
def test_who_brings_none_learns_nothing(client, path, headers):
    response = client.request("POST" if path == CHAT else "GET", path, json=ASK, headers=headers)
    assert response.status_code == 401
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_authentication_error", "invalid_api_key")
    assert "echo" not in response.text
    assert "gsk-x" not in response.text


def test_an_anthropic_client_is_told_in_its_own_words(client):
    response = client.post("/v1/messages", json={})
    assert response.status_code == 401
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "authentication_error")
    assert body["request_id"] == response.headers["request-id"] == response.headers["x-request-id"]


def test_health_needs_no_key(client):
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").json() == {"status": "ready"}


def test_a_key_has_as_many_requests_as_it_may(client, keys):
    headers = bearer(keys[0]["one"])
    with client.stream(
        "POST", CHAT, json={**ASK, "model": "hang", "stream": True}, headers=headers
    ) as stream:
        pieces = stream.iter_bytes()  # kept: httpx leaves once nobody holds it
        next(pieces)
        refused = client.post(CHAT, json=ASK, headers=headers)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_reached_error"
        # Others are not concerned, and asking what is served takes nothing.
        assert client.post(CHAT, json=ASK, headers=bearer(keys[0]["ann"])).status_code == 200
        assert client.get("/v1/models", headers=headers).status_code == 200
    deadline = time.monotonic() + 10
    while (status := client.post(CHAT, json=ASK, headers=headers).status_code) == 429:
        assert time.monotonic() < deadline, "a client that left still holds its place"
        time.sleep(0.01)
    assert status == 200


def test_a_key_has_its_tokens_per_minute(client, keys):
    headers = bearer(keys[0]["few"])
    long = {**ASK, "messages": [{"role": "user", "content": "word " * 60}]}
    used = client.post(CHAT, json=long, headers=headers).json()["usage"]["total_tokens"]
    refused = client.post(CHAT, json=ASK, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "token_limit_exceeded")
    wait = int(refused.headers["retry-after"])
    assert used - 60 - 2 <= wait <= used - 60 + 2


def test_every_answer_has_an_id_of_its_own(client, keys):
    headers = {**bearer(keys[0]["ann"]), "x-request-id": "chosen"}
    responses = [client.post(CHAT, json=ASK, headers=headers), client.get("/none", headers=headers)]
    responses += [client.get("/healthz"), client.post(CHAT, content=b"{", headers=headers)]
    ids = [response.headers.get_list("x-request-id") for response in responses]
    assert all(len(values) == 1 and len(values[0]) == 32 for values in ids)
    assert len({values[0] for values in ids}) == len(ids)


def test_what_is_counted(client, keys):
    headers = bearer(keys[0]["ann"])
    client.post(CHAT, json=ASK, headers={**headers, "x-stainless-retry-count": "2"})
    client.post(CHAT, json={**ASK, "model": "none"}, headers={**headers, "x-stainless-retry-count": "0"})
    client.get("/v1/models/made-up/by/a/client", headers=headers)
    client.get("/made/up", headers=headers)
    client.request("PROPFIND", "/v1/models", headers=headers)
    client.get("/v1/models")
    counts = client.app.state.counts
    assert counts.responses == {
        (CHAT, "POST", 200): 1,
        (CHAT, "POST", 404): 1,
        ("/v1/models/{name:path}", "GET", 404): 1,
        ("other", "GET", 404): 1,
        ("/v1/models", "other", 405): 1,
        ("/v1/models", "GET", 401): 1,
    }
    assert counts.errors == {
        "model_not_found": 2,
        "not_found": 1,
        "method_not_allowed": 1,
        "invalid_api_key": 1,
    }
    assert counts.client_retries == 1
    assert counts.in_flight == 0


def test_a_body_that_stops_coming_is_not_waited_for():
    def body():
        yield b'{"model"'
        time.sleep(1.5)
        yield b"}"

    app = create_app({"echo": EchoUpstream()}, settings=ServiceSettings(body_idle_s=0.2))
    with live(app) as url:
        response = httpx.post(
            url + CHAT, content=body(), headers={"content-type": "application/json"}, timeout=30
        )
    assert (response.status_code, response.json()["error"]["code"]) == (408, "body_timeout")


def test_a_page_that_was_pointed_here_is_refused():
    settings = ServiceSettings(allowed_hosts=frozenset({"localhost", "127.0.0.1", "::1"}))
    with (
        live(create_app({"echo": EchoUpstream()}, settings=settings)) as url,
        httpx.Client(base_url=url) as http,
    ):
        for host in ("localhost:1", "LOCALHOST", "127.0.0.1:8080", "[::1]:80"):
            assert http.get("/v1/models", headers={"host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""):
            response = http.get("/v1/models", headers={"host": host})
            assert (response.status_code, response.json()["error"]["code"]) == (421, "host_not_allowed")


def test_pages_of_the_web_read_nothing_unless_named():
    preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with live(create_app({"echo": EchoUpstream()})) as url:
        assert httpx.options(url + CHAT, headers=preflight).status_code == 405
        answer = httpx.post(url + CHAT, json=ASK, headers={"origin": "https://a.example"})
        assert not any(name.startswith("access-control") for name in answer.headers)
    app = create_app({"echo": EchoUpstream()}, settings=ServiceSettings(allow_origins=("https://a.example",)))
    with live(app) as url:
        assert httpx.options(url + CHAT, headers=preflight).headers["access-control-allow-origin"] == (
            "https://a.example"
        )
        other = httpx.options(url + CHAT, headers={**preflight, "origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


def test_not_ready():
    ready = [False]
    app = create_app({"echo": EchoUpstream()}, ready=lambda: ready[0])
    with live(app) as url:
        refused = httpx.get(f"{url}/readyz")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
        assert httpx.get(f"{url}/healthz").status_code == 200
        ready[0] = True
        assert httpx.get(f"{url}/readyz").status_code == 200
        app.state.draining.set()
        assert httpx.get(f"{url}/readyz").status_code == 503


def test_a_client_that_leaves_ends_the_work_within_100_ms():
    upstream = ScriptedUpstream([ContentDelta("a"), ScriptedUpstream.HANG])
    ended = threading.Event()

    class Watched:
        async def send(self, request, context):
            try:
                async for event in upstream.send(request, context):
                    yield event
            finally:
                ended.set()

    took = []
    with live(create_app({"echo": Watched()})) as url, httpx.Client(base_url=url, timeout=30) as http:
        for _ in range(5):
            with http.stream("POST", CHAT, json={**ASK, "stream": True}) as stream:
                pieces = stream.iter_bytes()
                next(pieces)
                assert not ended.is_set()
                began = time.perf_counter()
            assert ended.wait(10)
            took.append(time.perf_counter() - began)
            ended.clear()
    # A machine at work may be late once; a server that polls would be late each time.
    assert min(took) < 0.1


def test_a_websocket_is_closed():
    async def scenario():
        sent = []

        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            sent.append(message)

        app = create_app({"echo": EchoUpstream()})
        await app({"type": "websocket", "path": "/v1/realtime", "headers": []}, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1003}]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.example:80", "a.example"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("A", "a"), ("", ""), (":80", "")],
)
def test_host_names(header, name):
    assert host_name(header) == name


def test_loopback():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("LocalHost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")
