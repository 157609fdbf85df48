"""Every generated dialogue is valid, copies only what its prompt holds, and is the same each time."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from gossamer.text import specials
from gossamer.text.stream import ChatParser
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import exam
from gossamer.train.dialogue import offer, phrase, recall
from gossamer.train.dialogue.generate import Dialogue, Generator
from gossamer.train.dialogue.remembering import Remembering
from gossamer.train.dialogue.tools import CONCEPTS
from gossamer.train.dialogue.values import Draw

COUNT = 600
WORDS = [
    f"{a}{b}{c}" for a in "bdfglmst" for b in ("ar", "en", "ol", "ip") for c in ("t", "is", "us", "ap", "ock")
]
LEFT_OUT = "error+left out"
"""Its first call is not the model's own and lacks an argument."""
GLOSSARY = [("river", "a large natural stream of water")]


@pytest.fixture(scope="module")
def tokenizer():
    return Remembering(Tokenizer.bytes_only())


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    generator = Generator(21, GLOSSARY, words=WORDS)
    return [generator.dialogue(i) for i in range(COUNT)]


def turns_of(dialogue: Dialogue) -> list[dict]:
    return [m for m in dialogue.messages if m["role"] == "assistant"]


def test_same_seed_and_number_same_dialogue(dialogues):
    again = Generator(21, GLOSSARY, words=WORDS)
    assert [again.dialogue(i) for i in (0, 17, 399)] == [dialogues[i] for i in (0, 17, 399)]
    assert Generator(22, words=WORDS).dialogue(0) != dialogues[0]


def test_every_dialogue_renders_and_only_learned_assistant_turns_are_flagged(dialogues, tokenizer):
    end = tokenizer.special(specials.END_OF_MSG)
    for dialogue in dialogues:
        rendered = dialogue.render(tokenizer)
        said = [i for i, flag in zip(rendered.ids, rendered.generated, strict=True) if flag]
        learned = turns_of(dialogue)[dialogue.num_given :]
        assert learned
        assert said.count(end) == len(learned)
        text = tokenizer.decode(said)
        for message in learned:
            assert message["reasoning_content"] in text
        plain = [s.text for s in rendered.segments if s.generated and not s.control]
        users = {m["content"] for m in dialogue.messages if m["role"] == "user"}
        assert not users.intersection(plain) or any(m["content"] in users for m in learned)


def test_history_turns_change_flags_and_nothing_else(dialogues, tokenizer):
    given = [d for d in dialogues if d.num_given]
    assert given
    for dialogue in given:
        if dialogue.family != LEFT_OUT:
            assert all(not m["reasoning_content"] for m in turns_of(dialogue)[: dialogue.num_given])
        whole = replace(dialogue, num_given=0).render(tokenizer)
        part = dialogue.render(tokenizer)
        assert part.ids == whole.ids
        first = part.generated.index(True)
        assert part.generated[first:] == whole.generated[first:]


def test_the_parser_reads_back_every_assistant_turn(dialogues, tokenizer):
    for dialogue in dialogues[:150]:
        rendered = dialogue.render(tokenizer)
        runs: list[list[int]] = []
        before = False
        for token, flag in zip(rendered.ids, rendered.generated, strict=True):
            if flag and not before:
                runs.append([])
            if flag:
                runs[-1].append(token)
            before = flag
        turns = turns_of(dialogue)[dialogue.num_given :]
        assert len(runs) == len(turns)
        for ids, message in zip(runs, turns, strict=True):
            parser = ChatParser(tokenizer, dialogue.tools, start="think")
            deltas = [*parser.feed(ids), *parser.finish()]
            assert "".join(d.text for d in deltas if d.kind == "reasoning") == message["reasoning_content"]
            assert "".join(d.text for d in deltas if d.kind == "content") == message["content"]
            for position, call in enumerate(message.get("tool_calls") or []):
                own = [d.text for d in deltas if d.kind == "tool_call_arguments" and d.index == position]
                assert json.loads("".join(own)) == json.loads(call["function"]["arguments"])


def test_calls_fit_their_tools_and_their_strings_stand_before_them(dialogues):
    for dialogue in dialogues:
        seen = ""
        for message in dialogue.messages:
            for call in message.get("tool_calls") or []:
                arguments = json.loads(call["function"]["arguments"])
                given = dialogue.family == LEFT_OUT and message is turns_of(dialogue)[0]
                assert given or exam._fits(call["function"]["name"], arguments, dialogue.tools)
                for value in arguments.values():
                    if isinstance(value, str):
                        escaped = json.dumps(value, ensure_ascii=False)[1:-1]
                        twice = json.dumps(escaped, ensure_ascii=False)[1:-1]
                        assert value in seen or escaped in seen or twice in seen
            seen += f"{message.get('reasoning_content', '')}\n{message['content']}\n"


def test_enumerated_arguments_take_a_declared_value(dialogues):
    for dialogue in dialogues:
        schemas = {t["function"]["name"]: t["function"]["parameters"]["properties"] for t in dialogue.tools}
        for message in turns_of(dialogue):
            for call in message.get("tool_calls") or []:
                for key, value in json.loads(call["function"]["arguments"]).items():
                    assert value in schemas[call["function"]["name"]][key].get("enum", [value])


def test_tool_names_are_unique_and_hardly_ever_seen_twice(dialogues):
    names: Counter[str] = Counter()
    for dialogue in dialogues:
        own = [tool["function"]["name"] for tool in dialogue.tools]
        assert len(set(own)) == len(own)
        names.update(own)
    assert sum(count == 1 for count in names.values()) > 0.5 * len(names)
    assert len(names) > COUNT


def test_families_and_ways_of_asking_all_occur_in_their_shares(dialogues):
    families = Counter(d.family for d in dialogues)
    assert {"call", "call+result", "calls", "chained", "followed", "again", "carried"} <= families.keys()
    assert {
        "recall",
        "recall dropped",
        "error+retry",
        "error+report",
        "error+elsewhere",
        LEFT_OUT,
        "unused tools",
        "talk",
    } <= families.keys()
    assert {name for name, _, _ in phrase.FAMILIES} <= {d.asked for d in dialogues}
    share = {name: count / COUNT for name, count in families.items()}
    assert 0.12 < share["unused tools"] + share["talk"] < 0.19
    assert 0.08 < sum(value for name, value in share.items() if name.startswith("error")) < 0.16
    second = [d for d in dialogues if any(m["role"] == "tool" for m in d.messages) and called_last(d)]
    assert len(second) / COUNT > 0.18


def called_last(dialogue: Dialogue) -> bool:
    """Whether a call comes after a tool result."""
    first = next(i for i, m in enumerate(dialogue.messages) if m["role"] == "tool")
    return any(m.get("tool_calls") for m in dialogue.messages[first:])


def test_more_effort_means_more_reasoning(dialogues):
    def mean(effort):
        own = [
            len(m["reasoning_content"])
            for d in dialogues
            if d.effort == effort
            for m in turns_of(d)[d.num_given :]
        ]
        return sum(own) / len(own)

    assert 1.8 * mean("low") < mean("high")
    assert 1.8 * mean("high") < mean("max")
    assert mean(None) == pytest.approx(mean("max"), rel=0.25)


def test_a_decision_stands_in_the_thoughts_alone():
    """What a later turn needs is in no message but as one of several options, or in none at all."""
    checked = 0
    for index in range(400):
        rng = Draw(f"recall/{index}", WORDS)
        dialogue = recall.decided(rng, "max")
        if dialogue.family != "recall":
            continue
        turns = turns_of(dialogue)
        value = needed(turns[-1])
        if value is None:
            continue
        assert any(value in turn["reasoning_content"] for turn in turns[:-1])
        answers = [turn["content"] for turn in turns[:-1]]
        assert not any(value in text.split() for text in answers)
        checked += 1
    assert checked > 150


def needed(turn: dict) -> str | None:
    """The decision as the last thoughts repeat it."""
    head, _, note = turn["reasoning_content"].partition("\n")[0].partition("My note says: ")
    values = json.loads(turn["tool_calls"][0]["function"]["arguments"]).values() if not head else ()
    found = [v if isinstance(v, str) else json.dumps(v) for v in values]
    return next((value for value in found if value in note and len(value) > 2), None)


def test_difficulty_zero_is_one_tool_one_argument_one_turn():
    generator = Generator(3, words=WORDS, difficulty=0.0)
    for index in range(200):
        dialogue = generator.dialogue(index)
        calls = [call for m in turns_of(dialogue) for call in m.get("tool_calls") or []]
        assert len(dialogue.tools) <= 1
        assert len(calls) <= 1
        assert "recall" not in dialogue.family


def test_remembered_ids_are_the_tokenizers_own(dialogues, tokenizer):
    plain = Tokenizer.bytes_only()
    for dialogue in dialogues[:50]:
        assert dialogue.render(tokenizer) == dialogue.render(plain)


def test_results_are_the_truth_where_truth_can_be_known():
    (concept,) = [c for c in CONCEPTS if c.outcome is not None]
    for index in range(200):
        rng = Draw(f"sums/{index}", WORDS)
        task = offer.task(rng, offer.everyday(rng, concept))
        (value,) = task.values.values()
        a, sign, b = value.split()
        a, b = int(a), int(b)
        truth = {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]
        assert offer.outcome(rng, task)["result"] == pytest.approx(truth, abs=0.005)
