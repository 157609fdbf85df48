"""Every generated dialogue is valid, copies only what its prompt holds, and is the same each time."""

import json
from collections import Counter

import pytest

from gossamer.text import specials
from gossamer.text.stream import ChatParser
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import exam
from gossamer.train.dialogue.generate import Generator

COUNT = 400


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.bytes_only()


@pytest.fixture(scope="module")
def dialogues():
    generator = Generator(21, [("river", "a large natural stream of water")])
    return [generator.dialogue(i) for i in range(COUNT)]


def test_same_seed_and_number_same_dialogue(dialogues):
    again = Generator(21, [("river", "a large natural stream of water")])
    assert [again.dialogue(i) for i in (0, 17, 399)] == [dialogues[i] for i in (0, 17, 399)]
    assert Generator(22).dialogue(0) != dialogues[0]


def test_every_dialogue_renders_and_only_assistant_turns_are_flagged(dialogues, tokenizer):
    end = tokenizer.special(specials.END_OF_MSG)
    for dialogue in dialogues:
        rendered = dialogue.render(tokenizer)
        said = [i for i, flag in zip(rendered.ids, rendered.generated, strict=True) if flag]
        turns = [m for m in dialogue.messages if m["role"] == "assistant"]
        assert said.count(end) == len(turns)
        text = tokenizer.decode(said)
        for message in dialogue.messages:
            if message["role"] == "assistant":
                assert message["reasoning_content"] in text
        plain = [s.text for s in rendered.segments if s.generated and not s.control]
        users = {m["content"] for m in dialogue.messages if m["role"] == "user"}
        assert not users.intersection(plain) or any(m["content"] in users for m in turns)


def test_the_parser_reads_back_every_assistant_turn(dialogues, tokenizer):
    for dialogue in dialogues[:120]:
        rendered = dialogue.render(tokenizer)
        runs: list[list[int]] = []
        before = False
        for token, flag in zip(rendered.ids, rendered.generated, strict=True):
            if flag and not before:
                runs.append([])
            if flag:
                runs[-1].append(token)
            before = flag
        turns = [m for m in dialogue.messages if m["role"] == "assistant"]
        assert len(runs) == len(turns)
        for ids, message in zip(runs, turns, strict=True):
            parser = ChatParser(tokenizer, dialogue.tools, start="think")
            deltas = [*parser.feed(ids), *parser.finish()]
            assert "".join(d.text for d in deltas if d.kind == "reasoning") == message["reasoning_content"]
            assert "".join(d.text for d in deltas if d.kind == "content") == message["content"]
            for position, call in enumerate(message.get("tool_calls") or []):
                own = [d.text for d in deltas if d.kind == "tool_call_arguments" and d.index == position]
                assert json.loads("".join(own)) == json.loads(call["function"]["arguments"])


def test_calls_fit_their_tools_and_their_values_stand_in_the_request(dialogues):
    for dialogue in dialogues:
        request = ""
        for message in dialogue.messages:
            if message["role"] == "user":
                request = message["content"]
            for call in message.get("tool_calls") or []:
                arguments = json.loads(call["function"]["arguments"])
                assert exam._fits(call["function"]["name"], arguments, dialogue.tools)
                for value in arguments.values():
                    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                    assert shown in request


def test_tool_names_are_unique_and_families_all_occur(dialogues):
    for dialogue in dialogues:
        names = [tool["function"]["name"] for tool in dialogue.tools]
        assert len(set(names)) == len(names)
    families = Counter(d.family for d in dialogues)
    assert {"call", "call+result", "calls", "call+result+again", "unused tools", "talk"} <= families.keys()


def test_more_effort_means_more_reasoning(dialogues):
    def mean(effort):
        own = [
            len(m["reasoning_content"])
            for d in dialogues
            if d.effort == effort
            for m in d.messages
            if m["role"] == "assistant"
        ]
        return sum(own) / len(own)

    assert 1.5 * mean("low") < mean("high")
    assert 1.5 * mean("high") < mean("max")


def test_results_are_the_truth_where_truth_can_be_known(dialogues):
    seen = 0
    generator = Generator(4)
    for index in range(1500):
        dialogue = generator.dialogue(index)
        for call_turn, result in zip(dialogue.messages, dialogue.messages[1:], strict=False):
            calls = call_turn.get("tool_calls") or []
            if result["role"] != "tool" or len(calls) != 1 or "result" not in result["content"]:
                continue
            (value,) = json.loads(calls[0]["function"]["arguments"]).values()
            a, sign, b = str(value).split()
            truth = {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}.get(sign)
            if truth is not None:
                assert json.loads(result["content"])["result"] == truth
                seen += 1
    assert seen > 3
