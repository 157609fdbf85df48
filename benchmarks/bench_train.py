"""Training nano: rows and whole steps, native kernels against torch's operators, alternating."""

import threading
import time
from statistics import median

import torch

from gossamer.config import presets
from gossamer.model.transformer import Transformer
from gossamer.train.initial import lengthen_memory
from gossamer.train.muon import MuonAdam
from gossamer.train.passes import FusedPasses, Job, Passes, TorchPasses

TOKENS = 1024
ROUNDS = 5
GOAL_TOKENS_PER_S = 3000.0


def seconds_of(passes: Passes, job: Job, wanted: list[torch.Tensor], threads: int) -> float:
    """Every thread runs two passes."""

    def work() -> None:
        torch.set_num_threads(1)
        for _ in range(2):
            passes.run(job, wanted)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begin


def step_seconds(passes: Passes, job: Job, model: Transformer, optimizer: MuonAdam) -> float:
    """Four rows on two threads and the optimiser's update on one."""
    named = [p for n, p in model.named_parameters() if ".indexer." not in n and p.requires_grad]
    begin = time.perf_counter()
    seconds_of(passes, job, named, 2)
    optimizer.step()
    return time.perf_counter() - begin


def rows() -> list[dict]:
    torch.set_num_threads(1)
    model = Transformer(presets.load("nano"), experts="dense", seed=1)
    lengthen_memory(model)
    draw = torch.Generator().manual_seed(1)
    ids, targets = (torch.randint(0, 4000, (1, TOKENS), generator=draw) for _ in range(2))
    job = Job(ids=ids, targets=targets, scale=1 / TOKENS, kl_scale=None, mode="dense", trunk=True)
    named = {n: p for n, p in model.named_parameters() if ".indexer." not in n and p.requires_grad}
    kinds: dict[str, Passes] = {"torch": TorchPasses(model), "native": FusedPasses(model)}
    for passes in kinds.values():
        passes.begin_step(False)
        for p, gradient in zip(named.values(), passes.run(job, list(named.values())).gradients, strict=True):
            p.grad = gradient
    optimizer = MuonAdam(named.items(), lr=0.0, matrix_lr=0.0)
    optimizer.step()
    taken: dict[tuple[str, int], list[float]] = {(k, t): [] for k in kinds for t in (1, 2)}
    steps: list[float] = []
    for _ in range(ROUNDS):
        for kind, passes in kinds.items():
            for threads in (1, 2):
                taken[kind, threads].append(
                    2 * threads * TOKENS / seconds_of(passes, job, list(named.values()), threads)
                )
        steps.append(4 * TOKENS / step_seconds(kinds["native"], job, model, optimizer))
    found = []
    for threads in (1, 2):
        ours, peer = median(taken["native", threads]), median(taken["torch", threads])
        found.append(
            {
                "name": f"train.rows.{threads}t",
                "ours": ours,
                "peer": peer,
                "ratio": ours / peer,
                "goal": 1.0,
                "unit": "tokens/s",
                "conditions": f"forward and backward of a row of {TOKENS} on each of {threads} threads, "
                f"median of {ROUNDS} alternating rounds; peer is torch's operators in the same process",
            }
        )
    ours = median(steps)
    found.append(
        {
            "name": "train.step.2t",
            "ours": ours,
            "peer": GOAL_TOKENS_PER_S,
            "ratio": ours / GOAL_TOKENS_PER_S,
            "goal": 1.0,
            "unit": "tokens/s",
            "conditions": "4 rows on two threads and the optimiser on one; peer is the goal of 3,000",
        }
    )
    return found
