"""The random debug model behind the front: the official client, the sample request, the serve command."""

import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest

from gateway.child import ENVIRONMENT, GOSSAMER, SIGNALS, child, is_closed, is_free
from gateway.live import live
from gossamer.gateway.app import create_app
from gossamer.gateway.process import bind
from gossamer.records.envelope import decode
from gossamer.records.request_log import RequestLog
from gossamer.server.load import load

SAMPLE = Path(__file__).resolve().parents[2] / "scripts" / "sample_request.py"
USER = {"role": "user", "content": "canary-8812"}
ASK = {"model": "debug", "messages": [USER], "max_tokens": 12, "seed": 3}


def sample(*arguments):
    command = [sys.executable, str(SAMPLE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)


@pytest.fixture(scope="module")
def loaded():
    return load("debug", warn=print)


@pytest.fixture
def engine(loaded):
    return loaded.engine


@pytest.fixture(scope="module")
def url(loaded):
    with live(create_app({"debug": loaded.upstream}, on_close=[loaded.engine.close])) as url:
        yield url


@pytest.fixture
def client(url):
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as sdk:
        yield sdk


def test_whole_and_streamed_answers_are_the_same(client):
    whole = client.chat.completions.create(**ASK)
    assert whole.usage.completion_tokens <= 12
    assert whole.usage.prompt_tokens > 100
    reasoning, content, finish, usage = "", "", None, None
    for chunk in client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
    message = whole.choices[0].message
    assert reasoning == message.reasoning_content
    assert content == (message.content or "")
    assert finish == whole.choices[0].finish_reason
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    # B38: the second one found the prompt of the first, and says so in both places.
    assert usage.prompt_tokens_details.cached_tokens == usage.cached_tokens > 0


def test_a_conversation_that_does_not_fit(client):
    with pytest.raises(openai.BadRequestError, match="exceeded model token limit: 4096") as caught:
        client.chat.completions.create(**{**ASK, "max_tokens": 4096})
    assert caught.value.code == "context_length_exceeded"


def test_leaving_a_stream_frees_the_engine_for_the_next(client):
    stream = client.chat.completions.create(**{**ASK, "max_tokens": 3000}, stream=True)
    next(iter(stream))
    stream.close()
    assert client.chat.completions.create(**ASK).usage.completion_tokens <= 12


def test_leaving_frees_the_sequence_within_100_ms(engine, url):
    ask = {**ASK, "max_tokens": 3000, "stream": True, "ignore_eos": True}
    took = []
    for _ in range(5):
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=ask, timeout=60) as stream:
            pieces = stream.iter_bytes()
            next(pieces)
            assert engine.stats.num_running == 1
            began = time.perf_counter()
        while engine.stats.num_running:
            assert time.perf_counter() - began < 20
            time.sleep(0.001)
        took.append(time.perf_counter() - began)
    # A machine at work may be late once; a server that does not listen would be late each time.
    assert min(took) < 0.1


def test_leaving_while_the_prompt_is_read_frees_the_sequence(engine, url):
    ask = {**ASK, "messages": [{"role": "user", "content": "long " * 700}], "max_tokens": 10}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/v1/chat/completions", json=ask, timeout=httpx.Timeout(30, read=0.01))
    began = time.perf_counter()
    while engine.stats.num_running or engine.stats.num_waiting:
        assert time.perf_counter() - began < 20
        time.sleep(0.001)
    assert engine.metrics.finished["cancelled"] >= 1


def test_the_sample_request_prints_an_answer(url):
    done = sample("--url", url, "--wait", "5", "--max-tokens", "40")
    assert done.returncode == 0, done.stderr
    assert "[reasoning]" in done.stdout
    assert "tool call" in done.stdout
    assert "tokens/s (measured)" in done.stdout


def test_the_sample_request_says_why_it_failed(url):
    assert "HTTP 404" in sample("--url", url, "--model", "other").stderr
    wrong = sample("--url", url, "--server-pid", str(2**22 + 1))
    assert wrong.returncode == 1
    assert "the server ended before it was ready" in wrong.stderr
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
    nobody = sample("--url", f"http://127.0.0.1:{port}")
    assert nobody.returncode == 1
    assert "start one with: gossamer serve" in nobody.stderr


def test_the_command_says_in_one_line_that_the_port_is_taken():
    with bind("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        command = [GOSSAMER, "serve", "debug", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gossamer: port {port} on 127.0.0.1 is taken; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_the_command_serves_until_a_signal(number):
    with child(GOSSAMER, "serve", "debug", "--served-model-name", "org/x", "--port", "0") as process:
        assert "WARNING: model 'debug' has random weights" in process.said
        done = sample("--url", process.url, "--server-pid", str(process.pid), "--max-tokens", "20")
        assert done.returncode == 0, done.stderr
        page = httpx.get(f"{process.url}/metrics").text
        assert 'gossamer:time_to_first_token_seconds_count{model_name="org/x"} 1' in page
        with openai.OpenAI(base_url=f"{process.url}/v1", api_key="none", max_retries=0) as sdk:
            ask = {**ASK, "model": "org/x", "max_tokens": 3500, "extra_body": {"ignore_eos": True}}
            seen = iter(sdk.chat.completions.create(**ask, stream=True))
            next(seen)
            process.signal(number)
            # Two signals at once are one; and until here the answer goes on.
            while not is_closed(process.port):
                next(seen)
            process.signal(number)
            with pytest.raises(openai.APIError, match="shutting down"):
                list(seen)
        assert process.wait() == 0
        assert process.said.endswith("stopped\n")
        assert "Traceback" not in process.said
        assert "canary" not in process.said
        assert is_free(process.port)


def test_the_command_refuses_strangers_without_keys():
    command = [GOSSAMER, "serve", "debug", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "gossamer keys add" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_command_with_keys_and_json_logs(tmp_path):
    file = tmp_path / "keys.json"
    made = subprocess.run(
        [GOSSAMER, "keys", "add", "ann", "--file", str(file)], capture_output=True, text=True
    )
    secret = made.stdout.strip()
    with child(
        GOSSAMER, "serve", "debug", "--port", "0", "--api-keys", str(file), "--log-format", "json"
    ) as process:
        assert httpx.get(f"{process.url}/v1/models").status_code == 401
        ask = {**ASK, "messages": [{"role": "user", "content": "canary-8812"}]}
        headers = {"authorization": f"Bearer {secret}"}
        assert (
            httpx.post(
                f"{process.url}/v1/chat/completions", json=ask, headers=headers, timeout=60
            ).status_code
            == 200
        )
        page = httpx.get(f"{process.url}/metrics", headers=headers).text
        assert 'gossamer:errors_total{model_name="debug",code="invalid_api_key"} 1' in page
        process.signal(SIGNALS[1])
        assert process.wait() == 0
    records = [
        decode(line, RequestLog) for line in process.said.splitlines() if "gossamer.request_log" in line
    ]
    assert [(r.status, r.prompt_tokens > 100, r.completion_tokens) for r in records] == [(200, True, 12)]
    assert secret.split("-", 2)[2] not in process.said
    assert "canary" not in process.said


def test_one_conversation_in_three_formats_is_one_prompt(url):
    """The same words take the same tokens, and the same greedy answer comes in each format."""
    with httpx.Client(base_url=url, timeout=120) as http:
        asked = {"model": "debug", "messages": [USER]}
        greedy = {**asked, "temperature": 0, "max_tokens": 12}
        chat = http.post("/v1/chat/completions", json=greedy).json()
        anthropic = http.post("/v1/messages", json=greedy).json()
        items = {"model": "debug", "input": [USER], "temperature": 0, "max_output_tokens": 12}
        responses = http.post("/v1/responses", json=items).json()
        counted = http.post("/v1/messages/count_tokens", json=asked).json()
        listed = http.post("/v1/tokenize", json=asked).json()
    num_prompt = chat["usage"]["prompt_tokens"]
    assert counted["input_tokens"] == listed["count"] == len(listed["tokens"]) == num_prompt
    usage = anthropic["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == num_prompt
    assert responses["usage"]["input_tokens"] == num_prompt
    reasoning = chat["choices"][0]["message"]["reasoning_content"]
    assert anthropic["content"][0]["thinking"] == reasoning
    assert "".join(part["text"] for part in responses["output"][0]["content"]) == reasoning
    assert (chat["choices"][0]["finish_reason"], anthropic["stop_reason"]) == ("length", "max_tokens")
    assert (responses["status"], responses["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )


def test_a_media_host_that_cannot_be_meant_stops_the_start():
    command = [GOSSAMER, "serve", "debug", "--port", "0", "--allow-media-host", "example.com/pictures"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert "'example.com/pictures' is no media host; write HOST" in done.stderr
    assert "loading" not in done.stderr
