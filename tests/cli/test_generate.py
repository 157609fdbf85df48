import io
import json

import pytest

from gossamer.cli import main

DEBUG = ["generate", "debug", "--max-tokens", "8", "--seed", "3"]


def run(capsys, *words, code=0):
    assert main.run(list(words)) == code
    return capsys.readouterr()


def test_text_on_stdout_and_speed_on_stderr(capsys):
    done = run(capsys, *DEBUG, "--prompt", "hi")
    assert done.out.startswith("[reasoning]\n")
    assert "generated tokens/s (measured)" in done.err
    assert "random weights" in done.err


def test_json_repeats_with_its_seed(capsys):
    first, second = (json.loads(run(capsys, *DEBUG, "--prompt", "hi", "--json").out) for _ in range(2))
    assert first.pop("measured")["duration_s"] > 0
    second.pop("measured")
    assert first == second
    assert first["role"] == "assistant"
    assert first["usage"]["completion_tokens"] <= 8


def test_raw_continues_stdin_without_the_chat_format(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("once"))
    tree = json.loads(run(capsys, *DEBUG, "--raw", "--json").out)
    assert tree["usage"]["prompt_tokens"] == 4
    assert tree["finish_reason"] in ("stop", "length")
    plain = run(capsys, *DEBUG, "--raw", "--prompt", "once").out
    assert plain.strip()
    assert "[reasoning]" not in plain


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--prompt", " "], "the prompt is empty"),
        (["--prompt", "x", "--effort", "none"], "always reasons"),
        (["--prompt", "x", "--temperature", "3"], "temperature must be a number from 0 to 2"),
    ],
)
def test_mistakes_are_one_line_before_anything_loads(capsys, words, text):
    done = run(capsys, "generate", "debug", *words, code=1)
    assert text in done.err
    assert done.err.count("\n") == 1


def test_a_prompt_that_does_not_fit(capsys):
    done = run(capsys, "generate", "debug", "--prompt", "x" * 5000, code=1)
    assert "exceeded model token limit: 4096" in done.err


def test_it_needs_no_torch(capsys, monkeypatch):
    import sys

    for name in [n for n in sys.modules if n.startswith(("gossamer.server", "gossamer.engine"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    done = run(capsys, "generate", "debug", "--prompt", "x", "--max-tokens", "3")
    assert "generated tokens" in done.err
