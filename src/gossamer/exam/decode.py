"""Greedy decoding that checks many guessed tokens in one pass.

The guess is what followed the last few tokens where they stood before: in a right answer, in the question
or in the model's earlier answers.  Of a guess the model keeps the tokens it would have written itself, so
the text is that of decoding token by token, whatever the guesses are.  One caveat: a pass over several
tokens adds its sums in another order than a pass over one, so where two tokens are equally likely to the
last bits of float32 the choice between them may differ.

Shape legend: T tokens of one pass, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from gossamer.model.transformer import Transformer

MATCH = 3
"""Longest run of tokens that is looked up."""
FIRST_GUESS, LONGEST_GUESS = 6, 48


@dataclass(frozen=True, kw_only=True)
class Generated:
    """One answer.

    Attributes:
        ids: with the stop token where there is one.
        num_passes: forward passes after the prompt's.
    """

    ids: list[int]
    num_passes: int


@dataclass
class Guesser:
    """Finds what is likely to follow by looking back.

    Attributes:
        texts: token ids to look in; the later ones are looked in first.
    """

    texts: list[Sequence[int]] = field(default_factory=list)
    _index: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    _indexed: list[int] = field(default_factory=list)

    def add(self, text: Sequence[int]) -> None:
        """Take one more text; it may grow later."""
        self.texts.append(text)
        self._indexed.append(0)

    def guess(self, recent: Sequence[int], length: int) -> list[int]:
        """Up to `length` tokens that followed the longest known run at the end of `recent`."""
        self._update()
        for run in range(min(MATCH, len(recent)), 0, -1):
            found = self._index.get(tuple(recent[len(recent) - run :]))
            if found is not None:
                text, end = self.texts[found[0]], found[1]
                return list(text[end : end + length])
        return []

    def _update(self) -> None:
        """Index what is new; the place of a run is the latest one that something follows."""
        for number, text in enumerate(self.texts):
            for end in range(max(1, self._indexed[number]), len(text)):
                for run in range(1, min(MATCH, end) + 1):
                    key = tuple(text[end - run : end])
                    known = self._index.get(key)
                    if known is None or known <= (number, end):
                        self._index[key] = (number, end)
            self._indexed[number] = len(text)


@torch.inference_mode()
def plain_greedy(model: Transformer, prompt: Sequence[int], stop: int, max_tokens: int) -> Generated:
    """The likeliest continuation, token by token, up to `stop` (kept) or `max_tokens`."""
    cache = model.new_cache(1)
    step = torch.tensor([list(prompt)])
    ids: list[int] = []
    while len(ids) < max_tokens:
        logits = model(step, cache, logits_for="last")
        ids.append(int(logits[0, -1].argmax()))
        if ids[-1] == stop:
            break
        step = torch.tensor([[ids[-1]]])
    return Generated(ids=ids, num_passes=max(0, len(ids) - 1))


@torch.inference_mode()
def guessed_greedy(
    model: Transformer, prompt: Sequence[int], stop: int, max_tokens: int, texts: Sequence[Sequence[int]] = ()
) -> Generated:
    """As `plain_greedy`, in fewer passes.

    Args:
        model: in evaluation mode.
        prompt: token ids.
        stop: the token that ends an answer.
        max_tokens: most tokens to generate.
        texts: where guesses come from besides the prompt; the last is trusted most.
    """
    cache = model.new_cache(1)
    logits = model(torch.tensor([list(prompt)]), cache, logits_for="last")
    ids = [int(logits[0, -1].argmax())]
    guesser = Guesser()
    for text in ([*prompt], ids, *texts):
        guesser.add(text)
    # The last `num_waiting` ids are settled but not in the cache.
    num_waiting, length, num_passes = 1, FIRST_GUESS, 0
    while ids[-1] != stop and len(ids) < max_tokens:
        guess = guesser.guess(ids, min(length, max_tokens - len(ids)))
        snapshot = cache.snapshot() if guess else None
        block = ids[len(ids) - num_waiting :] + guess
        logits = model(torch.tensor([block]), cache)[0, num_waiting - 1 :]  # [guess + 1, V]
        num_passes += 1
        own = logits.argmax(-1).tolist()
        agreed = next((i for i, g in enumerate(guess) if g != own[i]), len(guess))
        fresh = [*own[: agreed + 1]]
        if stop in fresh:
            fresh = fresh[: fresh.index(stop) + 1]
        ids += fresh[: max_tokens - len(ids)]
        if agreed == len(guess):
            num_waiting, length = 1, min(2 * length, LONGEST_GUESS)
        else:
            assert snapshot is not None
            cache.truncate(snapshot.length, snapshot)
            num_waiting, length = num_waiting + agreed + 1, max(FIRST_GUESS, length // 2)
    return Generated(ids=ids, num_passes=num_passes)
