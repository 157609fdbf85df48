"""Which tokens of an assistant's turn decide where to copy from.

In a call almost every token is format or goes on with a copy that has begun.  What is right is settled by a
few: the first token of a tool's name, of an argument's name, its type, the first token of its value, and
whether another argument or call follows.  They are so few that a mean over all tokens hardly sees them;
here they are found, to weigh them in the loss and to measure them by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gossamer.text import specials
from gossamer.text.chat import Rendered, Segment
from gossamer.text.tokenizer import Tokenizer

KINDS = ("none", "tool", "name", "type", "value", "next", "thought")
"""By code: nothing decided; first token of a tool's name, of an argument's name, its type, first token of its
value; whether another argument or call follows; the same choices made in a thought."""
ATTRIBUTES = {" tool": "tool", " key": "name", " type": "type"}
LINE = re.compile(r"^([^\s=]+)=(?=\S)", re.MULTILINE)
"""An argument with its value in a thought."""
CHOICE = re.compile(r"^(?=\S+ (?:fits|needs)\b|No other value)", re.MULTILINE)
"""Where a tool is named, or the list of values ends."""
LIST = re.compile(r"(?:\bCall it with|^\S+ needs) \[(.+)\]\.$", re.MULTILINE)
"""Names of arguments in a row."""
ITEM = re.compile(r'(?:^|(?<=,))"')


def kinds(rendered: Rendered, tokenizer: Tokenizer) -> list[int]:
    """One code per id, an index into `KINDS`; zero for everything the model does not write itself."""
    found: list[int] = []
    tag, closing, in_tag = "", False, False
    before: tuple[str, str] = ("", "")
    after_block = False
    for segment in rendered.segments:
        own = [0] * len(segment.ids)
        if segment.generated:
            if segment.control and after_block:
                own[0] = KINDS.index("next")
            elif not segment.control and in_tag and before[1] == '="' and before[0] in ATTRIBUTES:
                own[0] = KINDS.index(ATTRIBUTES[before[0]])
            elif not segment.control and not in_tag and not closing and tag == "argument":
                own[0] = KINDS.index("value")
            elif not segment.control and not in_tag and not closing and tag == "think":
                for number in _starts(segment, tokenizer):
                    own[number] = KINDS.index("thought")
        found += own
        after_block = False
        if segment.control:
            after_block = segment.text == specials.SEP and closing and tag in ("argument", "call")
            in_tag = segment.text in (specials.OPEN, specials.CLOSE)
            closing = segment.text == specials.CLOSE if in_tag else closing
            tag = "" if in_tag else tag
        elif in_tag and not tag:
            tag = segment.text
        before = (before[1], segment.text)
    return found


def _starts(segment: Segment, tokenizer: Tokenizer) -> Iterator[int]:
    """The tokens of a thought in which something chosen begins."""
    wanted = sorted({len(segment.text[:at].encode()) for at in choices(segment.text)})
    end, which = 0, 0
    for number, token in enumerate(segment.ids):
        end += len(tokenizer.token_bytes(token))
        here = which
        while which < len(wanted) and wanted[which] < end:
            which += 1
        if which > here:
            yield number


def choices(thought: str) -> Sequence[int]:
    """Where in a thought a tool's or argument's name or a value begins, as indices of characters."""
    found = [match.start() for match in CHOICE.finditer(thought)]
    for match in LINE.finditer(thought):
        found += [match.start(), match.end()]
    for match in LIST.finditer(thought):
        found += [match.start(1) + quote.end() for quote in ITEM.finditer(match[1])]
    return sorted(set(found))
