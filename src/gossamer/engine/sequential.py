"""One request at a time, nothing shared, nothing kept: what the engine's answers are measured against."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.engine.api import Embeddings, SamplingParams, TokenEvent, check_embeddings
from gossamer.engine.request import answer_limit, finish_reason
from gossamer.engine.runner import Runner, Segment
from gossamer.engine.sampler import Sampler


def generate(
    runner: Runner,
    token_ids: Sequence[int],
    params: SamplingParams,
    *,
    embeddings: Sequence[Embeddings] = (),
    default_seed: int | None = None,
) -> list[TokenEvent]:
    """All tokens after a prompt.

    The prompt goes in one piece; slot 0 and the first blocks are used, whatever they held.

    Args:
        runner: The model.
        token_ids: The prompt.
        params: How to sample.
        embeddings: What some tokens have instead of their own.
        default_seed: For params that bring none.

    Raises:
        SubmitError: a prompt that cannot be served.
        EngineError: the model produced nonsense.
    """
    block_size = runner.block_size
    check_embeddings(embeddings, num_prompt=len(token_ids), hidden_size=runner.hidden_size)
    limit = answer_limit(
        token_ids,
        params,
        vocab_size=runner.vocab_size,
        max_context=min(runner.max_context, runner.num_blocks * block_size),
    )
    sampler = Sampler(params, prompt=token_ids, default_seed=default_seed)
    runner.clear_slot(0)
    events: list[TokenEvent] = []
    start, pending = 0, list(token_ids)
    while not events or events[-1].finish_reason is None:
        end = start + len(pending)
        blocks = range(-(-end // block_size))
        given = [(part.start, part.rows) for part in embeddings] if not start else []
        segment = Segment(
            token_ids=pending, start=start, slot=0, blocks=blocks, want_logits=True, embeddings=given
        )
        choice = sampler.pick(runner.run([segment])[0])
        index = len(events)
        reason = finish_reason(choice.token_id, index + 1, limit, params)
        events.append(
            TokenEvent(
                token_id=choice.token_id,
                index=index,
                finish_reason=reason,
                logprob=choice.logprob,
                top_logprobs=choice.top_logprobs,
            )
        )
        start, pending = end, [choice.token_id]
    return events
