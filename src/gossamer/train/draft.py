"""Training the draft head of an exported model, and measuring how many of its tokens are accepted.

The trunk is frozen: the head learns the trunk's own next-token distribution, which decides acceptance.

Shape legend: B rows, T tokens, D hidden width, V vocabulary.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gossamer.kernels import backend
from gossamer.model import draft as drafting
from gossamer.model.draft import DraftHead
from gossamer.model.init import fill
from gossamer.model.load import load
from gossamer.model.transformer import Transformer
from gossamer.text import specials
from gossamer.train import card
from gossamer.train.errors import TrainError
from gossamer.train.loop import Rows
from gossamer.train.muon import MuonAdam
from gossamer.train.passes import Kernels
from gossamer.train.prepare import rows as row_sources
from gossamer.train.run import data_of, planned
from gossamer.train.streams import MixedRows
from gossamer.train.workloads import workloads

INTERMEDIATE_SIZE = 512
DEPTH = 2
"""Draft steps that are trained; the second reads the first one's own output."""
MATRIX_LR, LR = 3e-3, 2e-3
LONGEST_DRAFT = 4
LARGEST_SHARE = 0.15
"""Of the trunk's bytes."""
SHARES = (("text", 0.4), ("dialogue whole", 0.45), ("drill", 0.15))
"""Kinds of rows; every token of them is learned from."""
SEED_OFFSET = 3_000_017
"""Between the rows of the trunk and those of the head."""


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How the training computes: by the modules themselves, or on the fused kernels."""

    hidden: Callable[[Transformer, Tensor], Tensor]
    """Trunk and ids [B, T] to the normed last output [B, T, D]."""
    head: Callable[[DraftHead, Tensor, Tensor], Tensor]
    """Head, embedded and hidden [B, T, D] to what the output head reads, [B, T, D]."""


def ways(kernels: Kernels) -> Ways:
    """The two ways to compute.

    Raises:
        BackendError: the fused kernels are not built.
    """
    if kernels == "torch":
        return Ways(hidden=drafting.last_hidden, head=lambda head, embedded, hidden: head(embedded, hidden))
    backend.load()
    from gossamer.train.fused import draft as fused

    return Ways(hidden=fused.last_hidden, head=fused.forward)


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """How a draft head fared on one workload, measured on the trunk's own greedy output."""

    workload: str
    tokens: int
    """Generated tokens that were compared."""
    by_depth: tuple[float, ...]
    """Share of positions at which the first 1, 2, ... draft tokens are all the trunk's own."""
    tokens_per_pass: float
    """1 + the mean number of accepted draft tokens, for drafts of `LONGEST_DRAFT`."""


def new_head(model: Transformer, seed: int) -> DraftHead:
    """A head with random weights for a trunk."""
    head = DraftHead(model.config, INTERMEDIATE_SIZE)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            fill(name, parameter, model.config.initializer_range, generator)
    return head


def train(
    model: Transformer,
    data: Rows,
    *,
    seconds: float,
    seed: int,
    rows: int = 2,
    kernels: Kernels = "fused",
    threads: int = 1,
    show: Callable[[str], None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> tuple[DraftHead, dict]:
    """Train a head on a frozen trunk for some time, as `now` counts it.

    Args:
        model: the trunk.
        data: rows of ids.
        seconds: when to stop.
        seed: of the head's first weights.
        rows: of one step; each is a pass of its own.
        kernels: native kernels, or torch's operators.
        threads: passes at once; torch's own threads should be one where this is more.
        show: called with what is being done.
        now: the clock.

    Returns:
        The head and what to record: steps, tokens, seconds, first and last loss (nats of KL).
    """
    say = show or (lambda line: print(line, file=sys.stderr, flush=True))
    head, way = new_head(model, seed), ways(kernels)
    parameters = list(head.parameters())
    optimizer = MuonAdam(head.named_parameters(), lr=LR, matrix_lr=MATRIX_LR)
    started, step, tokens, seen = now(), 0, 0, []

    def one(ids: Tensor) -> tuple[float, tuple[Tensor, ...]]:
        loss = _loss(model, head, ids, way) / rows
        return float(loss.detach()), torch.autograd.grad(loss, parameters)

    with ThreadPoolExecutor(threads) as pool:
        while (spent := now() - started) < seconds:
            ids = torch.from_numpy(data.batch(step * rows, rows).ids)
            passes = list(pool.map(one, ids.split(1)))
            for i, parameter in enumerate(parameters):
                parameter.grad = torch.stack([gradients[i] for _, gradients in passes]).sum(0)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            left = 1 - spent / seconds
            optimizer.set_scale(min(1.0, (step + 1) / 20) * min(1.0, 0.05 + left / 0.6))
            optimizer.step()
            seen.append(sum(loss for loss, _ in passes))
            step, tokens = step + 1, tokens + ids.numel()
            if step % 20 == 0:
                recent = sum(seen[-20:]) / 20
                say(f"draft step {step} loss {recent:.4f} {tokens / (now() - started):.0f} tok/s")
    last = sum(seen[-20:]) / max(1, len(seen[-20:]))
    facts = {"steps": step, "tokens": tokens, "seconds": round(now() - started, 1)}
    return head.eval(), facts | {"first_loss": round(seen[0], 4), "last_loss": round(last, 4), "seed": seed}


def _loss(model: Transformer, head: DraftHead, ids: Tensor, way: Ways) -> Tensor:
    """Mean KL of the trunk's next-token distribution from the head's, over `DEPTH` draft steps."""
    with torch.no_grad():
        hidden = way.hidden(model, ids)  # [B, T, D]
        target = torch.log_softmax(model.lm_head(hidden), -1)  # [B, T, V]
        embedded = model.model.embed_tokens(ids)
    total = torch.zeros(())
    h = hidden[:, :-1]
    for depth in range(1, DEPTH + 1):
        h = way.head(head, embedded[:, depth:], h)
        log_q = torch.log_softmax(F.linear(h, model.lm_head.weight.detach()), -1)
        total = (
            total
            + F.kl_div(log_q, target[:, depth:], log_target=True, reduction="sum") / log_q[..., 0].numel()
        )
        h = h[:, :-1]
    return total / DEPTH


@torch.inference_mode()
def acceptance(
    model: Transformer,
    head: DraftHead,
    workloads: Mapping[str, Sequence[list[int]]],
    *,
    new_tokens: int,
    stop: int,
) -> list[Acceptance]:
    """Compare the head's drafts with the trunk's greedy continuation of each prompt.

    Args:
        model: the trunk.
        head: its draft head.
        workloads: name to prompts as ids.
        new_tokens: longest continuation.
        stop: id that ends one.
    """
    found = []
    for name, prompts in workloads.items():
        hits = torch.zeros(LONGEST_DRAFT)
        positions = 0
        for prompt in prompts:
            ids = _continued(model, prompt, new_tokens, stop)
            right = _right(model, head, torch.tensor([ids]), len(prompt))  # [positions, depth]
            hits += right.cumprod(1).sum(0)
            positions += right.shape[0]
        shares = (hits / max(1, positions)).tolist()
        found.append(
            Acceptance(
                workload=name,
                tokens=positions,
                by_depth=tuple(round(share, 4) for share in shares),
                tokens_per_pass=round(1 + sum(shares), 3),
            )
        )
    return found


def _continued(model: Transformer, prompt: list[int], new_tokens: int, stop: int) -> list[int]:
    cache = model.new_cache(1)
    ids, step = list(prompt), torch.tensor([prompt])
    for _ in range(new_tokens):
        ids.append(int(model(step, cache, logits_for="last")[0, -1].argmax()))
        if ids[-1] == stop:
            break
        step = torch.tensor([ids[-1:]])
    return ids


def _right(model: Transformer, head: DraftHead, ids: Tensor, start: int) -> Tensor:
    """Whether draft token d of the draft made at each generated position is the one that follows, [P, depth].

    The draft at t reads h_t and x_{t+1}, both certain, and predicts x_{t+2}; its further steps read its own
    output and its own tokens, as they would when serving.
    """
    hidden = drafting.last_hidden(model, ids)
    embed = model.model.embed_tokens
    first, last = start - 1, ids.shape[1] - 1 - LONGEST_DRAFT
    rows = []
    cache = head.new_cache(1)
    for t in range(last):
        y = head(embed(ids[:, t + 1 : t + 2]), hidden[:, t : t + 1], cache)
        if t < first:
            continue
        own = head.new_cache(1)
        own.store(cache.conv_tail, cache.state.clone())
        right = []
        for depth in range(LONGEST_DRAFT):
            token = model.lm_head(y)[0, -1].argmax()
            right.append(float(token == ids[0, t + 2 + depth]))
            if depth + 1 < LONGEST_DRAFT:
                y = head(embed(token.view(1, 1)), y, own)
        rows.append(right)
    return torch.tensor(rows).reshape(-1, LONGEST_DRAFT)


def build(
    folder: Path,
    run: Path,
    *,
    seconds: float,
    prompts: int,
    new_tokens: int,
    threads: int = 1,
    show: Callable[[str], None] | None = None,
) -> dict:
    """Train a draft head for an exported model, measure it, and write `draft/` below the folder.

    Args:
        folder: an export.
        run: the run it came from, which holds the data.
        seconds: of training.
        prompts: of each held-out workload.
        new_tokens: longest greedy continuation of each.
        threads: CPU threads.
        show: called with what is being done.

    Returns:
        What was recorded.

    Raises:
        TrainError: a folder is not what it should be, or the head is larger than its share of the model.
    """
    card.exported(folder)
    plan = planned(run)
    prepared = data_of(run, plan)
    # Asked for first, so that too little held-out text is known before the training.
    asked = workloads(prepared, plan.seed, prompts)
    say = show or (lambda line: print(line, file=sys.stderr, flush=True))
    model = load(folder, experts="dense")
    _check_size(new_head(model, plan.seed), folder)
    known = row_sources(prepared, plan, plan.seed + SEED_OFFSET)
    data = MixedRows({name: (known[name], share) for name, share in SHARES}, plan.seed)
    # The passes take the threads while training, torch's operators while measuring.
    torch.set_num_threads(1)
    head, facts = train(
        model, data, seconds=seconds, seed=plan.seed, kernels=plan.kernels, threads=threads, show=say
    )
    torch.set_num_threads(threads)
    facts["bytes"] = drafting.save(head, folder)
    say(f"acceptance: {prompts} prompts of each workload")
    stored = drafting.load(folder, model.config)
    assert stored is not None
    stop = prepared.tokenizer.special(specials.END_OF_MSG)
    measured = acceptance(model, stored, asked, new_tokens=new_tokens, stop=stop)
    record(folder, facts, measured)
    card.write(folder)
    return {"training": facts, "acceptance": [asdict(entry) for entry in measured]}


def _check_size(head: DraftHead, folder: Path) -> None:
    stored = sum(2 * p.numel() for p in head.parameters())
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if stored > LARGEST_SHARE * size:
        raise TrainError(
            f"a draft head of {stored:,} bytes is over {LARGEST_SHARE:.0%} of the {size:,} in {folder}"
        )


def record(folder: Path, facts: dict, measured: list[Acceptance]) -> None:
    """Write what a head was trained on and how it fared beside its weights."""
    tree = {"training": facts, "acceptance": [asdict(entry) for entry in measured]}
    (folder / "draft" / "evaluation.json").write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
