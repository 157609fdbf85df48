"""The model card of an export, rendered from its recorded facts and its evaluation."""

from __future__ import annotations

import json
from pathlib import Path

from gossamer.train.errors import TrainError

CARD_FILE = "CARD.md"
FACTS_FILE = "training.json"
EVALUATION_FILE = "evaluation.json"
CURVE_FILE = "loss.png"
LOADS_FILE = "loads.png"
EXAM_FILE = "exam.json"
CONTEXT_FILE = "context.json"
DRAFT_FILE = "draft/evaluation.json"

LIMITS = """\
## What it cannot do

- It is a test model with about 13 million parameters. It knows almost nothing, invents facts, and its prose
  is grammatical only for a few words at a time. Use it to exercise software, never to answer a question.
- It has seen dialogues made by templates only. Requests phrased in another way, tools with nested schemas,
  long values, other languages than English and conversations of many turns are outside its training.
- Its training context was 1,024 tokens; longer contexts run but are untested here.
- The held-out dialogues below come from the same templates with other values, so the shares say how well it
  learned the format, not how well it generalises.
- It has not been made safe in any way, and no claim of fitness is made.
"""

NOTICE = """\
## Notice

WordNet 3.0 Copyright 2006 by Princeton University. All rights reserved. The text of the dictionary was used
for training; this software and database is provided "as is" and Princeton University makes no
representations or warranties, express or implied.
"""


def write(folder: Path) -> None:
    """Write `CARD.md` from `training.json` and the measurements that lie beside it, where they exist.

    Those are `evaluation.json` (held-out text and dialogues), `exam.json` and `context.json` (what
    `gossamer eval-nano --json` printed) and `draft/evaluation.json`.

    Raises:
        TrainError: the folder is no export, or one of the files is damaged.
    """
    facts = exported(folder)
    parts = [
        _head(facts),
        _data(facts),
        _training(facts),
        _evaluation(_read(folder / EVALUATION_FILE)),
        _exam(_read(folder / EXAM_FILE)),
        _context(_read(folder / CONTEXT_FILE)),
        _draft(_read(folder / DRAFT_FILE)),
        LIMITS,
    ]
    parts = [part for part in parts if part]
    if any(entry["licence"].startswith("WordNet") for entry in facts["data"]):
        parts.append(NOTICE)
    (folder / CARD_FILE).write_text("\n".join(parts), encoding="utf-8")


def exported(folder: Path) -> dict:
    """What an export says of its training.

    Raises:
        TrainError: the folder is no export, or the file is damaged.
    """
    facts = _read(folder / FACTS_FILE)
    if facts is None:
        raise TrainError(f"{folder} is no export of a run ({FACTS_FILE} is missing); use --export first")
    return facts


def _read(path: Path) -> dict | None:
    if not path.is_file():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TrainError(f"{path} is not JSON ({error}); measure again") from None
    if not isinstance(tree, dict):
        raise TrainError(f"{path} holds no JSON object; measure again")
    return tree


def _head(facts: dict) -> str:
    state = "" if facts["finished"] else " **The run was not finished when this was exported.**"
    return (
        "# nano\n\n"
        "A small language model with the architecture of Kimi-K3.1-Pro: KDA, gated MLA with a lightning\n"
        "indexer, latent mixture of experts, attention residuals. It exists so that software for the large\n"
        f"model can be run and tested on any machine. Apache-2.0.{state}\n\n"
        f"{facts['parameters']:,} parameters; routed experts MXFP4 (scale rule EVEN), the rest BF16;\n"
        f"{facts['bytes']:,} bytes of weights. Tokens are bytes merged to 4,096 entries, digits one by one.\n"
    )


def _data(facts: dict) -> str:
    lines = [
        "## Data\n",
        "| package | version | licence | kind | training bytes | held-out bytes |",
        "|---|---|---|---|---:|---:|",
    ]
    for e in facts["data"]:
        names = f"| {e['package']} | {e['version']} | {e['licence']} | {e['category']} |"
        lines.append(f"{names} {e['train_bytes']:,} | {e['held_out_bytes']:,} |")
    lines.append(
        "\nThe bytes are what was available; the tokens below say how much of it was seen. Whole\n"
        "books and packages are held out. Dialogues are written by this project's seeded templates; where\n"
        "a dictionary is listed, the meanings in them come from its training part.\n"
    )
    if facts.get("overlap"):
        shares = ", ".join(f"{name} {share:.2%}" for name, share in sorted(facts["overlap"].items()))
        lines.append(f"Runs of 13 words of the held-out sets that also occur in training: {shares}.\n")
    return "\n".join(lines)


def _training(facts: dict) -> str:
    plan = facts["plan"]
    lines = [
        "## Training\n",
        "| phase | data | attention | trains | experts | tokens | minutes | last loss |",
        "|---|---|---|---|---|---:|---:|---:|",
    ]
    for phase in plan["phases"]:
        name = phase["name"]
        experts = "MXFP4 fake-quantised" if phase["fake_quant"] else "float"
        seen = f"{facts['tokens'].get(name, 0):,} | {facts['seconds'].get(name, 0) / 60:.1f}"
        loss = facts["final_loss"].get(name)
        lines.append(
            f"| {name} | {phase['data']} | {phase['attention']} | {phase['trains']} | {experts} "
            f"| {seen} | {'-' if loss is None else format(loss, '.3f')} |"
        )
    total, seconds = sum(facts["tokens"].values()), max(1e-9, sum(facts["seconds"].values()))
    speed = f"{total:,} tokens in {seconds / 60:.1f} minutes, {total / seconds:.0f} tokens/s"
    lines += [f"\nBy hand: {note}" for note in plan.get("notes", ())]
    lines.append(
        f"\n{facts['steps']} steps of {plan['batch_rows']} x {plan['length']} tokens, "
        f"seed {plan['seed']}: {speed}\non two CPU cores that other work shared. "
        f"Muon for matrices, AdamW for the rest, {_precision(plan)}.\n\n"
        f"Rows of the text stage: {_shares(plan['text_stage'])}. Rows of the dialogue stage:\n"
        f"{_shares(plan['dialogue_stage'])}. Drills and the dialogues of the text stage are learned whole,\n"
        "those of the dialogue stage count the assistant's own tokens only, so the losses of the two\n"
        "stages cannot be compared. The indexers learn from the attention's distribution (KL), never\n"
        "from the language loss. The routers are balanced by their selection bias, without an auxiliary\n"
        "loss.\n\n"
        f"![loss]({CURVE_FILE})\n"
    )
    if facts.get("load_plot"):
        lines.append(f"![load of the experts]({LOADS_FILE})\n")
    return "\n".join(lines)


def _precision(plan: dict) -> str:
    return "FP32" if plan["kernels"] == "fused" else "BF16 autocast with FP32 masters"


def _shares(stage: list) -> str:
    total = sum(share for _, share in stage)
    return ", ".join(f"{share / total:.0%} {name}" for name, share in stage)


def _evaluation(evaluation: dict | None) -> str:
    if evaluation is None:
        return "## Evaluation\n\nNot evaluated yet: `gossamer train nano --evaluate FOLDER`.\n"
    lines = [
        "## Evaluation\n",
        "Computed from the exported folder in float32.\n",
        "| held-out text | bytes | bits/byte | xz -9e, bits/byte | model over xz |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in evaluation["text"].items():
        bits = f"{row['bits_per_byte']:.3f} | {row['xz_bits_per_byte']:.3f} | {row['ratio_to_xz']:.3f}"
        lines.append(f"| {name} | {row['bytes']:,} | {bits} |")
    loss, a, w = evaluation["dialogue_loss"], evaluation["answers"], evaluation["words"]
    e = a["reasoning_tokens"]
    lines += [
        f"\nHeld-out dialogues: {loss['sparse']} nats per assistant token, {loss['dense']} with dense "
        f"attention, on {loss['tokens']:,} tokens.\n",
        *_choices(evaluation.get("choices")),
        f"First answers to {a['dialogues']} held-out dialogues, greedy, nothing constrained:\n",
        "| measure | share |",
        "|---|---:|",
        f"| answers that end properly | {a['ended']:.1%} |",
        f"| call wanted ({a['call_wanted']}): a call was made | {a['called']:.1%} |",
        f"| ... well formed: tool offered, required arguments, types, end | {a['well_formed']:.1%} |",
        f"| ... exact: same tools and all arguments equal | {a['exact']:.1%} |",
        f"| ... single arguments copied exactly ({a['arguments']}) | {a['arguments_copied']:.1%} |",
        f"| no call wanted ({a['no_call_wanted']}): none was made | {a['no_call_made']:.1%} |",
        f"| ... the very same answer as the template's | {a['same_answer']:.1%} |",
        f"\nMean reasoning tokens by effort: low {e['low']}, high {e['high']}, max {e['max']}.\n",
        f"Of {w['words']} sampled words of three letters or more (temperature {w['temperature']}), "
        f"{w['real']:.1%} occur in the training text.\n",
    ]
    return "\n".join(lines)


def _choices(choices: dict | None) -> list[str]:
    """Which choices of a call are right when all before them is; older measurements lack them."""
    if not choices:
        return []
    lines = [
        "Tokens that decide where to copy from, the share it would write itself, all before given:\n",
        "| token | right | nats | of |",
        "|---|---:|---:|---:|",
    ]
    for kind, row in choices.items():
        lines.append(f"| {kind} | {row['right']:.1%} | {row['nats']:.3f} | {row['tokens']} |")
    return [*lines, ""]


def _share(share: dict) -> str:
    return f"{share['share']:.1%} | {share['low']:.1%} to {share['high']:.1%} | {share['total']}"


def _exam(exam: dict | None) -> str:
    if exam is None:
        return ""
    rows = [
        ("exact: tool and all arguments", exam["exact"]),
        ("well-formed", exam["well_formed"]),
        ("right tool, or none", exam["right_tool"]),
        ("arguments copied", exam["arguments_copied"]),
    ]
    for effort in exam["by_effort"]:
        tokens = effort["mean_reasoning_tokens"]
        rows.append((f"exact at {effort['effort']} ({tokens} reasoning tokens)", effort["exact"]))
    rows += [("pass-back: earlier reasoning given", exam["pass_back"]["kept"])]
    rows += [("pass-back: earlier reasoning dropped", exam["pass_back"]["dropped"])]
    groups = (
        ("category", "by_category"),
        ("phrasing", "by_phrasing"),
        ("type", "by_argument_type"),
        ("value", "by_value_kind"),
    )
    for title, key in groups:
        rows += [(f"{title}: {group['name']}", group["exact"]) for group in exam[key]]
    lines = [
        "## Exam\n",
        f"`gossamer eval-nano --seed {exam['seed']} --count {exam['questions']}`, words {exam['words']}:\n"
        "other tools, names, values and phrasings than in training; greedy, nothing constrained. Types and\n"
        "values count single arguments.\n",
        "| measure | share | 95 % interval | of |",
        "|---|---:|---:|---:|",
        *(f"| {name} | {_share(share)} |" for name, share in rows),
        "",
    ]
    return "\n".join(lines)


def _context(context: dict | None) -> str:
    if context is None:
        return ""
    lines = [
        "## Planted facts\n",
        "`gossamer eval-nano --context`: five facts in one text, each asked for at its end.\n",
        "| tokens | asked as | found | 95 % interval | of |",
        "|---:|---|---:|---:|---:|",
    ]
    for result in context["results"]:
        lines.append(f"| {result['tokens']:,} | {result['form']} | {_share(result['found'])} |")
    return "\n".join([*lines, ""])


def _draft(draft: dict | None) -> str:
    if draft is None:
        return ""
    training = draft["training"]
    lines = [
        "## Draft head\n",
        f"One KDA block beside the trunk ({training['bytes']:,} bytes), learned from the frozen trunk on\n"
        f"{training['tokens']:,} tokens in {training['seconds'] / 60:.1f} minutes. Its drafts beside the "
        "trunk's own greedy output:\n",
        "| workload | tokens | 1 right | 2 | 3 | 4 | tokens per pass |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in draft["acceptance"]:
        depths = " | ".join(f"{share:.1%}" for share in row["by_depth"])
        lines.append(f"| {row['workload']} | {row['tokens']:,} | {depths} | {row['tokens_per_pass']:.2f} |")
    return "\n".join([*lines, ""])
