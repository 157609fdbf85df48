r"""The pre-tokeniser: where byte-pair merges may not cross.

The alternatives, tried in order at each position:

1. a run of Han characters;
2. a word that ends in lower case, after at most one character that is neither letter, number nor line end,
   with an English contraction attached;
3. the same for a word that starts in upper case and may have no lower case at all;
4. digits, at most three together (one for small vocabularies, so that numbers are spelled);
5. a run of punctuation with its leading space and its trailing line ends;
6. white space that ends in line ends, then white space that leaves one character to the next word, then
   the rest.

Letter classes exclude Han, which needs the set intersection ``&&`` of the Rust regex dialect. Source: the
released K3 tokenizer's description.
"""

import re
from collections.abc import Iterator

MAX_CHUNK_CHARS = 400_000
MAX_RUN_CHARS = 25_000

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_RUN = re.compile(r"\s+|\S+")


def split_pattern(digits: int) -> str:
    """Return the regex, in the Rust dialect, for at most `digits` (1 or 3) digits per piece."""
    if digits not in (1, 3):
        raise ValueError(f"digits must be 1 or 3, got {digits!r}")
    return "|".join(
        (
            r"[\p{Han}]+",
            f"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTION}",
            f"{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTION}",
            r"\p{N}" if digits == 1 else r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        )
    )


def cut(text: str) -> Iterator[str]:
    """Cut a text so that no piece makes the regex engine or the merges slow.

    Pieces hold at most 400,000 characters, and at most 25,000 consecutive characters that are all white
    space or all not. The joined pieces equal the text.
    """
    for start in range(0, len(text), MAX_CHUNK_CHARS):
        yield from _cut_runs(text[start : start + MAX_CHUNK_CHARS])


def _cut_runs(chunk: str) -> Iterator[str]:
    if len(chunk) <= MAX_RUN_CHARS:
        yield chunk
        return
    begin = 0
    for run in _RUN.finditer(chunk):
        for at in range(run.start() + MAX_RUN_CHARS, run.end(), MAX_RUN_CHARS):
            yield chunk[begin:at]
            begin = at
    yield chunk[begin:]
