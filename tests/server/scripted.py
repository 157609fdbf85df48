"""An engine that says given token ids, and remembers what it was asked."""

from collections.abc import Sequence
from typing import Any

from gossamer.engine.api import NO_OPTIONS, Embeddings, RequestOptions, SamplingParams, TokenEvent
from gossamer.text.tokenizer import Tokenizer


class ScriptedEngine:
    """Ends with ``stop`` at a stop token, with ``length`` when the script or the limit runs out.

    The log-probability of the token at index i is -(i + 1); the alternatives count on from its id, each
    one less likely by 1.
    """

    max_context = 4096

    def __init__(self, token_ids: Sequence[int], *, error: Exception | None = None):
        self._script = list(token_ids)
        self._error = error
        self.prompt: list[int] = []
        self.params: SamplingParams | None = None
        self.options = NO_OPTIONS
        self.embeddings: list[Embeddings] = []
        self.num_spoken = 0
        self.closed = False

    async def submit(
        self,
        token_ids: Sequence[int],
        params: SamplingParams,
        options: RequestOptions = NO_OPTIONS,
        *,
        embeddings: Sequence[Embeddings] = (),
    ) -> Any:
        self.prompt, self.params, self.options = list(token_ids), params, options
        self.embeddings = list(embeddings)
        limit = min(len(self._script), params.max_tokens or len(self._script))
        try:
            for index, token in enumerate(self._script[:limit]):
                stop = token in params.stop_token_ids and not params.ignore_eos
                reason = "stop" if stop else "length" if index + 1 == limit and self._error is None else None
                self.num_spoken += 1
                logprob = None if params.logprobs is None else -1.0 - index
                top = tuple((token + i, -1.0 - index - i) for i in range(params.logprobs or 0))
                yield TokenEvent(
                    token_id=token, index=index, finish_reason=reason, logprob=logprob, top_logprobs=top
                )
                if reason:
                    return
            if self._error is not None:
                raise self._error
        finally:
            self.closed = True

    async def close(self) -> None:
        self.closed = True


def speech(tokenizer: Tokenizer, text: str) -> list[int]:
    """Token ids of text in which ``{open}``, ``{close}``, ``{sep}`` and ``{end}`` stand for markers."""
    names = {"open": "<|open|>", "close": "<|close|>", "sep": "<|sep|>", "end": "<|end_of_msg|>"}
    ids: list[int] = []
    for piece in text.replace("{", "}{").split("}"):
        if piece.startswith("{"):
            ids.append(tokenizer.special(names[piece[1:]]))
        else:
            ids += tokenizer.encode(piece)
    return ids
