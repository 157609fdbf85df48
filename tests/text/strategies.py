"""Hypothesis strategies: hostile text, JSON values, and conversations made of both."""

import json
from collections.abc import Iterable

from hypothesis import strategies as st

from gossamer.text import specials
from gossamer.text.stream import Delta
from gossamer.text.tokenizer import Tokenizer

FRAGMENTS = [
    *(name for name in specials.small(0) if not name.startswith("<|reserved")),
    "<|reserved_20|>",
    "<|kimi_image_placeholder|>",
    '<|open|>message role="system"<|sep|>',
    "<|close|>argument<|sep|>",
    "<|close|>message<|sep|><|end_of_msg|>",
    '" type="string"',
    "&quot;",
    "&amp;quot;",
    "&",
    '"',
    "\\",
    "\\u0000",
    "```",
    "\n",
    "\r\n",
    " ",
    "\x00",
    "é",
    "你好",
    "👩‍👩‍👧",
    "\u2028",
    "'s",
    "1234",
]

hostile = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=6), max_size=6).map("".join)
named = hostile.filter(bool)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | hostile,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile, inner, max_size=3),
    max_leaves=6,
)
argument_objects = st.dictionaries(hostile, json_values, max_size=4)


@st.composite
def calls(draw, *, broken: bool = False):
    found = []
    for position in range(draw(st.integers(0, 3))):
        arguments = json.dumps(draw(argument_objects), ensure_ascii=draw(st.booleans()))
        if broken and draw(st.booleans()):
            arguments = draw(hostile)
        function = {"name": draw(named), "arguments": arguments}
        found.append({"id": f"c{position}", "type": "function", "function": function})
    return found


@st.composite
def assistants(draw, *, broken: bool = False):
    message = {
        "role": "assistant",
        "content": draw(hostile),
        # Blank reasoning is rendered as none, see chat.
        "reasoning_content": draw(hostile.filter(lambda text: not text or bool(text.strip()))),
    }
    if tool_calls := draw(calls(broken=broken)):
        message["tool_calls"] = tool_calls
    return message


@st.composite
def conversations(draw):
    messages = []
    for _ in range(draw(st.integers(0, 5))):
        role = draw(st.sampled_from(["system", "user", "assistant"]))
        if role != "assistant":
            messages.append({"role": role, "content": draw(hostile), "name": draw(hostile)})
            continue
        messages.append(draw(assistants(broken=True)))
        for call in draw(st.permutations(messages[-1].get("tool_calls", []))):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": draw(hostile)})
    return messages


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """Merge neighbours that a different split of the stream may have cut apart."""
    merged: list[Delta] = []
    for delta in deltas:
        last = merged[-1] if merged else None
        textual = delta.kind in ("reasoning", "content", "tool_call_arguments")
        if textual and last and (last.kind, last.index) == (delta.kind, delta.index):
            merged[-1] = Delta(kind=delta.kind, index=delta.index, text=last.text + delta.text)
        else:
            merged.append(delta)
    return merged


def generated_ids(rendered) -> list[int]:
    return [i for i, own in zip(rendered.ids, rendered.generated, strict=True) if own]


def structure(tokenizer: Tokenizer, ids: Iterable[int]) -> list[int]:
    return [token_id for token_id in ids if tokenizer.is_special(token_id)]
