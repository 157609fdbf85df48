"""The chat format's markers: tags between control tokens, attributes, and the types of argument values.

An opening tag is ``<|open|>tag key="value"<|sep|>`` and a closing one ``<|close|>tag<|sep|>``. Control
tokens are single ids that text never encodes to; everything else in a marker is ordinary text.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer

# A value ends at the first quote because quotes inside are escaped.
_ATTRIBUTE = re.compile(r'\s([^\s="]+)="([^"]*)"')


class Piece(NamedTuple):
    """A stretch of a prompt before encoding: the name of one control token, or ordinary text."""

    text: str
    control: bool = False


class Marker(NamedTuple):
    """A parsed opening or closing tag."""

    tag: str
    attributes: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ControlIds:
    """The ids that give a token stream its structure."""

    open: int
    close: int
    sep: int
    end_of_msg: int
    eos: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "ControlIds":
        """Look the ids up; a vocabulary without one of them raises TokenizerError."""
        return cls(
            open=tokenizer.special(specials.OPEN),
            close=tokenizer.special(specials.CLOSE),
            sep=tokenizer.special(specials.SEP),
            end_of_msg=tokenizer.special(specials.END_OF_MSG),
            eos=tokenizer.special(specials.EOS),
        )


def escape(value: str) -> str:
    """Escape an attribute value."""
    return value.replace("&", "&amp;").replace('"', "&quot;")


def unescape(value: str) -> str:
    """Undo `escape`; quotes first, so that an escaped ampersand never makes a new escape."""
    return value.replace("&quot;", '"').replace("&amp;", "&")


def open_tag(tag: str, attributes: Iterable[tuple[str, str]] = ()) -> list[Piece]:
    """Return an opening marker.

    Names, quotes and values are pieces of their own, because the model was trained on texts encoded that
    way; merging them would give other ids.
    """
    pieces = [Piece(specials.OPEN, control=True), Piece(tag)]
    for key, value in attributes:
        pieces += (Piece(f" {key}"), Piece('="'), Piece(escape(value)), Piece('"'))
    pieces.append(Piece(specials.SEP, control=True))
    return pieces


def close_tag(tag: str) -> list[Piece]:
    """Return a closing marker."""
    return [Piece(specials.CLOSE, control=True), Piece(tag), Piece(specials.SEP, control=True)]


def parse_marker(text: str) -> Marker:
    """Read what stands between an opening (or closing) control token and its separator."""
    head = text.split(None, 1)[0] if text.strip() else ""
    return Marker(head, {key: unescape(value) for key, value in _ATTRIBUTE.findall(text)})


def type_of(value: Any) -> str:
    """Return the format's name for the type of a JSON value."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, int | float):
        return "number"
    return "object" if isinstance(value, dict) else "array"


def value_text(value: Any) -> str:
    """Return an argument's text: strings raw, everything else as JSON.

    Raises:
        ValueError: the value holds NaN, an infinity or something JSON has no form for.
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def compact_json(value: Any) -> str:
    """Return JSON without spaces, keys sorted at every level, non-ASCII kept."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def loads(text: str) -> Any:
    """Parse strict JSON: NaN and Infinity, which Python accepts, and numbers that overflow are refused.

    Raises:
        ValueError: not JSON, or nested or numbered beyond what this interpreter can hold.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite_float)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite_float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits} is beyond the range of a double")
    return value
