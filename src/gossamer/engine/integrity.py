"""Whether all books of an engine tell the same story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from gossamer.engine.block_pool import BlockPool, IntegrityError
from gossamer.engine.prefix_cache import PrefixCache
from gossamer.engine.request import Request, RequestState
from gossamer.engine.scheduler import Scheduler


def check_books(
    *,
    requests: Mapping[int, Request],
    scheduler: Scheduler,
    blocks: BlockPool,
    slots: BlockPool,
    cache: PrefixCache | None,
    block_size: int,
) -> None:
    """Compare requests, queue, slots, blocks and prefix cache with each other.

    Raises:
        IntegrityError: naming what differs.
    """
    _check_places(requests, scheduler)
    holders = Counter({} if cache is None else cache.check_integrity())
    for request in requests.values():
        _check_request(request, block_size)
        holders.update(request.blocks)
    blocks.check_integrity(holders)
    slots.check_integrity(Counter(r.slot for r in requests.values() if r.slot is not None))


def _check_places(requests: Mapping[int, Request], scheduler: Scheduler) -> None:
    waiting = scheduler.queue.waiting()
    places = Counter([*scheduler.running, *(request.id for request in waiting)])
    if places != Counter(requests.keys()):
        raise IntegrityError(f"requests {sorted(requests)} are, by place, {sorted(places.elements())}")
    if len(waiting) != len(scheduler.queue):
        raise IntegrityError(f"the queue counts {len(scheduler.queue)} requests and holds {len(waiting)}")
    if len(scheduler.running) > scheduler.max_running:
        raise IntegrityError(f"{len(scheduler.running)} requests run, at most {scheduler.max_running} may")
    for request in waiting:
        if request.state not in (RequestState.WAITING, RequestState.PREEMPTED):
            raise IntegrityError(f"request {request.id} is queued and {request.state.value}")
    for request in scheduler.running.values():
        if request.state is not RequestState.RUNNING:
            raise IntegrityError(f"request {request.id} has a slot and is {request.state.value}")
    keys = Counter(request.options.fairness_key for request in requests.values())
    if keys != scheduler.queue.keys():
        raise IntegrityError(f"fairness keys {dict(keys)} have accounts {scheduler.queue.keys()}")


def _check_request(request: Request, block_size: int) -> None:
    name = f"request {request.id}"
    if request.state is not RequestState.RUNNING:
        if request.slot is not None or request.blocks or request.num_computed:
            raise IntegrityError(f"{name} waits and holds slot {request.slot}, blocks {request.blocks}")
        return
    if request.slot is None:
        raise IntegrityError(f"{name} runs without a slot")
    if len(set(request.blocks)) != len(request.blocks):
        raise IntegrityError(f"{name} holds a block twice: {request.blocks}")
    if not 0 <= request.num_computed < len(request.token_ids):
        raise IntegrityError(f"{name} has computed {request.num_computed} of {len(request.token_ids)} tokens")
    if len(request.blocks) * block_size < request.num_computed:
        raise IntegrityError(f"{name} has {len(request.blocks)} blocks for {request.num_computed} tokens")
