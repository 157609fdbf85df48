"""The special tokens, and which id each of them has."""

from collections.abc import Mapping

from gossamer.text.errors import TokenizerError

BOS = "[BOS]"
EOS = "[EOS]"
END_OF_MSG = "<|end_of_msg|>"
OPEN = "<|open|>"
CLOSE = "<|close|>"
SEP = "<|sep|>"
MEDIA_BEGIN = "<|media_begin|>"
MEDIA_CONTENT = "<|media_content|>"
MEDIA_END = "<|media_end|>"
MEDIA_PAD = "<|media_pad|>"
UNK = "[UNK]"
PAD = "[PAD]"

PUBLISHED_BASE = 163_584
PUBLISHED_SLOTS = 256
SMALL_SLOTS = 64
# Far above any vocabulary; a damaged id must not become a table of a billion names.
MAX_SLOTS = 65_536

_PUBLISHED_OFFSETS = {
    BOS: 0,
    EOS: 1,
    END_OF_MSG: 2,
    OPEN: 3,
    CLOSE: 4,
    SEP: 5,
    MEDIA_BEGIN: 18,
    MEDIA_CONTENT: 19,
    MEDIA_END: 20,
    MEDIA_PAD: 21,
    UNK: 254,
    PAD: 255,
}
_SMALL_ORDER = (
    BOS,
    EOS,
    END_OF_MSG,
    OPEN,
    CLOSE,
    SEP,
    MEDIA_BEGIN,
    MEDIA_CONTENT,
    MEDIA_END,
    MEDIA_PAD,
    UNK,
    PAD,
)


def published() -> dict[str, int]:
    """Return name -> id of all 256 special slots above the 163,584 ranks of the released K3 vocabulary."""
    named = {name: PUBLISHED_BASE + offset for name, offset in _PUBLISHED_OFFSETS.items()}
    return fill(named, first=PUBLISHED_BASE, slots=PUBLISHED_SLOTS)


def small(first: int, *, slots: int = SMALL_SLOTS) -> dict[str, int]:
    """Return name -> id for a small vocabulary whose last `slots` ids, from `first` on, are special."""
    return fill({name: first + i for i, name in enumerate(_SMALL_ORDER)}, first=first, slots=slots)


def fill(named: Mapping[str, int], *, first: int, slots: int) -> dict[str, int]:
    """Give every unnamed id in first .. first + slots - 1 a reserved name; return them in order of id.

    Raises:
        TokenizerError: a name has an id outside the range, two names share one, or there are too many slots.
    """
    if slots > MAX_SLOTS:
        raise TokenizerError(f"{slots} special slots after {first} ranks; at most {MAX_SLOTS} are accepted")
    by_id: dict[int, str] = {}
    for name, token_id in named.items():
        if not first <= token_id < first + slots:
            raise TokenizerError(
                f"special token {name!r} has id {token_id}, outside {first}..{first + slots - 1}; "
                "specials follow the ranks"
            )
        if token_id in by_id:
            raise TokenizerError(f"special tokens {by_id[token_id]!r} and {name!r} share id {token_id}")
        by_id[token_id] = name
    return {by_id.get(i, f"<|reserved_{i - first}|>"): i for i in range(first, first + slots)}
