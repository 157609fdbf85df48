"""An answer against its question: parsed as any client would, then compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.exam.questions import Question
from gossamer.text import specials, xtml
from gossamer.text.chat import Rendered, render
from gossamer.text.stream import ChatParser, accumulate
from gossamer.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model wrote.

    Attributes:
        reasoning: text of the thought.
        content: text of the response.
        calls: (tool, arguments as JSON text).
        ended: whether the message came to its end before the limit of tokens.
        num_reasoning_tokens: generated before the thought was closed.
    """

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]
    ended: bool
    num_reasoning_tokens: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement of one answer.

    Attributes:
        ended: see `Answer`.
        well_formed: ended, and each call names an offered tool, holds one JSON object with the required
            arguments and no unknown one, and every value has its declared type.
        right_tool: the wanted tool and no other call; without a wanted tool, no call.
        exact: right tool and all arguments equal, nothing more; without a wanted tool, no call and the
            wanted text (or any text that is not blank).
        arguments: (type, value kind, copied) of each wanted argument.
        fault: in a word, what was wrong first; "" for an exact answer.
    """

    ended: bool
    well_formed: bool
    right_tool: bool
    exact: bool
    arguments: tuple[tuple[str, str, bool], ...]
    fault: str
    num_reasoning_tokens: int


def prompt(question: Question, tokenizer: Tokenizer) -> Rendered:
    """The question as the model reads it, its answer opened."""
    return render(
        question.messages, tokenizer=tokenizer, tools=question.tools, reasoning_effort=question.effort
    )


def reference_ids(question: Question, tokenizer: Tokenizer) -> list[int]:
    """A right answer's ids from the end of its thought on; a draft for decoding, nothing is judged by it."""
    message: dict[str, Any] = {
        "role": "assistant",
        "reasoning_content": "",
        "content": question.content or "",
    }
    if question.wanted is not None:
        name, arguments = question.wanted.tool.name, question.wanted.values
        message["tool_calls"] = [{"function": {"name": name, "arguments": arguments}}]
    whole = render([message], tokenizer=tokenizer, reasoning_effort=None, add_generation_prompt=False)
    return [i for i, own in zip(whole.ids, whole.generated, strict=True) if own]


def read(ids: Sequence[int], question: Question, tokenizer: Tokenizer, start: Any = "think") -> Answer:
    """Parse generated ids."""
    parser = ChatParser(tokenizer, question.tools, start=start)
    message = accumulate([*parser.feed(ids), *parser.finish()])
    calls = tuple(
        (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())
    )
    close = tokenizer.special(specials.CLOSE)
    thought = ids.index(close) if close in ids else len(ids)
    return Answer(
        reasoning=message["reasoning_content"],
        content=message["content"],
        calls=calls,
        ended=not parser.truncated,
        num_reasoning_tokens=thought,
    )


def judge(answer: Answer, question: Question) -> Verdict:
    """Compare an answer with what the question wants."""
    calls = [(name, _object(text)) for name, text in answer.calls]
    misfit = next((m for m in (_misfit(n, a, question.tools) for n, a in calls) if m), "")
    wanted = question.wanted
    if wanted is None:
        right, given = not calls, None
    else:
        right, given = len(calls) == 1 and calls[0][0] == wanted.tool.name, calls[0][1] if calls else None
    arguments = tuple(
        (
            "array" if a.parameter.kind == "array" else a.parameter.kind,
            a.value_kind,
            bool(right and given is not None and a.name in given and same(given[a.name], a.value)),
        )
        for a in (wanted.arguments if wanted else ())
    )
    if wanted is None:
        text = answer.content
        equal = bool(text.strip()) if question.content is None else text == question.content
    else:
        equal = all(copied for *_, copied in arguments) and given is not None
        equal = equal and len(given or {}) == len(arguments)
    fault = _fault(answer, misfit, right, equal, bool(calls), wanted is not None)
    return Verdict(
        ended=answer.ended,
        well_formed=answer.ended and not misfit,
        right_tool=right,
        exact=not fault,
        arguments=arguments,
        fault=fault,
        num_reasoning_tokens=answer.num_reasoning_tokens,
    )


def _fault(answer: Answer, misfit: str, right: bool, equal: bool, called: bool, wanted: bool) -> str:
    if not answer.ended:
        return "no end"
    if misfit:
        return misfit
    if not right:
        if wanted:
            return "wrong tool" if called else "no call"
        return "needless call"
    if not equal:
        return "wrong argument" if wanted else "wrong text"
    return ""


def same(given: Any, wanted: Any) -> bool:
    """Equality of JSON values: 3 equals 3.0, but true does not equal 1."""
    if isinstance(given, bool) or isinstance(wanted, bool):
        return given is wanted
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(same, given, wanted))
    if isinstance(wanted, dict):
        if not isinstance(given, dict) or given.keys() != wanted.keys():
            return False
        return all(same(given[key], wanted[key]) for key in wanted)
    return given == wanted


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = xtml.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _misfit(name: str, arguments: dict[str, Any] | None, tools: list[dict[str, Any]]) -> str:
    """Why a call does not fit what was offered; "" if it does."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if name not in schemas:
        return "unknown tool"
    if arguments is None:
        return "not an object"
    schema = schemas[name]
    if any(key not in arguments for key in schema["required"]):
        return "argument missing"
    if any(key not in schema["properties"] for key in arguments):
        return "unknown argument"
    if not all(_has_type(value, schema["properties"][key]) for key, value in arguments.items()):
        return "wrong type"
    return ""


def _has_type(value: Any, schema: dict[str, Any]) -> bool:
    kind = schema["type"]
    if kind == "boolean" or isinstance(value, bool):
        return kind == "boolean" and isinstance(value, bool)
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind == "number":
        return isinstance(value, int | float)
    if kind == "array":
        return isinstance(value, list) and all(_has_type(item, schema["items"]) for item in value)
    if kind == "object":
        return isinstance(value, dict) and all(
            key in schema["properties"] and _has_type(part, schema["properties"][key])
            for key, part in value.items()
        )
    return isinstance(value, str) and value in schema.get("enum", (value,))
