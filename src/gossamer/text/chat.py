"""Renders a conversation in the chat format, piece by piece, so that no text in it can forge a marker.

Order: declared tools, thinking effort, the messages, tool choice and response format, and at last the
opening of the assistant's answer. There is no beginning-of-sequence token. Fixed sentences are part of the
format: the model was trained on exactly these.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gossamer.text import conversation as checks
from gossamer.text import specials, xtml
from gossamer.text.errors import ChatFormatError
from gossamer.text.tokenizer import Tokenizer
from gossamer.text.xtml import Piece, close_tag, open_tag

Message = Mapping[str, Any]

_TOOLS_HEAD = "# Tools\nHere are the available tools, described in JSONSchema.\n\n"
_NEW_TOOLS_HEAD = (
    "## New Tools Available\n"
    "The system dynamically extends the toolset via lazy-loading.\n"
    "You have access to all existing and extended tools.\n"
    "Here are the specs for the extended tools.\n\n"
)
_EFFORT = (
    "`thinking_effort` guides on how much to think in your thinking channel (not including the response "
    "channel), supported values include `low`, `medium`, `high`, and `max`.\n"
    "Now the system is invoked with `thinking_effort={}`."
)
_TOOL_CHOICE = {
    "required": "The system is invoked with `tool_choice=required`.\n"
    "You MUST call tools in the next message.",
    "none": "The system is invoked with `tool_choice=none`.\n"
    "You MUST NOT call any tools in the next message.",
}
_RESPONSE_FORMAT = (
    "The system is invoked with `response_format={}`.\n"
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional formatting."
)
_SCHEMA_HEAD = "\nThe JSON data must match the following schema:\n"


@dataclass(frozen=True, kw_only=True)
class Media:
    """One image's place in the text: its original size in pixels and how many positions it fills."""

    width: int
    height: int
    num_tokens: int

    def __post_init__(self):
        if min(self.width, self.height, self.num_tokens) < 1:
            raise ChatFormatError(f"media: sizes and num_tokens must be at least 1, got {self}")


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A stretch of the rendered prompt that was encoded by itself.

    Attributes:
        text: the text, or the name of the control token.
        ids: its token ids.
        control: whether this is one control token.
        generated: whether the model itself would have produced it, given what stands before (training
            targets; everything of an assistant turn after the generation prompt).
    """

    text: str
    ids: tuple[int, ...]
    control: bool
    generated: bool


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A prompt as token ids.

    Attributes:
        ids: all token ids.
        segments: the same, by segment.
        start: which channel the model writes to next; the start state for the parser.
        media: indices into the given media in the order in which their blocks stand in `ids`; sorting tool
            results may change it.
    """

    ids: tuple[int, ...]
    segments: tuple[Segment, ...]
    start: Literal["think", "response", "message"]
    media: tuple[int, ...]

    @property
    def generated(self) -> tuple[bool, ...]:
        """One flag per id: whether it is the model's own output."""
        return tuple(segment.generated for segment in self.segments for _ in segment.ids)


def render(
    conversation: Sequence[Message],
    *,
    tokenizer: Tokenizer,
    tools: Sequence[Mapping[str, Any]] | None = None,
    reasoning_effort: str | None = "max",
    tool_choice: str | None = None,
    response_format: Mapping[str, Any] | None = None,
    thinking: bool = True,
    add_generation_prompt: bool = True,
    media: Sequence[Media] = (),
) -> Rendered:
    """Render messages shaped as in the OpenAI chat API.

    Args:
        conversation: the messages; an assistant message carries `reasoning_content` (or `reasoning`).
        tokenizer: the vocabulary.
        tools: declared tools; a system message may declare more in its own `tools`.
        reasoning_effort: low, medium, high or max; None leaves the sentence out.
        tool_choice: auto, none or required.
        response_format: an object of type text, json_object or json_schema.
        thinking: False leaves the think blocks and the effort out.
        add_generation_prompt: open the assistant's next message, unless the last one is partial.
        media: one entry per image part, in the order of the conversation.

    Raises:
        ChatFormatError: something the format cannot express, named by message index and key.
    """
    checks.check(
        conversation,
        tools=tools,
        reasoning_effort=reasoning_effort,
        tool_choice=tool_choice,
        response_format=response_format,
    )
    num_images = [_num_images(message) for message in conversation]
    if sum(num_images) != len(media):
        raise ChatFormatError(
            f"media: {len(media)} entries for {sum(num_images)} image parts in the messages"
        )
    first_media = [0, *itertools.accumulate(num_images)]
    writer = _Writer(tokenizer, thinking=thinking, media=media, first_media=first_media)
    if tools:
        writer.prompt(_tool_declare(tools, _TOOLS_HEAD))
    if thinking and reasoning_effort is not None:
        writer.prompt(_system("thinking-effort", _EFFORT.format(reasoning_effort)))
    partial = conversation[-1] if conversation and conversation[-1].get("partial") else None
    for index, message in _in_call_order(conversation[:-1] if partial else conversation):
        writer.message(index, message)
    writer.prompt(_tool_choice(tool_choice))
    writer.prompt(_response_format(response_format))
    if partial is not None:
        writer.partial(len(conversation) - 1, partial)
    elif add_generation_prompt:
        writer.generation_prompt()
    return writer.finish()


class _Writer:
    """Collects segments and remembers what tool results need: the calls they answer."""

    def __init__(
        self, tokenizer: Tokenizer, *, thinking: bool, media: Sequence[Media], first_media: Sequence[int]
    ):
        self._tokenizer = tokenizer
        self._thinking = thinking
        self._media = media
        self._first_media = first_media
        self._media_order: list[int] = []
        self._segments: list[Segment] = []
        self._calls: Sequence[Mapping[str, Any]] = ()
        self._num_results = 0
        self._start: Literal["think", "response", "message"] = "message"

    def prompt(self, pieces: Iterable[Piece]) -> None:
        self._write(pieces, generated=False)

    def message(self, index: int, message: Message) -> None:
        role = message["role"]
        if role == "assistant":
            self._assistant(index, message)
        elif role == "tool":
            self._tool_result(index, message)
        elif message.get("tools"):
            self.prompt(_tool_declare(message["tools"], _NEW_TOOLS_HEAD))
        else:
            self.prompt(open_tag("message", _role(message)))
            self.prompt(self._content(index, message))
            self.prompt(_end_message())

    def generation_prompt(self) -> None:
        self.prompt(open_tag("message", [("role", "assistant")]))
        self._open_channel("think" if self._thinking else "response")

    def _open_channel(self, channel: Literal["think", "response"]) -> None:
        self.prompt(open_tag(channel))
        self._start = channel

    def partial(self, index: int, message: Message) -> None:
        """Leave the message open: in its response, or in its thought while it has no content at all."""
        self.prompt(open_tag("message", _role(message)))
        if self._thinking:
            self._open_channel("think")
            self.prompt(_text(_reasoning(message)))
            if message.get("content") is None:
                return
            self.prompt(close_tag("think"))
        self._open_channel("response")
        self.prompt(self._content(index, message))

    def finish(self) -> Rendered:
        return Rendered(
            ids=tuple(token_id for segment in self._segments for token_id in segment.ids),
            segments=tuple(self._segments),
            start=self._start,
            media=tuple(self._media_order),
        )

    def _assistant(self, index: int, message: Message) -> None:
        self._calls = message.get("tool_calls") or ()
        self._num_results = 0
        self.prompt(open_tag("message", _role(message)))
        if self._thinking:
            self.prompt(open_tag("think"))
            self._generated([*_text(_reasoning(message)), *close_tag("think"), *open_tag("response")])
        else:
            self.prompt(open_tag("response"))
        self._generated([*self._content(index, message), *close_tag("response")])
        if self._calls:
            self._generated(_tool_calls(self._calls))
        self._generated(_end_message())

    def _tool_result(self, index: int, message: Message) -> None:
        self._num_results += 1
        name = self._tool_name(index, message)
        attributes = [("role", "tool"), ("tool", name), ("index", str(self._num_results))]
        self.prompt(open_tag("message", attributes))
        self.prompt(self._content(index, message))
        self.prompt(_end_message())

    def _tool_name(self, index: int, message: Message) -> str:
        named = message.get("tool") or message.get("name")
        if named:
            return named
        if self._num_results <= len(self._calls):
            return self._calls[self._num_results - 1]["function"]["name"]
        raise ChatFormatError(
            f"messages[{index}].tool_call_id: {message.get('tool_call_id')!r} answers no call of the "
            "assistant message before it, and the message has no name"
        )

    def _content(self, index: int, message: Message) -> Iterator[Piece]:
        content = message.get("content")
        if content is None or isinstance(content, str):
            yield from _text(content or "")
            return
        which = self._first_media[index]
        for part in content:
            if part["type"] == "text":
                yield from _text(part["text"])
                continue
            self._media_order.append(which)
            yield from _media_block(self._media[which])
            which += 1

    def _generated(self, pieces: Iterable[Piece]) -> None:
        self._write(pieces, generated=True)

    def _write(self, pieces: Iterable[Piece], *, generated: bool) -> None:
        for text, control in pieces:
            if not text:
                continue
            ids = (self._tokenizer.special(text),) if control else tuple(self._tokenizer.encode(text))
            self._segments.append(Segment(text=text, ids=ids, control=control, generated=generated))


def _text(text: str) -> list[Piece]:
    return [Piece(text)]


def _role(message: Message) -> list[tuple[str, str]]:
    attributes = [("role", message["role"])]
    if message.get("name"):
        attributes.append(("name", message["name"]))
    return attributes


def _reasoning(message: Message) -> str:
    """Blank reasoning, which some clients inject to satisfy a check, is rendered as none."""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    return reasoning if reasoning.strip() else ""


def _end_message() -> list[Piece]:
    return [*close_tag("message"), Piece(specials.END_OF_MSG, control=True)]


def _system(kind: str, body: str) -> list[Piece]:
    return [*open_tag("message", [("role", "system"), ("type", kind)]), Piece(body), *_end_message()]


def _fenced(value: Any) -> str:
    return f"```json\n{xtml.compact_json(value)}\n```"


def _tool_declare(tools: Sequence[Mapping[str, Any]], head: str) -> list[Piece]:
    return _system("tool-declare", head + _fenced(tools))


def _tool_choice(tool_choice: str | None) -> list[Piece]:
    body = _TOOL_CHOICE.get(tool_choice or "auto")
    return _system("tool-choice", body) if body else []


def _response_format(response_format: Mapping[str, Any] | None) -> list[Piece]:
    kind = response_format.get("type") if response_format else None
    if response_format is None or kind in (None, "text"):
        return []
    body = _RESPONSE_FORMAT.format(kind)
    if kind == "json_schema":
        body += _SCHEMA_HEAD + _fenced(response_format["json_schema"]["schema"])
    return _system("response-format", body)


def _tool_calls(calls: Sequence[Mapping[str, Any]]) -> Iterator[Piece]:
    yield from open_tag("tools")
    for number, call in enumerate(calls, start=1):
        function = call["function"]
        yield from open_tag("call", [("tool", function["name"]), ("index", str(number))])
        yield from _arguments(function.get("arguments"))
        yield from close_tag("call")
    yield from close_tag("tools")


def _arguments(arguments: str | Mapping[str, Any] | None) -> Iterator[Piece]:
    """Yield one typed block per argument; text that is not a JSON object is kept whole in a json block."""
    if isinstance(arguments, str) and not arguments.strip():
        return
    try:
        values = xtml.loads(arguments) if isinstance(arguments, str) else arguments or {}
        blocks = [(key, xtml.type_of(value), xtml.value_text(value)) for key, value in values.items()]
    except (AttributeError, ValueError, RecursionError):
        # Objects were checked before; only text can be something else, and is lossless as it stands.
        assert isinstance(arguments, str)
        yield from open_tag("json", [("type", "object")])
        yield Piece(arguments)
        yield from close_tag("json")
        return
    for key, kind, text in blocks:
        yield from open_tag("argument", [("key", key), ("type", kind)])
        yield Piece(text)
        yield from close_tag("argument")


def _num_images(message: Message) -> int:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return 0
    return sum(part["type"] != "text" for part in content)


def _media_block(media: Media) -> list[Piece]:
    return [
        Piece(specials.MEDIA_BEGIN, control=True),
        Piece(f"image {media.width}x{media.height}"),
        Piece(specials.MEDIA_CONTENT, control=True),
        *[Piece(specials.MEDIA_PAD, control=True)] * media.num_tokens,
        Piece(specials.MEDIA_END, control=True),
    ]


def _in_call_order(conversation: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    """Yield (original index, message) with each run of tool results in the order of the calls it answers.

    Results are matched by `tool_call_id` against the last assistant message; a matched result takes its
    tool's name from the call. A run with any unmatched id is left alone.
    """
    calls: dict[str, tuple[int, str]] = {}
    run: list[tuple[int, Message]] = []
    for index, message in enumerate(conversation):
        if message["role"] == "tool":
            run.append((index, message))
            continue
        yield from _ordered_run(run, calls)
        run = []
        if message["role"] == "assistant":
            calls = {}
            for position, call in enumerate(message.get("tool_calls") or ()):
                if call.get("id"):
                    calls.setdefault(call["id"], (position, call["function"]["name"]))
        yield index, message
    yield from _ordered_run(run, calls)


def _ordered_run(
    run: list[tuple[int, Message]], calls: Mapping[str, tuple[int, str]]
) -> list[tuple[int, Message]]:
    matches = [calls.get(message.get("tool_call_id") or "") for _, message in run]
    if any(match is None for match in matches):
        return run
    matched = [(match, entry) for match, entry in zip(matches, run, strict=True) if match is not None]
    matched.sort(key=lambda item: item[0][0])
    return [(index, {**message, "tool": name}) for (_, name), (index, message) in matched]
