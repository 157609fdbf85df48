"""One streamed chat completion with a tool, printed as it arrives; needs httpx alone.

python scripts/sample_request.py --url http://127.0.0.1:8080
"""

import argparse
import json
import os
import sys
import time

import httpx

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
QUESTION = "What is the weather in Paris?"


class SampleError(Exception):
    """Why there is no answer, in words for the person at the terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="where the server is")
    parser.add_argument("--model", help="model id; default: the first that the server lists")
    parser.add_argument("--prompt", default=QUESTION)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0, help="seconds to wait for the server to be ready")
    parser.add_argument("--server-pid", type=int, help="stop waiting when this process is gone")
    options = parser.parse_args()
    try:
        with httpx.Client(base_url=options.url, timeout=httpx.Timeout(600, connect=5)) as client:
            model = options.model or ready_model(client, options.wait, options.server_pid)
            ask(client, model, options)
    except SampleError as error:
        print(f"sample request failed: {error}", file=sys.stderr)
        return 1
    except httpx.HTTPError as error:
        print(f"sample request failed: {options.url}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def ready_model(client: httpx.Client, wait_s: float, pid: int | None) -> str:
    """The first served model, once the server answers."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            # A starting server already listens; it answers when its model is loaded.
            health = client.get("/healthz", timeout=5).raise_for_status().json()
        except (httpx.TransportError, httpx.HTTPStatusError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if pid in (None, health.get("pid")):
                return health["models"][0]
            problem = "another server answers there"
        if pid is not None and not alive(pid):
            raise SampleError(f"the server ended before it was ready at {client.base_url} ({problem})")
        if time.monotonic() >= deadline:
            raise SampleError(
                f"no server ready at {client.base_url} ({problem}); start one with: gossamer serve"
            )
        time.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def ask(client: httpx.Client, model: str, options: argparse.Namespace) -> None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": options.prompt}],
        "tools": [TOOL],
        "max_tokens": options.max_tokens,
        "seed": options.seed,
        "temperature": 0.6,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    print(f"POST {client.base_url}/v1/chat/completions  model={model}  tools=get_weather", flush=True)
    print(f"user: {options.prompt}", flush=True)
    began = time.monotonic()
    printed = Printed()
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            raise SampleError(f"HTTP {response.status_code}: {response.read().decode(errors='replace')}")
        for line in response.iter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                printed.chunk(json.loads(line.removeprefix("data: ")))
    printed.end(time.monotonic() - began)


class Printed:
    """Prints the chunks of one answer."""

    def __init__(self) -> None:
        self.section = ""
        self.num_calls = 0
        self.finish = None
        self.usage = None

    def chunk(self, chunk: dict) -> None:
        if "error" in chunk:
            print(flush=True)
            raise SampleError(f"the stream broke off: {chunk['error']['message']}")
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self.finish = choice["finish_reason"] or self.finish
            self.delta(choice["delta"])

    def delta(self, delta: dict) -> None:
        self.text("reasoning", delta.get("reasoning_content"))
        self.text("answer", delta.get("content"))
        for call in delta.get("tool_calls") or []:
            if "id" in call:
                self.num_calls += 1
                self.text(f"tool call {call['index']}", f"{call['function']['name']} ")
            self.text(f"tool call {call['index']}", call["function"].get("arguments"))

    def text(self, section: str, text: str | None) -> None:
        if not text:
            return
        if section != self.section:
            print(f"{chr(10) if self.section else ''}[{section}]")
            self.section = section
        # Control characters in a model's output must not steer the terminal.
        print("".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text), end="", flush=True)

    def end(self, duration_s: float) -> None:
        if self.finish is None or self.usage is None:
            raise SampleError("the stream ended without a finish_reason and usage")
        if self.section:
            print()
        if not self.num_calls:
            print("(no tool call in this answer)")
        tokens = self.usage["completion_tokens"]
        print(
            f"finish: {self.finish}; {self.usage['prompt_tokens']} prompt + {tokens} generated tokens "
            f"in {duration_s:.1f} s, {tokens / duration_s:.1f} tokens/s (measured)"
        )


if __name__ == "__main__":
    sys.exit(main())
