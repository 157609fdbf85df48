"""What the next step computes: a token of every sequence that generates, then pieces of prompts.

Everything here is bookkeeping; the runner is not touched but for prefixes that the cache copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gossamer.engine.block_pool import BlockPool, IntegrityError
from gossamer.engine.fair_queue import FairQueue
from gossamer.engine.metrics import Metrics
from gossamer.engine.prefix_cache import PrefixCache
from gossamer.engine.request import Request, RequestState
from gossamer.engine.runner import Segment, Snapshot
from gossamer.engine.settings import EngineSettings


@dataclass(frozen=True, kw_only=True)
class Admission:
    """A request that got a slot, which must be brought to ``snapshot``, or be cleared where that is None."""

    request: Request
    slot: int
    snapshot: Snapshot | None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A request's part in a step."""

    request: Request
    segment: Segment

    @property
    def end(self) -> int:
        """Tokens computed once the step is done."""
        return self.segment.start + len(self.segment.token_ids)


@dataclass(kw_only=True)
class Plan:
    """One step: first the slots of the admitted, then all pieces in one forward pass.

    Attributes:
        budget: Tokens that may still be added.
    """

    budget: int
    admitted: list[Admission] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens of the step."""
        return sum(len(piece.segment.token_ids) for piece in self.pieces)


class Scheduler:
    """Continuous batching with chunked prefill.

    A running request holds blocks for all of its tokens so far; only generated tokens make it grow.  Where no
    block is left for one, the request of the lowest priority and latest arrival goes back to the queue.  The
    most urgent one is never that, so each step brings somebody closer to the end.

    Args:
        settings: See `EngineSettings`.
        block_size: Tokens of a block.
        blocks: All blocks, shared with ``cache``.
        slots: All slots.
        cache: None computes every prompt from its start.
        metrics: Told of admissions and preemptions.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        block_size: int,
        blocks: BlockPool,
        slots: BlockPool,
        cache: PrefixCache | None,
        metrics: Metrics,
    ):
        self._settings = settings
        self._block_size = block_size
        self._blocks = blocks
        self._slots = slots
        self._cache = cache
        self._max_running = settings.running_limit(slots.size, block_size)
        self._watermark = int(settings.watermark * blocks.size)
        self._queue = FairQueue(aging_s=settings.aging_s)
        self._running: dict[int, Request] = {}
        self._metrics = metrics

    @property
    def queue(self) -> FairQueue:
        """The requests that wait."""
        return self._queue

    @property
    def running(self) -> dict[int, Request]:
        """Id -> request, of those that hold a slot."""
        return self._running

    @property
    def max_running(self) -> int:
        """Requests that may hold a slot at a time."""
        return self._max_running

    def add(self, request: Request) -> None:
        """Let a new request wait for its turn."""
        self._queue.open(request)
        self._queue.push(request)

    def remove(self, request: Request) -> None:
        """End a request, wherever it is, and free what it holds."""
        if request.state is RequestState.RUNNING:
            self._vacate(request)
        else:
            self._queue.remove(request)
        request.state = RequestState.FINISHED
        self._queue.close(request)

    def schedule(self, now_s: float) -> Plan:
        """Plan one step.

        Args:
            now_s: Clock, in seconds.
        """
        plan = Plan(budget=self._settings.max_batch_tokens)
        preemptions = self._metrics.num_preemptions
        self._add_decodes(plan, now_s)
        self._add_prefills(plan, now_s)
        if self._metrics.num_preemptions == preemptions:
            self._admit(plan, now_s)
        for piece in plan.pieces:
            self._queue.charge(piece.request, piece.end)
        if not plan.pieces and (self._running or len(self._queue)):
            raise IntegrityError("there is work and nothing can be scheduled; this is a bug")
        return plan

    def preempt(self, request: Request) -> None:
        """Send a running request back to the queue; it goes on later as if nothing had happened."""
        self._vacate(request)
        request.state = RequestState.PREEMPTED
        request.num_computed = 0
        self._queue.push(request)
        self._metrics.num_preemptions += 1

    def last_edge(self, request: Request) -> int:
        """Blocks before the edge whose state is saved near the end of the prompt; 0 where none is."""
        cache = self._settings.cache
        return 0 if cache is None else cache.last_edge(request.num_prompt, self._block_size)

    def _vacate(self, request: Request) -> None:
        del self._running[request.id]
        for block in request.blocks:
            self._blocks.release(block)
        request.blocks = []
        assert request.slot is not None
        self._slots.release(request.slot)
        request.slot = None

    def _in_order(
        self, key: Callable[[Request, float], tuple[int, ...]], now_s: float, *, decoding: bool
    ) -> list[Request]:
        chosen = (r for r in self._running.values() if (r.num_pending == 1) == decoding)
        return sorted(chosen, key=lambda request: key(request, now_s))

    def _add_decodes(self, plan: Plan, now_s: float) -> None:
        for request in self._in_order(self._queue.urgency, now_s, decoding=True):
            # Somebody more urgent may have taken its memory, or it had to give way itself.
            if request.state is RequestState.RUNNING and self._grow(request, now_s):
                self._add_piece(plan, request)

    def _grow(self, request: Request, now_s: float) -> bool:
        """Give it a block for its next token; False where it had to give way itself."""
        while len(request.blocks) * self._block_size <= request.num_computed:
            if self._blocks.num_free or (self._cache is not None and self._cache.evict_blocks(1)):
                request.blocks.append(self._blocks.take())
                continue
            victim = max(self._running.values(), key=lambda other: self._queue.urgency(other, now_s))
            if len(self._running) == 1:
                raise IntegrityError(f"request {request.id} runs alone and finds no block; this is a bug")
            self.preempt(victim)
            if victim is request:
                return False
        return True

    def _add_prefills(self, plan: Plan, now_s: float) -> None:
        for request in self._in_order(self._queue.turn, now_s, decoding=False):
            self._add_piece(plan, request)

    def _admit(self, plan: Plan, now_s: float) -> None:
        while len(self._running) < self._max_running and plan.budget:
            request = self._queue.head(now_s)
            # Nobody overtakes the head, or a large request would wait for as long as small ones come.
            if request is None or not self._fits(request):
                return
            first = min(len(request.token_ids), self._block_size)
            if plan.budget < first:
                return
            self._start(plan, request, now_s)

    def _fits(self, request: Request) -> bool:
        needed = self._num_blocks(request)
        # Someone alone may have everything: nobody else needs room to grow.
        spare = self._watermark if self._running else 0
        room = self._blocks.num_free
        if self._cache is not None and needed + spare > room:
            depth, idle = self._cache.resident(self._digests(request))
            needed -= depth
            room += self._cache.num_evictable() - idle
        return needed + spare <= room

    def _start(self, plan: Plan, request: Request, now_s: float) -> None:
        self._queue.remove(request)
        snapshot = None
        if self._cache is not None:
            match = self._cache.acquire(self._digests(request))
            request.blocks, snapshot = match.blocks, match.snapshot
        missing = self._num_blocks(request) - len(request.blocks)
        request.num_computed = len(request.blocks) * self._block_size
        if self._cache is not None:
            self._cache.evict_blocks(missing - self._blocks.num_free)
        request.blocks += [self._blocks.take() for _ in range(missing)]
        request.slot = self._slots.take()
        request.state = RequestState.RUNNING
        self._running[request.id] = request
        # What the cache held was paid for by whoever computed it.
        request.num_charged = max(request.num_charged, request.num_computed)
        self._metrics.num_resumed_tokens += request.num_computed
        if request.cached_tokens is None:
            request.cached_tokens, request.admitted_s = request.num_computed, now_s
            self._metrics.admitted(request)
        plan.admitted.append(Admission(request=request, slot=request.slot, snapshot=snapshot))
        self._add_piece(plan, request)

    def _num_blocks(self, request: Request) -> int:
        return -(-len(request.token_ids) // self._block_size)

    def _digests(self, request: Request) -> list[bytes]:
        """Of the blocks it may resume after: at least one token is left to compute."""
        return request.hasher.digests(request.token_ids, (len(request.token_ids) - 1) // self._block_size)

    def _add_piece(self, plan: Plan, request: Request) -> None:
        start, end = request.num_computed, self._piece_end(request, plan.budget)
        if end <= start:
            return
        assert request.slot is not None
        segment = Segment(
            token_ids=request.token_ids[start:end],
            start=start,
            slot=request.slot,
            blocks=request.blocks[: -(-end // self._block_size)],
            want_logits=end == len(request.token_ids),
            embeddings=request.embedded(start, end),
        )
        plan.pieces.append(Piece(request=request, segment=segment))
        plan.budget -= end - start

    def _piece_end(self, request: Request, budget: int) -> int:
        """Where the piece ends: at the end of the tokens, or at a block's, and at the next state to save."""
        size, total = self._block_size, len(request.token_ids)
        end = min(request.num_computed + budget, total)
        if self._settings.cache is not None:
            edge = self._settings.cache.next_edge(request.num_computed // size, self.last_edge(request))
            end = min(end, edge * size)
        return end if end == total else end // size * size
