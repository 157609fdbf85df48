"""An engine and a tokenizer as an `Upstream`: messages in, events out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property

from gossamer.engine.api import (
    DEFAULT_MAX_TOKENS,
    BanTokens,
    ContextLengthError,
    Embeddings,
    Engine,
    EngineError,
    LogitMask,
    RequestOptions,
    SamplingParams,
    SubmitError,
    TokenEvent,
)
from gossamer.engine.batched import QueueFullError
from gossamer.gateway.upstream import Context, Meter
from gossamer.protocol.errors import ApiError, RequestError, context_exceeded
from gossamer.protocol.events import (
    ContentDelta,
    Event,
    Finish,
    FinishReason,
    PromptUsage,
    ReasoningDelta,
    ToolCallArguments,
    ToolCallBegin,
    ToolCallEnd,
    Usage,
)
from gossamer.protocol.request import Request
from gossamer.server.constraints import Constraints, is_constrained
from gossamer.server.images import ImageEncoder, ReadImage, SentImage, images_of, place
from gossamer.server.logprobs import ContentLogprobs
from gossamer.server.stop_strings import StopScanner
from gossamer.text.chat import Media, Rendered, render
from gossamer.text.errors import ChatFormatError
from gossamer.text.specials import MEDIA_PAD
from gossamer.text.stream import ChatParser, Delta
from gossamer.text.tokenizer import Tokenizer

STOP_TOKENS = ("<|end_of_msg|>", "[EOS]")
QUEUE_RETRY_S = 1
STRUCTURE_TOKENS = ("<|open|>", "<|close|>", "<|sep|>")


@dataclass(frozen=True, kw_only=True)
class EngineUpstream:
    """Renders, submits, parses.  See `gossamer.gateway.upstream.Upstream`.

    ``vocab_size`` is the model's; ids that the tokenizer does not know, and special tokens that have no
    place in an answer (media, padding, reserved), are never sampled.  ``context_limit`` None leaves the
    context to the engine.  Without ``images`` the model reads text only.
    """

    engine: Engine
    tokenizer: Tokenizer
    vocab_size: int
    context_limit: int | None = None
    images: ImageEncoder | None = None

    @property
    def max_context(self) -> int:
        """Tokens that prompt and answer may take together: what the engine holds, or less by choice."""
        if self.context_limit is None:
            return self.engine.max_context
        return min(self.engine.max_context, self.context_limit)

    async def tokenize(self, request: Request) -> Sequence[int]:
        """See `gossamer.gateway.upstream.Upstream.tokenize`; of images the sizes alone are read."""
        if sent := images_of(request):
            return (await self._seen(sent, request))[0].ids
        return (await asyncio.to_thread(self.render, request)).ids

    def send(self, request: Request, context: Context) -> AsyncGenerator[Event]:
        """See `gossamer.gateway.upstream.Upstream.send`."""
        sent = images_of(request)
        if sent:
            return self._answer_about(sent, request, context)
        rendered = self.render(request)
        self._check_length(request, rendered)
        if is_constrained(request):
            return self._constrained(request, rendered, context)
        return self._answer(request, rendered, self._submit(request, rendered, context), context.meter)

    def _check_length(self, request: Request, rendered: Rendered) -> None:
        num_prompt = len(rendered.ids)
        if num_prompt + (request.max_tokens or 1) > self.max_context:
            raise context_exceeded(self.max_context, num_prompt, request.max_tokens)

    async def _seen(
        self, sent: Sequence[SentImage], request: Request
    ) -> tuple[Rendered, list[ReadImage], ImageEncoder]:
        """The prompt with its images' places; raises RequestError where one cannot be read."""
        if self.images is None:
            where = sent[0].where
            raise RequestError(
                f"{where} is an image; this model reads text only", param=where, code="unsupported_value"
            )
        read = await self.images.read(sent)
        return self.render(request, media=[image.media for image in read]), read, self.images

    async def _answer_about(
        self, sent: Sequence[SentImage], request: Request, context: Context
    ) -> AsyncGenerator[Event]:
        """Sizes first: a conversation that does not fit is refused before the tower works on it."""
        rendered, images, encoder = await self._seen(sent, request)
        self._check_length(request, rendered)
        rows = await encoder.encode(images)
        embeddings = place(rendered, self.tokenizer.special(MEDIA_PAD), images, rows)
        if is_constrained(request):
            answer = self._constrained(request, rendered, context, embeddings)
        else:
            tokens = self._submit(request, rendered, context, embeddings=embeddings)
            answer = self._answer(request, rendered, tokens, context.meter)
        async with aclosing(answer):
            async for event in answer:
                yield event

    async def _constrained(
        self,
        request: Request,
        rendered: Rendered,
        context: Context,
        embeddings: Sequence[Embeddings] = (),
    ) -> AsyncGenerator[Event]:
        """An answer of a fixed shape; planned in a thread, for a large schema takes a while."""
        limit = self._limit(request, len(rendered.ids))
        mask = await asyncio.to_thread(self.constraints.mask, request, rendered, limit=limit)
        tokens = self._submit(request, rendered, context, mask, embeddings)
        async with aclosing(self._answer(request, rendered, tokens, context.meter)) as events:
            async for event in events:
                yield event

    def _submit(
        self,
        request: Request,
        rendered: Rendered,
        context: Context,
        mask: LogitMask | None = None,
        embeddings: Sequence[Embeddings] = (),
    ) -> AsyncIterator[TokenEvent]:
        try:
            params = self.sampling_params(request, mask)
            if self.context_limit is not None:
                params = replace(params, max_tokens=self._limit(request, len(rendered.ids)))
            options = RequestOptions(fairness_key=context.tenant, cache_salt=context.tenant)
            tokens = self.engine.submit(rendered.ids, params, options, embeddings=embeddings)
        except QueueFullError as error:
            raise ApiError(
                f"the engine is overloaded: {error}",
                status=503,
                type="engine_overloaded_error",
                code="engine_overloaded",
                retry_after_s=QUEUE_RETRY_S,
            ) from None
        except ContextLengthError as error:
            # Only an engine that holds less than it says.
            raise context_exceeded(error.max_context, len(rendered.ids), request.max_tokens) from None
        except SubmitError as error:
            raise RequestError(str(error)) from None
        context.meter.prompt_tokens = len(rendered.ids)
        return tokens

    def render(self, request: Request, *, media: Sequence[Media] = ()) -> Rendered:
        """The prompt; ``media`` has an entry for each image part.

        Raises:
            RequestError: the chat format cannot express it.
        """
        try:
            return render(
                [message.to_dict() for message in request.messages],
                tokenizer=self.tokenizer,
                tools=request.tools or None,
                reasoning_effort=request.reasoning_effort,
                tool_choice=request.tool_choice,
                response_format=request.response_format,
                media=media,
            )
        except ChatFormatError as error:
            raise RequestError(str(error)) from None

    def _limit(self, request: Request, num_prompt: int) -> int:
        """Most tokens that the answer can have."""
        return min(request.max_tokens or DEFAULT_MAX_TOKENS, self.max_context - num_prompt)

    @cached_property
    def constraints(self) -> Constraints:
        """Plans answers of a fixed shape."""
        return Constraints(self.tokenizer)

    def sampling_params(self, request: Request, mask: LogitMask | None = None) -> SamplingParams:
        """How the engine samples for this request; ``mask`` None lets every token of an answer in."""
        stop = frozenset(self.tokenizer.special(name) for name in STOP_TOKENS)
        wanted = stop | {self.tokenizer.special(name) for name in STRUCTURE_TOKENS}
        banned = {i for i in self.tokenizer.specials.values() if i not in wanted}
        banned.update(range(self.tokenizer.vocab_size, self.vocab_size))
        return SamplingParams(
            max_tokens=request.max_tokens,
            min_tokens=request.min_tokens,
            ignore_eos=request.ignore_eos,
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            repetition_penalty=request.repetition_penalty,
            logit_bias=request.logit_bias,
            logprobs=request.logprobs,
            seed=request.seed,
            stop_token_ids=stop,
            logit_mask=mask or BanTokens(frozenset(banned)),
        )

    async def _answer(
        self, request: Request, rendered: Rendered, tokens: AsyncIterator[TokenEvent], meter: Meter
    ) -> AsyncGenerator[Event]:
        # Ids count on through the conversation, so that no two calls of it share one.
        earlier = sum(len(message.tool_calls) for message in request.messages)
        declared = [*request.tools, *(tool for message in request.messages for tool in message.tools)]
        parser = ChatParser(
            self.tokenizer,
            declared,
            start=rendered.start,
            id_factory=lambda name, index: f"{name}:{earlier + index}",
        )
        reader = _Reader(request, self.tokenizer)
        counter = _Counter(thinking=rendered.start == "think", close=self.tokenizer.special("<|close|>"))
        stopped = False
        assert isinstance(tokens, AsyncGenerator)
        async with aclosing(tokens):
            async for token in _as_api_errors(tokens):
                counter.count(token)
                meter.completion_tokens = counter.num_tokens
                if counter.num_tokens == 1:
                    # Engines without a prefix cache do not count what was found in one.
                    meter.cached_tokens = getattr(tokens, "cached_tokens", 0)
                    yield PromptUsage(prompt_tokens=len(rendered.ids), cached_tokens=meter.cached_tokens)
                assert token.token_id is not None
                stopped = token.finish_reason == "stop"
                was_content = parser.in_content
                deltas = parser.feed([token.token_id])
                if was_content or any(delta.kind == "content" for delta in deltas):
                    reader.note(token)
                for event in reader.read(deltas):
                    yield event
                if reader.finish is not None or (parser.ended and counter.is_enough(request)):
                    break
        if reader.finish is None:
            for event in reader.read(parser.finish(stopped=stopped), last=True):
                yield event
        yield Usage(
            prompt_tokens=len(rendered.ids),
            completion_tokens=counter.num_tokens,
            cached_tokens=meter.cached_tokens or 0,
            reasoning_tokens=counter.num_reasoning,
        )
        yield Finish(reader.finish or parser.finish_reason() or "stop", reader.stop)


class _Reader:
    """Deltas to events, ended early by a stop string or after the one call that was allowed."""

    def __init__(self, request: Request, tokenizer: Tokenizer):
        self._one_call = not request.parallel_tool_calls
        self._no_call = request.tool_choice == "none"
        self._scanner = StopScanner(request.stop)
        self._logprobs = None if request.logprobs is None else ContentLogprobs(tokenizer)
        self._is_control = tokenizer.is_special
        self._num_said = 0
        self._num_shown = 0
        self.finish: FinishReason | None = None

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer."""
        return self._scanner.hit

    def note(self, token: TokenEvent) -> None:
        """Take a token of the content; before its own text is read."""
        assert token.token_id is not None
        # A control token ends a character that was cut short, but says nothing itself.
        if self._logprobs is not None and not self._is_control(token.token_id):
            self._logprobs.add(token, begins_at=self._num_said)

    def read(self, deltas: Iterable[Delta], *, last: bool = False) -> Iterator[Event]:
        for delta in deltas:
            if self.finish is not None:
                return
            yield from self._event(delta)
        if last and self.finish is None:
            yield from self._held_content()

    def _event(self, delta: Delta) -> Iterator[Event]:
        if delta.kind == "content":
            self._num_said += len(delta.text)
            if text := self._scanner.feed(delta.text):
                yield self._shown(text)
            if self._scanner.hit is not None:
                self.finish = "stop"
            return
        yield from self._held_content()
        if self._no_call and delta.kind.startswith("tool_call"):
            # The model was told to make none; where it does all the same, its answer ends.
            self.finish = "stop"
            return
        match delta.kind:
            case "reasoning":
                yield ReasoningDelta(delta.text)
            case "tool_call_begin":
                yield ToolCallBegin(index=delta.index, id=delta.id, name=delta.name)
            case "tool_call_arguments":
                yield ToolCallArguments(index=delta.index, text=delta.text)
            case "tool_call_end":
                yield ToolCallEnd(index=delta.index)
                if self._one_call:
                    self.finish = "tool_calls"

    def _held_content(self) -> Iterator[Event]:
        if text := self._scanner.flush():
            yield self._shown(text)

    def _shown(self, text: str) -> ContentDelta:
        self._num_shown += len(text)
        return ContentDelta(text, () if self._logprobs is None else self._logprobs.take(self._num_shown))


class _Counter:
    """Tokens of the answer, and those of them before the reasoning was closed."""

    def __init__(self, *, thinking: bool, close: int):
        self._thinking = thinking
        self._close = close
        self.num_tokens = 0
        self.num_reasoning = 0

    def count(self, token: TokenEvent) -> None:
        self.num_tokens += 1
        self._thinking = self._thinking and token.finish_reason != "stop" and token.token_id != self._close
        self.num_reasoning += self._thinking

    def is_enough(self, request: Request) -> bool:
        """Whether a closed message ends the work: some requests ask for tokens, not for an answer."""
        return not request.ignore_eos and self.num_tokens >= request.min_tokens


async def _as_api_errors(tokens: AsyncIterator[TokenEvent]) -> AsyncGenerator[TokenEvent]:
    try:
        async for token in tokens:
            if token.token_id is None:
                if token.finish_reason == "deadline":
                    raise ApiError(
                        "the answer was not finished in the time that it was given; ask again with a lower "
                        "max_completion_tokens or when the server is less busy",
                        status=504,
                        code="deadline_exceeded",
                    )
                raise ApiError("the server is shutting down", status=503, code="server_shutdown")
            yield token
    except EngineError as error:
        raise ApiError(str(error), code="engine_error") from None
