"""Choosing a token from logits.  V = vocabulary, C = tokens still in question.

The order of the steps is vLLM's (the class docstring of ``vllm/v1/sample/sampler.py``), in which bias comes
before the penalties, as it also does in llama.cpp's chain:

1. masks: `LogitMask`, and the stop tokens under ``min_tokens`` or ``ignore_eos``;
   log-probabilities are taken here
2. ``logit_bias``
3. penalties: repetition, frequency, presence
4. temperature 0: the likeliest token, and none of what follows
5. temperature
6. ``min_p`` and ``top_k``; each keeps the likeliest, so their order makes no difference
7. ``top_p``, a share of what is left
8. one draw

A `LookaheadMask` may refuse the drawn token: then it is masked too, and the steps from 2 on are done again
with a draw of their own, which leaves the others as likely as they are to each other.

``min_tokens`` and the penalties are vLLM's: repetition looks at the prompt too, frequency and presence at
generated tokens alone.  ``ignore_eos`` is llama.cpp's: the stop tokens are masked, where vLLM would generate
one and go on behind it.  Where vLLM keeps all tokens that tie at the edge of ``top_k``, the lower ids win
here, so that k means k.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gossamer.engine.api import Choice, EngineError, Logits, LookaheadMask, SamplingParams

Ids = NDArray[np.intp]
Weights = NDArray[np.float64]

FIRST_LOOK = 1024
"""Likeliest tokens that are sorted first in search of the nucleus, which is rarely larger."""
GROWTH = 16
"""By how much more is sorted each time that this was not enough; a flat distribution ends in a full sort."""

MAX_REFUSALS = 32
"""Draws that a `LookaheadMask` may refuse before it must say what it allows."""


class Sampler:
    """Chooses the tokens of one sequence, and remembers what they make of the next choice.

    The draw of a step depends on the seed and on how many tokens came before, and on nothing else: the
    same logits give the same tokens, whatever else is in the batch.

    Args:
        params: How to choose.
        prompt: Token ids that ``repetition_penalty`` counts as said already.
        default_seed: For params without a seed; None takes fresh entropy.
    """

    def __init__(
        self, params: SamplingParams, *, prompt: Sequence[int] = (), default_seed: int | None = None
    ):
        self._params = params
        seed = default_seed if params.seed is None else params.seed
        self._key = secrets.randbits(64) if seed is None else seed & (2**64 - 1)
        self._mask_state = None if params.logit_mask is None else params.logit_mask.start()
        self._lookahead = params.logit_mask if isinstance(params.logit_mask, LookaheadMask) else None
        self._step = 0
        self._stops = _index(params.stop_token_ids)
        self._biased = _index(params.logit_bias)
        self._bias = np.array(list(params.logit_bias.values()), dtype=np.float64)
        self._said = _Tally(prompt if params.repetition_penalty != 1 else ())
        self._generated = _Tally(())

    def pick(self, logits: Logits) -> Choice:
        """The next token.

        Args:
            logits: [V] float32; stays as it was.

        Raises:
            EngineError: NaN or +inf logits, or masks that forbid everything.
        """
        masked = self._mask(logits)
        token_id = self._take(masked, 0)
        mask = self._lookahead
        if mask is not None:
            num_refusals = 0
            while not mask.allows(self._mask_state, token_id):
                num_refusals += 1
                # The mask may have returned its input, which is not ours to change.
                masked = masked.copy() if num_refusals == 1 else masked
                masked[token_id] = -np.inf
                if num_refusals == MAX_REFUSALS:
                    masked = mask.narrow(self._mask_state, masked)
                token_id = self._take(masked, num_refusals)
        choice = _choice(token_id, masked, self._params.logprobs)
        self._remember(token_id)
        return choice

    def _take(self, masked: Logits, attempt: int) -> int:
        """One token of masked logits [V]."""
        adjusted = self._adjust(masked)
        best = int(adjusted.argmax())
        peak = float(adjusted[best])
        self._check(peak)
        return best if self._params.temperature == 0 else self._draw(adjusted, peak, attempt)

    def _mask(self, logits: Logits) -> Logits:
        mask = self._params.logit_mask
        masked = logits if mask is None else mask.apply(self._mask_state, logits)
        if self._stops_are_masked() and self._stops.size:
            # The mask may have returned its input, which is not ours to change.
            masked = masked.copy()
            masked[self._stops] = -np.inf
        return masked

    def _stops_are_masked(self) -> bool:
        return self._params.ignore_eos or self._step < self._params.min_tokens

    def _adjust(self, masked: Logits) -> NDArray[np.floating]:
        """Logits with bias and penalties; the input itself where neither changes anything."""
        p = self._params
        said = self._said.token_ids if p.repetition_penalty != 1 else None
        generated = self._generated if p.frequency_penalty or p.presence_penalty else None
        if not self._biased.size and said is None and generated is None:
            return masked
        logits = masked.astype(np.float64)
        logits[self._biased] += self._bias
        if said is not None:
            x = logits[said]
            logits[said] = np.where(x > 0, x / p.repetition_penalty, x * p.repetition_penalty)
        if generated is not None:
            taken = p.frequency_penalty * generated.counts + p.presence_penalty
            logits[generated.token_ids] -= taken
        return logits

    def _check(self, peak: float) -> None:
        if np.isnan(peak) or peak == np.inf:
            raise EngineError("the model produced NaN or infinite logits; its weights are damaged")
        if peak > -np.inf:
            return
        if self._stops_are_masked() and self._stops.size:
            p = self._params
            cause = "ignore_eos" if p.ignore_eos else f"min_tokens={p.min_tokens}"
            raise EngineError(
                f"{cause} forbids the stop tokens and the logit mask forbids every other token at step "
                f"{self._step}; leave {cause.partition('=')[0]} out"
            )
        raise EngineError("the logit mask forbids every token")

    def _draw(self, logits: NDArray[np.floating], peak: float, attempt: int) -> int:
        """One token of adjusted logits [V]."""
        p = self._params
        token_ids: Ids | None = None
        # Before the temperature and min_p, which change nobody's rank: exp is then taken of k tokens only.
        if p.top_k is not None and p.top_k < logits.size:
            token_ids = _likeliest(logits, p.top_k)
            logits = logits[token_ids]
        # A tiny temperature sends all but the peak to -inf, which is what it means.
        with np.errstate(over="ignore"):
            weights = np.exp((logits.astype(np.float64) - peak) / p.temperature)
        if p.min_p > 0:
            # The peak's weight is 1.
            kept = np.flatnonzero(weights >= p.min_p)
            token_ids, weights = _narrow(token_ids, kept), weights[kept]
        if p.top_p < 1:
            kept = _nucleus(weights, p.top_p)
            token_ids, weights = _narrow(token_ids, kept), weights[kept]
        cumulative = weights.cumsum()
        # side="right" never lands on a token of weight 0.
        drawn = int(cumulative.searchsorted(self._uniform(attempt) * cumulative[-1], side="right"))
        if drawn == weights.size:
            drawn = int(np.flatnonzero(weights)[-1])
        return drawn if token_ids is None else int(token_ids[drawn])

    def _uniform(self, attempt: int) -> float:
        """The number in [0, 1) of this seed, step and attempt: counter-based, so that no draw is skipped."""
        raw = np.random.Philox(key=self._key, counter=self._step + (attempt << 64)).random_raw()
        return (raw >> 11) * 2.0**-53

    def _remember(self, token_id: int) -> None:
        p = self._params
        if p.logit_mask is not None:
            self._mask_state = p.logit_mask.advance(self._mask_state, token_id)
        if p.repetition_penalty != 1:
            self._said.add(token_id)
        if p.frequency_penalty or p.presence_penalty:
            self._generated.add(token_id)
        self._step += 1


class _Tally:
    """Distinct token ids and how often each was added, as arrays that grow with them."""

    def __init__(self, token_ids: Sequence[int]):
        distinct, counts = np.unique(np.array(token_ids, dtype=np.intp), return_counts=True)
        self._place = {int(token_id): place for place, token_id in enumerate(distinct)}
        self._token_ids, self._counts = distinct, counts

    @property
    def token_ids(self) -> Ids:
        """Distinct ids, in no order that matters."""
        return self._token_ids[: len(self._place)]

    @property
    def counts(self) -> NDArray[np.intp]:
        """How often each of `token_ids` was added."""
        return self._counts[: len(self._place)]

    def add(self, token_id: int) -> None:
        """Count one more ``token_id``."""
        size = len(self._place)
        place = self._place.setdefault(token_id, size)
        if place == len(self._token_ids):
            room = np.zeros(max(64, size), dtype=np.intp)
            self._token_ids = np.concatenate([self._token_ids, room])
            self._counts = np.concatenate([self._counts, room])
        self._token_ids[place] = token_id
        self._counts[place] += 1


def _index(token_ids: Iterable[int]) -> Ids:
    return np.array(list(token_ids), dtype=np.intp)


def _narrow(token_ids: Ids | None, kept: Ids) -> Ids:
    return kept if token_ids is None else token_ids[kept]


def _sorted_top(values: NDArray[np.floating], k: int) -> Ids:
    """Places of at least the ``k`` largest of ``values`` [C], largest first, lower places among equals.

    More than k come back where several tie with the k-th: its first k are then the right ones.
    """
    if k >= values.size:
        return np.argsort(-values, kind="stable")
    edge = np.partition(values, values.size - k)[values.size - k]
    places = np.flatnonzero(values >= edge)
    return places[np.argsort(-values[places], kind="stable")]


def _likeliest(values: NDArray[np.floating], k: int) -> Ids:
    """Places of the ``k`` largest of ``values`` [C], ascending, lower places first among equals; k < C."""
    edge = np.partition(values, values.size - k)[values.size - k]
    above = np.flatnonzero(values > edge)
    ties = np.flatnonzero(values == edge)[: k - above.size]
    return np.sort(np.concatenate([above, ties]))


def _nucleus(weights: Weights, top_p: float) -> Ids:
    """Places of the fewest largest weights [C] that reach ``top_p`` of the total together, ascending."""
    target = top_p * weights.sum()
    look = FIRST_LOOK
    while True:
        order = _sorted_top(weights, look)
        reached = weights[order].cumsum()
        # A sorted beginning that reaches the target decides; the rest could not come before it.
        if reached[-1] >= target or order.size == weights.size:
            return np.sort(order[: int(reached.searchsorted(target)) + 1])
        look *= GROWTH


def _choice(token_id: int, masked: Logits, num_top: int | None) -> Choice:
    if num_top is None:
        return Choice(token_id)
    exact = masked.astype(np.float64)
    peak = exact.max()
    log_total = peak + np.log(np.exp(exact - peak).sum())
    top = _sorted_top(masked, num_top)[:num_top] if num_top else ()
    return Choice(
        token_id,
        logprob=float(exact[token_id] - log_total),
        top_logprobs=tuple((int(i), float(exact[i] - log_total)) for i in top if exact[i] > -np.inf),
    )
