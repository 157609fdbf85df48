"""Measure an exported nano on held-out text and held-out dialogues.

Shape legend: B rows, T tokens.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from gossamer.kernels import backend
from gossamer.model.load import load
from gossamer.model.transformer import Transformer
from gossamer.text.tokenizer import Tokenizer
from gossamer.train import card, corpus, exam, heldout, textbar
from gossamer.train.dialogue.generate import Generator
from gossamer.train.passes import summed_loss
from gossamer.train.prepare import HELD_OUT_SEED_OFFSET
from gossamer.train.probe import probe
from gossamer.train.run import planned
from gossamer.train.streams import DialogueRows

DIALOGUE_ROWS = 24
SAMPLES = 24
SAMPLE_TOKENS = 64
TEMPERATURE = 0.8
WORD = re.compile(r"(?<![A-Za-z])[A-Za-z]{3,}(?![A-Za-z])")


def evaluate_folder(
    folder: Path, run: Path, *, num_dialogues: int, show: Callable[[str], None] | None = None
) -> dict:
    """Write `evaluation.json` into an exported folder and its card anew.

    Args:
        folder: an export.
        run: the run it came from, which holds the held-out text and the word list.
        num_dialogues: how many held-out dialogues are asked.
        show: called with what is being done.

    Raises:
        TrainError: a folder is not what it should be.
    """
    card.exported(folder)
    plan = planned(run)
    say = show or (lambda line: print(line, file=sys.stderr, flush=True))
    data = run / "data"
    tokenizer = Tokenizer.load(folder)
    model = load(folder)
    glossary = [(word, meaning) for word, meaning in json.loads((data / "glossary.json").read_text())]
    known = json.loads((data / "words.json").read_text())
    generator = Generator(plan.seed + HELD_OUT_SEED_OFFSET, glossary, words=known)
    result: dict = {"text": text_bar(load(folder, experts="dense"), tokenizer, data, say)}
    say("dialogues: loss")
    result["dialogue_loss"] = dialogue_losses(model, DialogueRows(generator, tokenizer, plan.length))
    say("dialogues: which choices are right")
    held_out = DialogueRows(generator, tokenizer, plan.length)
    result["choices"] = probe(lambda ids: model(ids), held_out, DIALOGUE_ROWS)
    say(f"dialogues: {num_dialogues} answers")
    result["answers"] = answers(model, tokenizer, generator, num_dialogues)
    say("words")
    result["words"] = words(model, tokenizer, data, plan.seed)
    (folder / card.EVALUATION_FILE).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    card.write(folder)
    return result


def text_bar(model: Transformer, tokenizer: Tokenizer, data: Path, say: Callable[[str], None]) -> dict:
    """Every held-out set against `xz -9e`; see `textbar.measure`.

    The forward pass is that of the fused kernels, which are tested against the model; where they are not
    built it is the model's own.
    """
    if backend.available():
        from gossamer.train.fused import network

        def forward(ids: torch.Tensor) -> torch.Tensor:
            return network.logits(model, ids, network.Ask(mode="sparse"))
    else:
        say("the native kernels are not built: the held-out text goes through torch, which is slower")
        forward = model
    found = {}
    for name, documents in heldout.read(data).items():
        say(f"text: {name}, {sum(d.num_bytes for d in documents):,} bytes")
        found |= textbar.measure(forward, tokenizer, {name: documents})
    return found


@torch.inference_mode()
def dialogue_losses(model: Transformer, rows: DialogueRows) -> dict:
    """Nats per token of the assistant's own part, as the model is defined and with dense attention."""
    sums = {"sparse": 0.0, "dense": 0.0}
    asked = 0
    for number in range(DIALOGUE_ROWS):
        ids, targets = (torch.from_numpy(part)[None] for part in rows.row(number)[:2])
        asked += int((targets >= 0).sum())
        for mode in ("sparse", "dense"):
            sums[mode] += float(summed_loss(model(ids, attention_mode=mode), targets))
    return {"tokens": asked} | {mode: round(value / asked, 4) for mode, value in sums.items()}


def answers(model: Transformer, tokenizer: Tokenizer, generator: Generator, count: int) -> dict:
    """First answers to held-out dialogues, greedy and unconstrained."""
    verdicts = []
    for index in range(count):
        dialogue = generator.dialogue(index + 10 * 100_000)
        answer, wanted = exam.ask(model, tokenizer, dialogue)
        verdicts.append(exam.judge(answer, wanted, dialogue))
    calls = [v for v in verdicts if v.wants_call]
    others = [v for v in verdicts if not v.wants_call]
    efforts = {
        effort: round(_mean([v.num_reasoning_tokens for v in verdicts if v.effort == effort]), 1)
        for effort in ("low", "high", "max")
    }
    return {
        "dialogues": len(verdicts),
        "ended": _share([v.ended for v in verdicts]),
        "call_wanted": len(calls),
        "called": _share([v.called for v in calls]),
        "well_formed": _share([v.called and v.well_formed for v in calls]),
        "exact": _share([v.exact for v in calls]),
        "arguments": sum(v.num_arguments for v in calls),
        "arguments_copied": _mean([v.num_copied for v in calls])
        / max(1e-9, _mean([v.num_arguments for v in calls])),
        "no_call_wanted": len(others),
        "no_call_made": _share([not v.called for v in others]),
        "same_answer": _share([v.exact for v in others]),
        "reasoning_tokens": efforts,
    }


@torch.inference_mode()
def words(model: Transformer, tokenizer: Tokenizer, data: Path, seed: int) -> dict:
    """Share of sampled words (three letters or more) that occur in the training text."""
    documents, _ = corpus.read(data)
    known: set[str] = set()
    for document in documents:
        if not document.held_out:
            known.update(word.lower() for word in WORD.findall(document.text))
    generator = torch.Generator().manual_seed(seed)
    total = real = 0
    prompts = [d for d in documents if d.held_out and d.category != "python"][:SAMPLES]
    for document in prompts:
        prompt = tokenizer.encode(document.text)[:48]
        ids = _sample(model, prompt, generator, tokenizer.num_ranks)
        found = WORD.findall(tokenizer.decode(ids))[1:-1]
        total += len(found)
        real += sum(word.lower() in known for word in found)
    return {"samples": len(prompts), "temperature": TEMPERATURE, "words": total, "real": real / max(1, total)}


def _sample(model: Transformer, prompt: list[int], generator: torch.Generator, num_ranks: int) -> list[int]:
    cache = model.new_cache(1)
    step = torch.tensor([prompt])
    out: list[int] = []
    for _ in range(SAMPLE_TOKENS):
        logits = model(step, cache, logits_for="last")[0, -1, :num_ranks] / TEMPERATURE
        out.append(int(torch.multinomial(torch.softmax(logits.float(), -1), 1, generator=generator)))
        step = torch.tensor([[out[-1]]])
    return out


def _share(flags: list[bool]) -> float:
    return round(sum(flags) / len(flags), 4) if flags else 0.0


def _mean(numbers: list[int]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0
