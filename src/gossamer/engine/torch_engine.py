"""One sequence at a time through the torch model, each token computed once thanks to the cache.

B = 1 sequence, T tokens of one step, V vocabulary.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import torch

from gossamer.engine.api import (
    DEFAULT_MAX_TOKENS,
    Choice,
    ContextLengthError,
    EngineError,
    SamplingParams,
    SubmitError,
    TokenEvent,
)
from gossamer.engine.sampler import Sampler

T = TypeVar("T")


class CausalModel(Protocol):
    """What this engine needs of a model; `gossamer.model.Transformer` has it."""

    def __call__(
        self, token_ids: torch.Tensor, cache: Any = None, *, logits_for: Literal["all", "last"] = "all"
    ) -> torch.Tensor:
        """Logits [B, 1 or T, V] of ``token_ids`` [B, T], continuing from ``cache`` and updating it."""
        ...

    def new_cache(self, batch_size: int) -> Any:
        """An empty cache."""
        ...


class TorchEngine:
    """See `gossamer.engine.api.Engine`.

    The forward pass runs in one worker thread, so that the event loop stays free to notice a client
    that leaves.  A turn is a fair lock: sequences run in the order of submission.

    Args:
        model: The network, in evaluation mode.
        vocab_size: V.
        max_context: Tokens that prompt and answer may take together.
        seed: For sequences that bring none; None takes fresh entropy.
        prefill_chunk: Prompt tokens per step; a cancelled sequence ends within one step.
    """

    def __init__(
        self,
        model: CausalModel,
        *,
        vocab_size: int,
        max_context: int,
        seed: int | None = None,
        prefill_chunk: int = 256,
    ):
        self._model = model
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._seed = seed
        self._prefill_chunk = prefill_chunk
        self._turn = asyncio.Lock()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gossamer-engine")
        self._closing = False

    @property
    def max_context(self) -> int:
        """See `gossamer.engine.api.Engine.max_context`."""
        return self._max_context

    def submit(self, token_ids: Sequence[int], params: SamplingParams) -> AsyncGenerator[TokenEvent]:
        """See `gossamer.engine.api.Engine.submit`."""
        if not token_ids:
            raise SubmitError("the prompt is empty; at least one token is needed")
        outside = next((i for i in token_ids if not 0 <= i < self._vocab_size), None)
        if outside is not None:
            raise SubmitError(f"token id {outside} is outside 0..{self._vocab_size - 1}")
        params.check_vocab(self._vocab_size)
        if len(token_ids) + (params.max_tokens or 1) > self._max_context:
            raise ContextLengthError(
                max_context=self._max_context, num_prompt=len(token_ids), max_tokens=params.max_tokens
            )
        return self._generate(list(token_ids), params)

    async def close(self) -> None:
        """See `gossamer.engine.api.Engine.close`."""
        self._closing = True
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)

    async def _generate(self, prompt: list[int], params: SamplingParams) -> AsyncGenerator[TokenEvent]:
        async with self._turn:
            limit = min(params.max_tokens or DEFAULT_MAX_TOKENS, self._max_context - len(prompt))
            sampler = Sampler(params, prompt=prompt, default_seed=self._seed)
            cache = self._model.new_cache(1)
            pending = prompt
            for index in range(limit):
                while len(pending) > self._prefill_chunk and not self._closing:
                    chunk, pending = pending[: self._prefill_chunk], pending[self._prefill_chunk :]
                    await self._step(self._forward, chunk, cache)
                if self._closing:
                    yield TokenEvent(token_id=None, index=index, finish_reason="cancelled")
                    return
                choice = await self._step(self._next, pending, cache, sampler)
                pending = [choice.token_id]
                reason = _finish(choice.token_id, index + 1 == limit, params)
                yield TokenEvent(
                    token_id=choice.token_id,
                    index=index,
                    finish_reason=reason,
                    logprob=choice.logprob,
                    top_logprobs=choice.top_logprobs,
                )
                if reason is not None:
                    return

    async def _step(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    def _forward(self, token_ids: list[int], cache: Any) -> torch.Tensor:
        with torch.inference_mode():
            return self._model(torch.tensor([token_ids], dtype=torch.int64), cache, logits_for="last")

    def _next(self, token_ids: list[int], cache: Any, sampler: Sampler) -> Choice:
        logits = self._forward(token_ids, cache)  # [1, 1, V]
        if tuple(logits.shape) != (1, 1, self._vocab_size):
            raise EngineError(
                f"the model returned logits {tuple(logits.shape)}, not (1, 1, {self._vocab_size})"
            )
        return sampler.pick(np.asarray(logits[0, 0].float()))


def _finish(token_id: int, is_last: bool, params: SamplingParams) -> Literal["stop", "length"] | None:
    if token_id in params.stop_token_ids:
        return "stop"
    return "length" if is_last else None
