"""The exported folder is the trained model: same logits, honest card; and the exam judges as it says."""

import json
from dataclasses import replace

import pytest
import torch

from gossamer.checkpoint import CheckpointWriter
from gossamer.config import hf, presets
from gossamer.model.load import load
from gossamer.model.state_dict_adapter import to_checkpoint
from gossamer.model.transformer import Transformer
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import card, curve, evaluate, exam, heldout
from gossamer.train.dialogue.generate import Generator
from gossamer.train.errors import TrainError
from gossamer.train.export import export_run
from gossamer.train.passes import TorchPasses
from gossamer.train.plan import two_stages
from gossamer.train.prepare import prepare

FACTS = {
    "parameters": 5,
    "plan": {
        "phases": [
            {"name": "text", "data": "text", "attention": "dense", "trains": "trunk", "fake_quant": False}
        ],
        "batch_rows": 2,
        "length": 96,
        "seed": 1,
        "text_stage": [["text", 0.85], ["drill", 0.15]],
        "dialogue_stage": [["text", 0.3], ["dialogue", 0.7]],
        "kernels": "fused",
    },
    "finished": False,
    "steps": 3,
    "tokens": {"text": 576},
    "seconds": {"text": 2.0},
    "final_loss": {"text": 4.5},
    "data": [
        {
            "package": "wordnet-base",
            "version": "1",
            "licence": "WordNet-3.0",
            "category": "prose",
            "train_bytes": 1234,
            "held_out_bytes": 12,
        }
    ],
    "bytes": 1000,
}


def test_reloaded_packed_export_gives_the_fake_quantised_models_logits(make_trainer, tmp_path):
    trainer = make_trainer("run")
    trainer.run(max_steps=3)
    model = trainer.model.eval()
    TorchPasses(model).begin_step(fake_quant=True)
    with CheckpointWriter(tmp_path / "out") as writer:
        for name, array, dtype in to_checkpoint(model):
            writer.add(name, array, dtype)
    hf.write(model.config, tmp_path / "out" / "config.json")
    packed = load(tmp_path / "out")
    assert packed.options.storage == "packed"
    # Everything but the experts is stored as bfloat16: round the trained model the same way.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".experts." not in name and not name.endswith(("A_log", "dt_bias", "correction_bias")):
                parameter.copy_(dict(packed.named_parameters())[name])
    ids = torch.randint(0, 250, (2, 64), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.equal(packed(ids), model(ids))


def test_export_without_a_run_is_an_error(tmp_path):
    with pytest.raises(TrainError, match="holds no run"):
        export_run(tmp_path, tmp_path / "out")


def test_card_says_what_is_known_and_no_more(tmp_path):
    (tmp_path / card.FACTS_FILE).write_text(json.dumps(FACTS))
    card.write(tmp_path)
    text = (tmp_path / card.CARD_FILE).read_text()
    assert "not finished" in text
    assert "Not evaluated yet" in text
    assert "| wordnet-base | 1 | WordNet-3.0 | prose | 1,234 | 12 |" in text
    assert "Princeton University" in text
    assert "What it cannot do" in text


@pytest.mark.slow
def test_an_export_is_evaluated_from_its_own_files(tmp_path, monkeypatch):
    """The whole of --evaluate on a small model: every held-out byte, dialogues, and the card with both."""
    monkeypatch.setattr(evaluate, "DIALOGUE_ROWS", 1)
    monkeypatch.setattr(evaluate, "SAMPLES", 1)
    monkeypatch.setattr(exam, "MAX_TOKENS", 8)
    run, out = tmp_path / "run", tmp_path / "out"
    texts = tmp_path / "texts"
    texts.mkdir()
    # About one file in a hundred is held out, by its name.
    for number in range(300):
        (texts / f"{number}.txt").write_text(f"the {number}th note says what it says. " * 9)
    run.mkdir()
    two_stages("tokens", 1000.0, length=2048).write(run / "plan.json")
    Tokenizer.bytes_only().save(out)
    prepared = prepare(
        run / "data", cache=tmp_path, seed=1, vocab_size=320, data_dir=texts, vocabulary_of=out
    )
    model = Transformer(presets.load("debug"), seed=1)
    with CheckpointWriter(out, overwrite=True) as writer:
        for name, array, dtype in to_checkpoint(model):
            writer.add(name, array, dtype)
    hf.write(model.config, out / "config.json")
    (out / card.FACTS_FILE).write_text(json.dumps(FACTS))
    said = []
    result = evaluate.evaluate_folder(out, run, num_dialogues=2, show=said.append)
    row = result["text"]["technical"]
    assert row["bytes"] == sum(d.num_bytes for d in heldout.read(prepared.folder)["technical"])
    # A model that knows nothing needs about log2(320) bits for a byte.
    assert 7.5 < row["bits_per_byte"] < 9.5
    assert any("technical" in line for line in said)
    text = (out / card.CARD_FILE).read_text()
    assert f"| technical | {row['bytes']:,} | {row['bits_per_byte']:.3f} |" in text
    assert result["answers"]["dialogues"] == 2
    kinds = result["choices"]
    assert {"tool", "name", "type", "value", "next", "thought", "rest"} <= kinds.keys()
    assert f"| name | {kinds['name']['right']:.1%} |" in text


def test_curve_counts_a_repeated_step_once_and_splits_phases(tmp_path):
    log = tmp_path / "log.jsonl"
    steps = [(0, "text", 8.0), (1, "text", 7.0), (1, "text", 6.0), (2, "dialogue", 1.0)]
    lines = [json.dumps({"step": s, "phase": p, "loss": loss, "tokens": 10}) for s, p, loss in steps]
    log.write_text("\n".join([json.dumps({"event": "resumed"}), *lines]) + "\n")
    points = curve.points(curve.read_log(log))
    assert [(p.phase, p.tokens, p.loss) for p in points] == [("text", 20, 7.0), ("dialogue", 30, 1.0)]


def test_pictures_are_the_same_bytes_for_the_same_log(tmp_path):
    records = [
        {
            "step": s,
            "phase": "text",
            "loss": 8.0 - s,
            "tokens": 10,
            "loads": {"1": [1.5, 0.5], "2": [1.2, 0.8]},
        }
        for s in range(5)
    ]
    balance = curve.loads(records)
    assert [(own.layer, own.tokens[-1], own.largest[0], own.smallest[0]) for own in balance] == [
        (1, 50, 1.5, 0.5),
        (2, 50, 1.2, 0.8),
    ]
    for name in ("a", "b"):
        curve.draw_loss(curve.points(records), tmp_path / f"{name}-loss.png", "t")
        curve.draw_loads(balance, tmp_path / f"{name}-loads.png", "t")
    for kind in ("loss", "loads"):
        raw = (tmp_path / f"a-{kind}.png").read_bytes()
        assert raw.startswith(b"\x89PNG")
        assert raw == (tmp_path / f"b-{kind}.png").read_bytes()


SHARE = {"share": 0.5, "low": 0.25, "high": 0.75, "total": 8}


def test_card_holds_the_exam_the_planted_facts_and_the_draft_head(tmp_path):
    exam_report = {
        "seed": 3,
        "words": "invented",
        "questions": 8,
        **dict.fromkeys(("exact", "well_formed", "right_tool", "arguments_copied"), SHARE),
        "by_effort": [{"effort": "low", "mean_reasoning_tokens": 12.5, "exact": SHARE}],
        "pass_back": {"kept": SHARE, "dropped": SHARE},
        **{
            f"by_{name}": [{"name": f"one {name}", "exact": SHARE}]
            for name in ("category", "phrasing", "argument_type", "value_kind")
        },
    }
    (tmp_path / "draft").mkdir()
    facts = FACTS | {"overlap": {"prose": 0.0012}}
    for name, tree in (
        (card.FACTS_FILE, facts),
        (card.EXAM_FILE, exam_report),
        (card.CONTEXT_FILE, {"results": [{"tokens": 1024, "form": "chat", "found": SHARE}]}),
        (
            card.DRAFT_FILE,
            {
                "training": {"bytes": 9000, "tokens": 70_000, "seconds": 90.0},
                "acceptance": [
                    {
                        "workload": "prose",
                        "tokens": 640,
                        "by_depth": [0.5, 0.25, 0.1, 0.05],
                        "tokens_per_pass": 1.9,
                    }
                ],
            },
        ),
    ):
        (tmp_path / name).write_text(json.dumps(tree))
    card.write(tmp_path)
    text = (tmp_path / card.CARD_FILE).read_text()
    assert "also occur in training: prose 0.12%." in text
    assert "| exact: tool and all arguments | 50.0% | 25.0% to 75.0% | 8 |" in text
    assert "| phrasing: one phrasing | 50.0%" in text
    assert "| 1,024 | chat | 50.0% |" in text
    assert "| prose | 640 | 50.0% | 25.0% | 10.0% | 5.0% | 1.90 |" in text


@pytest.mark.parametrize("raw", ["{", "[]", "7"])
def test_a_damaged_measurement_is_named(tmp_path, raw):
    (tmp_path / card.FACTS_FILE).write_text(json.dumps(FACTS))
    (tmp_path / card.EXAM_FILE).write_text(raw)
    with pytest.raises(TrainError, match=r"exam\.json .*measure again"):
        card.write(tmp_path)


def test_a_card_wants_an_export(tmp_path):
    with pytest.raises(TrainError, match="no export"):
        card.write(tmp_path)


def example(generator, wants_call):
    index = 0
    while True:
        dialogue = generator.dialogue(index)
        first = next(m for m in dialogue.messages if m["role"] == "assistant")
        if bool(first.get("tool_calls")) == wants_call:
            return dialogue, first
        index += 1


def answer(message, **changes):
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    made = exam.Answer(
        reasoning=message["reasoning_content"],
        content=message["content"],
        calls=calls,
        ended=True,
        num_reasoning_tokens=1,
    )
    return replace(made, **changes)


def test_the_reference_answer_is_perfect():
    for wants in (True, False):
        dialogue, message = example(Generator(8), wants)
        verdict = exam.judge(answer(message), message, dialogue)
        assert verdict.exact
        assert verdict.well_formed
        assert verdict.num_copied == verdict.num_arguments
        assert verdict.called == wants


def test_wrong_answers_are_seen():
    dialogue, message = example(Generator(8), True)
    (name, arguments), *_ = answer(message).calls
    for calls in ([("no_such_tool", arguments)], [(name, "{}")], [(name, "not json")], [(name, '{"x": 1}')]):
        verdict = exam.judge(answer(message, calls=calls), message, dialogue)
        assert not verdict.well_formed, calls
        assert not verdict.exact, calls
    unended = exam.judge(answer(message, ended=False), message, dialogue)
    assert not unended.well_formed
    assert not unended.exact


def test_numbers_and_booleans_are_not_taken_for_each_other():
    tools = [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "properties": {"n": {"type": "integer"}, "b": {"type": "boolean"}},
                    "required": ["n"],
                },
            },
        }
    ]
    assert exam._fits("f", {"n": 1, "b": True}, tools)
    assert not exam._fits("f", {"n": True}, tools)
    assert not exam._fits("f", {"n": 1, "b": 1}, tools)
    assert not exam._fits("f", {"b": True}, tools)


def test_greedy_equals_the_full_pass(make_trainer):
    trainer = make_trainer("run")
    model = trainer.model.eval()
    prompt = Tokenizer.bytes_only().encode("hello there")
    out = exam.greedy(model, prompt, stop=-1, max_tokens=6)
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + out]))[0]
    assert out == logits[len(prompt) - 1 : -1].argmax(-1).tolist()
