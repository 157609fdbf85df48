"""What a generated answer is worth: parsed, compared with the tools offered and with what was wanted.

Shape legend: B = 1 sequence, T tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch

from gossamer.model.transformer import Transformer
from gossamer.text import specials
from gossamer.text.chat import render
from gossamer.text.stream import ChatParser
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.dialogue.generate import Dialogue

MAX_TOKENS = 400
JSON_TYPES = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A model's message, parsed."""

    reasoning: str
    content: str
    calls: list[tuple[str, str]]
    """(tool, arguments as JSON text)."""
    ended: bool
    num_reasoning_tokens: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One answer against its reference."""

    wants_call: bool
    called: bool
    ended: bool
    well_formed: bool
    exact: bool
    """Same calls with the same arguments; without calls: the same content."""
    num_arguments: int
    num_copied: int
    """Reference arguments that the answer gives with the same value."""
    num_reasoning_tokens: int
    effort: str | None


@torch.inference_mode()
def greedy(model: Transformer, prompt: list[int], stop: int, max_tokens: int = MAX_TOKENS) -> list[int]:
    """The most likely continuation, up to `stop` (kept) or `max_tokens`."""
    cache = model.new_cache(1)
    step = torch.tensor([prompt])
    out: list[int] = []
    while len(out) < max_tokens:
        logits = model(step, cache, logits_for="last")
        out.append(int(logits[0, -1].argmax()))
        if out[-1] == stop:
            break
        step = torch.tensor([[out[-1]]])
    return out


def ask(model: Transformer, tokenizer: Tokenizer, dialogue: Dialogue) -> tuple[Answer, dict[str, Any]]:
    """Let the model give a dialogue's first answer; return it with the reference message."""
    first = next(i for i, message in enumerate(dialogue.messages) if message["role"] == "assistant")
    rendered = render(
        dialogue.messages[:first],
        tokenizer=tokenizer,
        tools=dialogue.tools or None,
        reasoning_effort=dialogue.effort,
    )
    end = tokenizer.special(specials.END_OF_MSG)
    ids = greedy(model, list(rendered.ids), end)
    parser = ChatParser(tokenizer, dialogue.tools or None, start=rendered.start)
    deltas = [*parser.feed(ids), *parser.finish()]
    names = [d.name for d in deltas if d.kind == "tool_call_begin"]
    texts = [
        "".join(d.text for d in deltas if d.kind == "tool_call_arguments" and d.index == i)
        for i in range(len(names))
    ]
    reasoning = "".join(d.text for d in deltas if d.kind == "reasoning")
    answer = Answer(
        reasoning=reasoning,
        content="".join(d.text for d in deltas if d.kind == "content"),
        calls=list(zip(names, texts, strict=True)),
        ended=ids[-1] == end,
        num_reasoning_tokens=len(tokenizer.encode(reasoning)),
    )
    return answer, dialogue.messages[first]


def judge(answer: Answer, wanted: dict[str, Any], dialogue: Dialogue) -> Verdict:
    """Compare an answer with the reference message of its dialogue."""
    reference = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in wanted.get("tool_calls") or []
    ]
    given = [(name, _object(text)) for name, text in answer.calls]
    well = answer.ended and all(_fits(name, arguments, dialogue.tools) for name, arguments in given)
    exact = given == reference if reference else not given and answer.content == wanted["content"]
    copied = 0
    for position, (name, arguments) in enumerate(reference):
        if position < len(given) and given[position][0] == name:
            own = given[position][1] or {}
            copied += sum(own.get(key) == value and key in own for key, value in arguments.items())
    return Verdict(
        wants_call=bool(reference),
        called=bool(given),
        ended=answer.ended,
        well_formed=well,
        exact=answer.ended and exact,
        num_arguments=sum(len(arguments) for _, arguments in reference),
        num_copied=copied,
        num_reasoning_tokens=answer.num_reasoning_tokens,
        effort=dialogue.effort,
    )


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _fits(name: str, arguments: dict[str, Any] | None, tools: list[dict[str, Any]]) -> bool:
    """Whether a call names an offered tool, gives what it requires, and each argument has its type."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    if name not in schemas or arguments is None:
        return False
    schema = schemas[name]
    if any(key not in arguments for key in schema["required"]):
        return False
    for key, value in arguments.items():
        declared = schema["properties"].get(key)
        if declared is None or not isinstance(value, JSON_TYPES[declared["type"]]):
            return False
        if isinstance(value, bool) and declared["type"] != "boolean":
            return False
    return True
