import io
import json

import pytest

from gossamer.cli import main
from gossamer.cli.chat import ChatCommandError, Conversation
from gossamer.protocol.request import parse

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def conversation():
    return Conversation({"reasoning_effort": "max", "seed": 1})


def calling(*ids):
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "reasoning_content": "", "tool_calls": calls}


def test_lines_become_user_messages_or_results():
    talk = conversation()
    assert talk.add("hello")
    talk.messages.append(calling("a", "b"))
    assert talk.waiting() == [("a", "f"), ("b", "f")]
    assert not talk.add("first")
    assert talk.add("second")
    assert talk.waiting() == []
    assert [m["role"] for m in talk.messages] == ["user", "assistant", "tool", "tool"]
    assert len(parse(talk.body()).messages) == 4


def test_commands(tmp_path):
    talk = conversation()
    talk.add("hello")
    assert talk.command("/effort low") == "effort low"
    assert parse(talk.body()).reasoning_effort == "low"
    with pytest.raises(ValueError, match="always reasons"):
        talk.command("/effort none")
    assert parse(talk.body()).reasoning_effort == "low"
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([TOOL]))
    assert talk.command(f"/tools {file}") == "1 tools offered"
    assert parse(talk.body()).tools == (TOOL,)
    assert talk.command("/tools") == "0 tools offered"
    assert talk.command("/reset") == "conversation forgotten"
    assert talk.messages == []
    assert "/exit" in talk.command("/help")
    with pytest.raises(ChatCommandError, match="unknown command /quit"):
        talk.command("/quit")
    with pytest.raises(ChatCommandError, match="cannot read tools"):
        talk.command("/tools /no/such/file")


def test_a_conversation_over_a_pipe(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\n/effort none\n/effort low\nagain\n/exit\nnever\n"))
    assert main.run(["chat", "debug", "--max-tokens", "5", "--seed", "1"]) == 0
    done = capsys.readouterr()
    assert done.out.count("[reasoning]") == 2
    assert "effort low" in done.out
    assert "error: reasoning_effort 'none'" in done.err
    assert "> " not in done.out


def test_a_turn_that_fails_is_taken_back(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 5000 + "\nhello\n"))
    assert main.run(["chat", "debug", "--max-tokens", "5"]) == 0
    done = capsys.readouterr()
    assert "exceeded model token limit" in done.err
    assert done.out.count("[reasoning]") == 1


def test_bad_options_are_refused_before_loading(capsys, tmp_path):
    assert main.run(["chat", "debug", "--effort", "off"]) == 1
    assert main.run(["chat", "debug", "--tools", str(tmp_path / "none.json")]) == 1
    assert "random weights" not in capsys.readouterr().err
