"""Log-probabilities of content tokens, each on the piece of content in which its text begins."""

from __future__ import annotations

from collections import deque

from gossamer.engine.api import TokenEvent
from gossamer.protocol.events import TokenLogprob
from gossamer.text.tokenizer import Tokenizer


class ContentLogprobs:
    """Keeps tokens until their text is shown.

    Text lags behind the tokens: a character may take several, and a stop string in the making is held
    back.  Tokens whose text is never shown, because a stop string swallowed it, are never given out.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()

    def add(self, token: TokenEvent, *, begins_at: int) -> None:
        """Take a token whose text begins after ``begins_at`` characters of content.

        Raises:
            ValueError: a token without a log-probability.
        """
        if token.token_id is None or token.logprob is None:
            raise ValueError(f"token {token.index} has no log-probability; the engine was not asked for any")
        top = tuple(self._read(token_id, logprob) for token_id, logprob in token.top_logprobs)
        self._waiting.append((begins_at, self._read(token.token_id, token.logprob, top)))

    def take(self, num_shown: int) -> tuple[TokenLogprob, ...]:
        """The tokens that begin within the first ``num_shown`` characters and were not given out before."""
        taken = []
        while self._waiting and self._waiting[0][0] < num_shown:
            taken.append(self._waiting.popleft()[1])
        return tuple(taken)

    def _read(self, token_id: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        raw = self._tokenizer.token_bytes(token_id)
        named = self._tokenizer.is_special(token_id)
        return TokenLogprob(
            text=raw.decode("utf-8", "replace"), raw=None if named else raw, logprob=logprob, top=top
        )
