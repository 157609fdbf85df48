"""The tokens that decide are found in every call, and they count for more in the loss."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.text.tokenizer import Tokenizer
from gossamer.train.dialogue import decisive
from gossamer.train.dialogue.generate import Dialogue, Generator
from gossamer.train.dialogue.lookup import Lookups
from gossamer.train.dialogue.scene import call_thoughts
from gossamer.train.dialogue.schema import Parameter, Task, Tool
from gossamer.train.passes import summed_loss
from gossamer.train.probe import probe
from gossamer.train.streams import DialogueRows

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.bytes_only()


def marked(dialogue: Dialogue, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """(kind, what follows it up to 40 tokens) of every decisive token."""
    rendered = dialogue.render(tokenizer)
    codes = decisive.kinds(rendered, tokenizer)
    assert len(codes) == len(rendered.ids)
    assert all(flag for code, flag in zip(codes, rendered.generated, strict=True) if code)
    return [
        (decisive.KINDS[code], tokenizer.decode(rendered.ids[i : i + 40]))
        for i, code in enumerate(codes)
        if code
    ]


@pytest.mark.parametrize("maker", [Generator(31), Lookups(31)], ids=["dialogues", "look-up"])
def test_every_learned_call_has_one_mark_for_each_of_its_choices(maker, tokenizer):
    checked = 0
    for index in range(60):
        dialogue = maker.dialogue(index)
        turns = [m for m in dialogue.messages if m["role"] == "assistant"][dialogue.num_given :]
        calls = [call["function"] for m in turns for call in m.get("tool_calls") or []]
        found = marked(dialogue, tokenizer)
        tools = [text for kind, text in found if kind == "tool"]
        assert len(tools) == len(calls)
        assert all(text.startswith(c["name"][:40]) for text, c in zip(tools, calls, strict=True))
        arguments = [entry for c in calls for entry in json.loads(c["arguments"]).items()]
        names = [text for kind, text in found if kind == "name"]
        assert len(names) == len(arguments)
        assert all(text.startswith(key[:40]) for text, (key, _) in zip(names, arguments, strict=True))
        assert sum(kind == "type" for kind, _ in found) == len(arguments)
        assert sum(kind == "value" for kind, _ in found) == sum(value != "" for _, value in arguments)
        assert sum(kind == "next" for kind, _ in found) == len(arguments) + len(calls)
        checked += len(arguments)
    assert checked > 50


@given(
    st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES, st.sampled_from(["low", "high", "max", None])
)
def test_in_thoughts_names_and_values_are_marked_where_they_begin(names, tool_name, effort):
    parameters = tuple(Parameter(name=n, type="string", make=str, said=(n,)) for n in names)
    task = Task(
        tool=Tool(name=tool_name, about="", wish="", parameters=parameters),
        values={n: f"v {n}" for n in names},
    )
    thought = call_thoughts([task], effort)
    starts = [thought[at:] for at in decisive.choices(thought)]
    assert starts[0].startswith(tool_name)
    if effort == "low":
        assert len(starts) == 1
        return
    assert [text.startswith(f'{n}"') for n, text in zip(names, starts[1:], strict=False)] == [True] * len(
        names
    )
    lines = starts[1 + len(names) :]
    if effort == "high":
        assert not lines
        return
    for name, line, value in zip(names, lines[::2], lines[1::2], strict=False):
        assert line.startswith(f"{name}=v {name}")
        assert value.startswith(f"v {name}")
    assert lines[-1].startswith("No other value")
    assert len(lines) == 2 * len(names) + 1


def test_a_look_up_row_holds_several_times_as_many_choices_as_a_row_of_dialogues():
    tokenizer = Tokenizer.bytes_only()
    wanted = [decisive.KINDS.index(kind) for kind in ("tool", "name", "type", "value")]

    def density(maker):
        rows = DialogueRows(maker, tokenizer, 4096)
        return np.mean([np.isin(rows.row(i).decisive, wanted).sum() for i in range(12)])

    assert density(Lookups(3)) > 1.5 * density(Generator(3))


def test_no_tool_of_a_look_up_is_called_twice_and_all_it_needs_is_given():
    for index in range(150):
        dialogue = Lookups(7).dialogue(index)
        (turn,) = [m for m in dialogue.messages if m["role"] == "assistant"]
        called = [call["function"] for call in turn["tool_calls"]]
        assert len({c["name"] for c in called}) == len(called)
        schemas = {t["function"]["name"]: t["function"]["parameters"] for t in dialogue.tools}
        for c in called:
            given = list(json.loads(c["arguments"]))
            assert given[: len(schemas[c["name"]]["required"])] == schemas[c["name"]]["required"]
    assert Lookups(7).dialogue(4) == Lookups(7).dialogue(4)


def test_decisive_marks_are_aligned_with_targets(tokenizer):
    row = DialogueRows(Lookups(5), tokenizer, 4096).row(2)
    assert row.decisive.any()
    assert (row.targets[row.decisive > 0] >= 0).all()
    types = row.targets[row.decisive == decisive.KINDS.index("type")]
    assert {tokenizer.decode([int(i)]) for i in types} <= set("snboa")


def test_weights_multiply_the_losses_of_their_targets():
    torch.manual_seed(0)
    logits, targets = torch.randn(2, 9, 11), torch.randint(0, 11, (2, 9))
    targets[0, :4] = -100
    weights = torch.where(torch.rand(2, 9) < 0.4, 8.0, 1.0)
    each = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=-100
    )
    torch.testing.assert_close(summed_loss(logits, targets, weights), (each * weights.flatten()).sum())
    torch.testing.assert_close(
        summed_loss(logits, targets, torch.ones(2, 9)), summed_loss(logits, targets), rtol=1e-5, atol=1e-5
    )


def test_the_probe_counts_each_kind_by_itself(tokenizer):
    rows = DialogueRows(Lookups(5), tokenizer, 2048)
    row = rows.row(0)
    wrong = row.decisive == decisive.KINDS.index("value")

    def forward(ids):
        """Everything right, but each first token of a value."""
        said = np.where(wrong, 0, np.maximum(row.targets, 0))
        return torch.nn.functional.one_hot(torch.from_numpy(said), tokenizer.vocab_size)[None] * 50.0

    found = probe(forward, rows, 1)
    assert found["value"]["right"] == 0
    assert found["value"]["nats"] > 40
    assert found["name"]["right"] == found["type"]["right"] == found["rest"]["right"] == 1
    assert sum(entry["tokens"] for entry in found.values()) == int((row.targets >= 0).sum())
