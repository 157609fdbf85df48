"""The string formats that decoding can enforce, each as a pattern that stays inside its definition."""

from __future__ import annotations

from functools import cache

from gossamer.grammar.chars import Regex
from gossamer.grammar.pattern import parse

_YEAR = r"[1-9][0-9]{3}"
# February ends on the 28th: whether it has one day more, a regular expression would have to work out.
_DATE = (
    rf"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_DOMAIN = r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?"
_SITE = rf"{_DOMAIN}(?:\.[a-z0-9](?:[a-z0-9-]{{0,20}}[a-z0-9])?){{0,3}}"
_MAILBOX = r"[a-z0-9_+-]{1,32}(?:\.[a-z0-9_+-]{1,32}){0,3}"
_PATH = r"(?:/[A-Za-z0-9._~-]{1,64}){0,8}/?"
_QUERY = r"(?:\?[A-Za-z0-9._~=&+-]{0,64})?(?:#[A-Za-z0-9._~-]{0,32})?"

PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": r"P(?:[0-9]{1,4}W|[0-9]{1,4}D(?:T[0-9]{1,4}H)?|T[0-9]{1,4}[HMS]|[0-9]{1,4}[YM])",
    "email": rf"{_MAILBOX}@{_DOMAIN}(?:\.[a-z]{{2,10}}){{1,2}}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "ipv6": r"(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|::1|::",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "uri": rf"https?://{_SITE}(?::[1-9][0-9]{{1,3}})?{_PATH}{_QUERY}",
}
"""Format -> pattern of the whole string."""


@cache
def regex(name: str) -> Regex | None:
    """The format as an expression; None where it cannot be enforced."""
    pattern = PATTERNS.get(name)
    return None if pattern is None else _whole(pattern)


def _whole(pattern: str) -> Regex:
    return parse(f"^(?:{pattern})$") if len(pattern) < 480 else parse(pattern)
