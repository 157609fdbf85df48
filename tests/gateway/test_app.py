"""The front over a real socket: shapes of everything that is not a good answer."""

import json
import logging

import httpx
import pytest

from gateway.live import live
from gossamer.gateway.app import create_app
from gossamer.gateway.echo import EchoUpstream

MAX_BODY_BYTES = 2000
CHAT = "/v1/chat/completions"
GOOD = {"model": "echo", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def client():
    app = create_app({"echo": EchoUpstream(), "org/echo": EchoUpstream()}, max_body_bytes=MAX_BODY_BYTES)
    with live(app) as url, httpx.Client(base_url=url, timeout=30) as http:
        yield http


def check_error(response, status, code, param=None):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    return error["message"]


def test_models(client):
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["echo", "org/echo"]
    assert client.get("/v1/models/org/echo").json() == listed["data"][1]
    check_error(client.get("/v1/models/none"), 404, "model_not_found", "model")


def test_healthz(client):
    health = client.get("/healthz").json()
    assert health["status"] == "ok"
    assert health["pid"] > 0


def test_whole_and_streamed_answers(client):
    whole = client.post(CHAT, json=GOOD)
    assert whole.json()["choices"][0]["message"]["content"] == "You said: hi"
    assert whole.json()["id"] == f"chatcmpl-{whole.headers['x-request-id']}"
    streamed = client.post(CHAT, json={**GOOD, "stream": True})
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_unknown_model(client):
    message = check_error(client.post(CHAT, json={**GOOD, "model": "gpt"}), 404, "model_not_found", "model")
    assert message == "The model 'gpt' is not served here; served: echo, org/echo"


def test_bad_bodies(client):
    headers = {"content-type": "application/json"}
    check_error(client.post(CHAT, content=b"{", headers=headers), 400, "invalid_json")
    check_error(client.post(CHAT, content=b"[]", headers=headers), 400, "invalid_value")
    check_error(client.post(CHAT, json={**GOOD, "messages": [{}]}), 400, "invalid_value", "messages[0].role")


def test_bodies_that_are_too_large(client):
    headers = {"content-type": "application/json"}
    check_error(
        client.post(CHAT, content=b" " * (MAX_BODY_BYTES + 1), headers=headers), 413, "request_too_large"
    )
    # Without a declared length the count decides.
    pieces = (b" " * 500 for _ in range(6))
    check_error(client.post(CHAT, content=pieces, headers=headers), 413, "request_too_large")
    padded = json.dumps(GOOD).encode().ljust(MAX_BODY_BYTES)
    assert client.post(CHAT, content=padded, headers=headers).status_code == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_taken(client, kind):
    headers = {} if kind is None else {"content-type": kind}
    response = client.post(CHAT, content=json.dumps(GOOD).encode(), headers=headers)
    check_error(response, 415, "unsupported_media_type")


def test_compressed_bodies_are_refused(client):
    headers = {"content-type": "application/json; charset=utf-8", "content-encoding": "gzip"}
    check_error(client.post(CHAT, content=b"x", headers=headers), 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", CHAT, "POST"),
        ("DELETE", CHAT, "POST"),
        ("POST", "/v1/models", "GET"),
        ("PUT", "/healthz", "GET"),
    ],
)
def test_wrong_methods(client, method, path, allow):
    response = client.request(method, path)
    check_error(response, 405, "method_not_allowed")
    assert allow in response.headers["allow"]


def test_unknown_paths(client):
    check_error(client.get("/v1/completions"), 404, "not_found")


def test_refusals_are_logged_without_their_text(client, caplog):
    body = {**GOOD, "messages": [{"role": "user", "content": "canary-5521", "canary-5521": 1}]}
    with caplog.at_level(logging.DEBUG):
        assert client.post(CHAT, json=body).status_code == 400
    (record,) = [r.record for r in caplog.records if r.name == "gossamer.requests"]
    assert (record.wire_format, record.status, record.error_code) == ("openai.chat", 400, "invalid_value")
    assert "canary" not in caplog.text + repr(record)


def test_a_path_is_not_logged(client, caplog):
    with caplog.at_level(logging.DEBUG, logger="gossamer"), caplog.at_level(logging.DEBUG, logger="uvicorn"):
        check_error(client.get("/v1/models/x%0Dforged"), 404, "model_not_found", "model")
    own = [r.getMessage() for r in caplog.records if r.name.startswith(("gossamer", "uvicorn"))]
    assert not any("forged" in line for line in own)
