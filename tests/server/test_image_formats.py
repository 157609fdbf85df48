"""One picture over every wire format: the same prompt, the same rows, refusals in the format's own shape."""

import base64

import numpy as np
import pytest
from starlette.testclient import TestClient

from gossamer.gateway.app import create_app
from server.scripted import ScriptedEngine, speech
from server.test_images import PAD, SAID, TOKENIZER, picture, rows_of, upstream_of, url

DATA = picture()
BLOCK = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(DATA).decode()},
}
PLAIN = {"model": "m", "stream": False}


def asking(block, key="messages"):
    return {key: [{"role": "user", "content": [block]}]}


def shown(path, body):
    """What the engine was given."""
    engine = ScriptedEngine(speech(TOKENIZER, SAID))
    with TestClient(create_app({"m": upstream_of(engine)})) as client:
        answer = client.post(path, json={**PLAIN, **body})
    assert answer.status_code == 200, answer.text
    return engine


def test_all_formats_show_the_model_the_same():
    question = "what is it?"
    chat = [{"type": "image_url", "image_url": {"url": url(DATA)}}, {"type": "text", "text": question}]
    items = [{"type": "input_image", "image_url": url(DATA)}, {"type": "input_text", "text": question}]
    engines = [
        shown("/v1/chat/completions", {"messages": [{"role": "user", "content": chat}]}),
        shown("/v1/responses", {"input": [{"role": "user", "content": items}], "store": False}),
        *(
            shown(
                f"{root}/messages",
                {
                    "max_tokens": 50,
                    "messages": [{"role": "user", "content": [BLOCK, {"type": "text", "text": question}]}],
                },
            )
            for root in ("/v1", "/anthropic/v1")
        ),
    ]
    for engine in engines:
        assert engine.prompt.count(PAD) == 6
        assert engine.prompt == engines[0].prompt
        np.testing.assert_array_equal(engine.embeddings[0].rows, rows_of(DATA))


def test_an_anthropic_tool_result_shows_its_picture():
    messages = [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "c0", "name": "shot", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c0", "content": [BLOCK]}]},
    ]
    tools = [{"name": "shot", "input_schema": {"type": "object"}}]
    engine = shown("/v1/messages", {"max_tokens": 50, "messages": messages, "tools": tools})
    assert engine.prompt.count(PAD) == 6
    text = TOKENIZER.decode(engine.prompt)
    assert text.index('tool="shot"') < text.index("image 17x9")


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        (
            "/v1/messages",
            {"max_tokens": 9, **asking({**BLOCK, "source": {**BLOCK["source"], "data": "AAAA"}})},
            "known format",
        ),
        (
            "/v1/messages",
            {"max_tokens": 9, **asking({"type": "image", "source": {"type": "url", "url": "https://a.b/c"}})},
            "https URL",
        ),
        (
            "/v1/responses",
            {"store": False, **asking({"type": "input_image", "image_url": "file:///x"}, key="input")},
            "file URL",
        ),
    ],
)
def test_refusals_name_the_fault(path, body, names):
    with TestClient(create_app({"m": upstream_of(ScriptedEngine([]))})) as client:
        answer = client.post(path, json={**PLAIN, **body})
    assert answer.status_code == 400
    assert names in answer.text
    assert "invalid_request_error" in answer.text


def test_tokens_of_a_picture_are_counted():
    def counted(content):
        body = {"model": "m", "messages": [{"role": "user", "content": content}]}
        with TestClient(create_app({"m": upstream_of(ScriptedEngine([]))})) as client:
            return client.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]

    # Six places, three control tokens, and "image 17x9", a token a byte here.
    assert counted([BLOCK, {"type": "text", "text": "x"}]) - counted("x") == 6 + 3 + len("image 17x9")
