"""Many requests through one model: schedule, run, postprocess, over and over.  One thread calls all of it.

Shapes: V vocabulary, R rows whose logits were wanted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gossamer.engine.api import (
    NO_OPTIONS,
    Embeddings,
    EngineError,
    FinishReason,
    Logits,
    RequestOptions,
    SamplingParams,
    SubmitError,
    TokenEvent,
    check_embeddings,
)
from gossamer.engine.block_hash import BlockHasher, root_hash
from gossamer.engine.block_pool import BlockPool
from gossamer.engine.deadlines import Deadlines
from gossamer.engine.integrity import check_books
from gossamer.engine.metrics import Metrics
from gossamer.engine.prefix_cache import PrefixCache
from gossamer.engine.request import DEADLINE, Request, RequestState, answer_limit
from gossamer.engine.runner import Runner
from gossamer.engine.sampler import Sampler
from gossamer.engine.scheduler import Piece, Plan, Scheduler
from gossamer.engine.settings import EngineSettings, SettingsError
from gossamer.engine.spill import BlockIO, SpillStore

LOG = logging.getLogger("gossamer.engine")


@dataclass(frozen=True, kw_only=True)
class StepEvent:
    """Something that happened to a request.

    Attributes:
        request_id: Whose it is.
        token: A generated token, or the end of a request that generates no more.
        error: What ended the request instead; one of the two is set.
        cached_tokens: Tokens of its prompt found in the prefix cache.
    """

    request_id: int
    token: TokenEvent | None = None
    error: EngineError | None = None
    cached_tokens: int = 0

    @property
    def is_last(self) -> bool:
        """Whether nothing follows for this request."""
        return self.token is None or self.token.finish_reason is not None


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """An engine at one moment; what is counted is counted from its start.

    Attributes:
        num_waiting: Requests in the queue, preempted ones included.
        num_running: Requests that hold a slot.
        num_free_blocks: Blocks nobody holds.
        num_blocks: Blocks there are.
        batch_sequences: Sequences of the last step.
        batch_tokens: Tokens of the last step.
        cache_blocks: Blocks that the prefix cache holds.
        cache_snapshots: States that it holds.
        cache_bytes: Both together.
        cache_hit_tokens: Tokens resumed from the cache, those after a preemption included.
        cache_evictions: Resume points dropped.
        spill_files: Files on disk.
        spill_bytes: Their bytes.
        num_preemptions: Requests sent back to the queue.
    """

    num_waiting: int
    num_running: int
    num_free_blocks: int
    num_blocks: int
    batch_sequences: int
    batch_tokens: int
    cache_blocks: int
    cache_snapshots: int
    cache_bytes: int
    cache_hit_tokens: int
    cache_evictions: int
    spill_files: int
    spill_bytes: int
    num_preemptions: int


class EngineCore:
    """See the module.

    Args:
        runner: The model; nobody else uses it meanwhile.
        settings: See `EngineSettings`.
        clock: Seconds that never go back.

    Raises:
        SettingsError: settings that do not go together with this runner.
    """

    def __init__(
        self, runner: Runner, settings: EngineSettings, *, clock: Callable[[], float] = time.monotonic
    ):
        self._runner = runner
        self._settings = settings
        self._clock = clock
        self._spill: SpillStore | None = None
        spill = None if settings.cache is None else settings.cache.spill
        self._fingerprint = "" if spill is None else spill.fingerprint
        if spill is not None:
            if not isinstance(runner, BlockIO):
                raise SettingsError(
                    f"{type(runner).__name__} lacks read_block and write_block; leave the spill off"
                )
            self._spill = SpillStore(spill)
        self.metrics = Metrics()
        self._requests: dict[int, Request] = {}
        self._deadlines = Deadlines()
        self._events: list[StepEvent] = []
        self._next_id = 0
        self._last_batch = (0, 0)
        self._new_books()

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may take together: the model's limit, or what all blocks hold."""
        return min(self._runner.max_context, self._runner.num_blocks * self._runner.block_size)

    @property
    def max_running(self) -> int:
        """Requests that may run at a time."""
        return self._scheduler.max_running

    @property
    def has_work(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._requests or self._events)

    def check(
        self, token_ids: Sequence[int], params: SamplingParams, embeddings: Sequence[Embeddings] = ()
    ) -> int:
        """Tokens that may be generated; usable from any thread.

        Raises:
            SubmitError: see `answer_limit` and `check_embeddings`.
        """
        check_embeddings(embeddings, num_prompt=len(token_ids), hidden_size=self._runner.hidden_size)
        return answer_limit(
            token_ids, params, vocab_size=self._runner.vocab_size, max_context=self.max_context
        )

    def submit(
        self,
        token_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions = NO_OPTIONS,
        *,
        embeddings: Sequence[Embeddings] = (),
        request_id: int | None = None,
        arrival_s: float | None = None,
    ) -> int:
        """Queue a request; returns its id.

        Args:
            token_ids: The prompt.
            params: How to sample.
            options: How it stands among others.
            embeddings: What some tokens have instead of their own, in their order.
            request_id: None counts up; of two requests of one rank the lower id goes first.
            arrival_s: Clock at which it came; None is now.

        Raises:
            SubmitError: it can never be served, or the id is in use.
        """
        limit = self.check(token_ids, params, embeddings)
        request_id = self._next_id if request_id is None else request_id
        if request_id in self._requests:
            raise SubmitError(f"request id {request_id} is in use; choose another")
        self._next_id = max(self._next_id, request_id + 1)
        request = Request(
            id=request_id,
            params=params,
            options=options,
            num_prompt=len(token_ids),
            limit=limit,
            sampler=Sampler(params, prompt=token_ids, default_seed=self._settings.seed),
            hasher=BlockHasher(
                root_hash(self._fingerprint, options.cache_salt), self._runner.block_size, embeddings
            ),
            arrival_s=self._clock() if arrival_s is None else arrival_s,
            token_ids=list(token_ids),
            embeddings=tuple(embeddings),
        )
        self._requests[request.id] = request
        self._scheduler.add(request)
        if options.deadline_s is not None:
            self._deadlines.add(request.id, request.deadline_s)
        return request.id

    def cancel(self, request_id: int) -> bool:
        """End a request and free what it holds, at once; the next step reports it.  False if it has ended."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        self._finish_without_token(request, "cancelled", "cancelled")
        return True

    def step(self) -> list[StepEvent]:
        """Compute one batch; returns what happened since the last step, in order.

        A model that fails ends the requests it was working on, with an event that holds the error.
        """
        self._end_overdue()
        plan = self._scheduler.schedule(self._clock())
        if plan.pieces:
            logits = self._run(plan)
            self._postprocess(plan, logits)
        return self.take_events()

    def take_events(self) -> list[StepEvent]:
        """What happened since the last step, without computing."""
        events, self._events = self._events, []
        return events

    def fail_all(self, error: EngineError) -> None:
        """End every request with ``error`` and start over with empty books and cache; the disk is kept."""
        for request in list(self._requests.values()):
            del self._requests[request.id]
            request.state = RequestState.FINISHED
            self._report_error(request, error)
        self._deadlines.clear()
        self._new_books()

    def preempt(self, request_id: int) -> bool:
        """Send a running request back to the queue, where it loses nothing; False where it does not run."""
        request = self._scheduler.running.get(request_id)
        if request is None:
            return False
        self._scheduler.preempt(request)
        return True

    def evict(self) -> bool:
        """Drop the prefix unused for longest from memory; False where there is none."""
        return self._cache is not None and self._cache.evict_oldest()

    def flush(self) -> None:
        """Write the prefix cache to its spill, if it has one."""
        if self._cache is not None:
            self._cache.flush()

    def stats(self) -> EngineStats:
        """The engine now."""
        cache, spill = self._cache, self._spill
        return EngineStats(
            num_waiting=len(self._scheduler.queue),
            num_running=len(self._scheduler.running),
            num_free_blocks=self._blocks.num_free,
            num_blocks=self._blocks.size,
            batch_sequences=self._last_batch[0],
            batch_tokens=self._last_batch[1],
            cache_blocks=0 if cache is None else cache.num_blocks,
            cache_snapshots=0 if cache is None else cache.num_snapshots,
            cache_bytes=0 if cache is None else cache.num_bytes,
            cache_hit_tokens=self.metrics.num_resumed_tokens,
            cache_evictions=self.metrics.num_evictions,
            spill_files=0 if spill is None else spill.num_files,
            spill_bytes=0 if spill is None else spill.num_bytes,
            num_preemptions=self.metrics.num_preemptions,
        )

    def check_integrity(self) -> None:
        """Compare requests, queue, slots, blocks and prefix cache with each other.

        Raises:
            IntegrityError: naming what differs.
        """
        check_books(
            requests=self._requests,
            scheduler=self._scheduler,
            blocks=self._blocks,
            slots=self._slots,
            cache=self._cache,
            block_size=self._runner.block_size,
        )

    def _new_books(self) -> None:
        runner, cache = self._runner, self._settings.cache
        self._blocks = BlockPool(runner.num_blocks)
        self._slots = BlockPool(runner.num_slots, name="slot")
        self._cache = None
        if cache is not None:
            everything = runner.num_blocks * runner.block_bytes + runner.num_slots * runner.slot_bytes
            self._cache = PrefixCache(
                self._blocks,
                block_bytes=runner.block_bytes,
                snapshot_bytes=runner.slot_bytes,
                max_bytes=everything if cache.max_bytes is None else cache.max_bytes,
                metrics=self.metrics,
                spill=self._spill,
                block_io=runner if self._spill is not None and isinstance(runner, BlockIO) else None,
            )
        self._scheduler = Scheduler(
            self._settings,
            block_size=runner.block_size,
            blocks=self._blocks,
            slots=self._slots,
            cache=self._cache,
            metrics=self.metrics,
        )

    def _end_overdue(self) -> None:
        for request_id in self._deadlines.due(self._clock()):
            self._finish_without_token(self._requests[request_id], DEADLINE, "deadline")

    def _run(self, plan: Plan) -> Logits | EngineError:
        wanted = sum(piece.segment.want_logits for piece in plan.pieces)
        try:
            for admission in plan.admitted:
                if admission.snapshot is None:
                    self._runner.clear_slot(admission.slot)
                else:
                    self._runner.restore_slot(admission.slot, admission.snapshot)
            logits = self._runner.run([piece.segment for piece in plan.pieces])
        except Exception as error:
            LOG.exception("the model failed; the %d requests of this step end", len(plan.pieces))
            failure = EngineError(
                str(error) if isinstance(error, EngineError) else f"the model failed: {error!r}"
            )
            failure.__cause__ = error
            return failure
        if logits.shape != (wanted, self._runner.vocab_size):
            return EngineError(
                f"the model returned logits {logits.shape}, not ({wanted}, {self._runner.vocab_size})"
            )
        return logits

    def _postprocess(self, plan: Plan, logits: Logits | EngineError) -> None:
        now = self._clock()
        self._last_batch = (len(plan.pieces), plan.num_tokens)
        if isinstance(logits, EngineError):
            for piece in plan.pieces:
                # An error of its own for each: whoever raises one adds to it.
                error = EngineError(str(logits))
                error.__cause__ = logits.__cause__
                self._fail(piece.request, error)
            return
        self.metrics.step(num_sequences=len(plan.pieces), num_tokens=plan.num_tokens)
        row = 0
        for piece in plan.pieces:
            piece.request.num_computed = piece.end
            self._keep_prefix(piece)
            if piece.segment.want_logits:
                self._sample(piece.request, logits[row], now)
                row += 1

    def _keep_prefix(self, piece: Piece) -> None:
        """Save the state where the piece ends, if that is a place to resume from."""
        num_blocks, rest = divmod(piece.end, self._runner.block_size)
        request, cache, settings = piece.request, self._cache, self._settings.cache
        if cache is None or settings is None or rest:
            return
        if not settings.is_edge(num_blocks, self._scheduler.last_edge(request)):
            return
        digests = request.hasher.digests(request.token_ids, num_blocks)
        assert request.slot is not None
        try:
            snapshot = None if cache.has_snapshot(digests[-1]) else self._runner.save_slot(request.slot)
        except Exception:  # most likely memory: the request itself can go on without
            LOG.warning("a state could not be saved for later requests; going on", exc_info=True)
            return
        request.blocks[:num_blocks] = cache.insert(digests, request.blocks[:num_blocks], snapshot)

    def _sample(self, request: Request, row: Logits, now_s: float) -> None:
        try:
            choice = request.sampler.pick(row)
        except EngineError as error:
            self._fail(request, error)
            return
        except Exception as error:  # a mask is the caller's code
            failure = EngineError(f"choosing a token failed: {error!r}")
            failure.__cause__ = error
            self._fail(request, failure)
            return
        self.metrics.token(request, now_s)
        request.token_ids.append(choice.token_id)
        request.last_token_s = now_s
        if request.first_token_s is None:
            request.first_token_s = now_s
        reason = request.finish_reason()
        token = TokenEvent(
            token_id=choice.token_id,
            index=request.num_generated - 1,
            finish_reason=reason,
            logprob=choice.logprob,
            top_logprobs=choice.top_logprobs,
        )
        self._report(request, token)
        if reason is not None:
            self._drop(request)
            self.metrics.ended(request, reason, now_s)

    def _finish_without_token(self, request: Request, reason: FinishReason, why: str) -> None:
        self._drop(request)
        self._report(request, TokenEvent(token_id=None, index=request.num_generated, finish_reason=reason))
        self.metrics.ended(request, why, self._clock())

    def _fail(self, request: Request, error: EngineError) -> None:
        self._drop(request)
        self._report_error(request, error)

    def _drop(self, request: Request) -> None:
        self._scheduler.remove(request)
        del self._requests[request.id]
        self._deadlines.forget(request.id)

    def _report(self, request: Request, token: TokenEvent) -> None:
        self._events.append(
            StepEvent(request_id=request.id, token=token, cached_tokens=request.cached_tokens or 0)
        )

    def _report_error(self, request: Request, error: EngineError) -> None:
        self._events.append(
            StepEvent(request_id=request.id, error=error, cached_tokens=request.cached_tokens or 0)
        )
        self.metrics.ended(request, "error", self._clock())
