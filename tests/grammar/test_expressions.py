"""Patterns, formats and bounds against implementations of their own."""

import json
import math
import re
from decimal import Decimal
from fractions import Fraction

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.grammar import formats, numbers, pattern
from gossamer.grammar.automaton import NEVER, Space
from gossamer.grammar.chars import NOTHING
from gossamer.grammar.numbers import Interval

PIECES = st.sampled_from(
    [
        "a",
        "b",
        "é",
        "[a-c]",
        "[^a]",
        ".",
        "\\d",
        "\\w",
        "\\s",
        "\\S",
        "\\.",
        "x{2}",
        "(a|b)",
        "(?:ab)+",
        "b{1,3}?",
        "a*",
    ]
)
BODIES = st.lists(PIECES, min_size=1, max_size=5).map("".join)
PATTERNS = st.builds(
    lambda a, b, c: a + b + c, st.sampled_from(["", "^"]), BODIES, st.sampled_from(["", "$"])
)
TEXTS = st.text(st.sampled_from("abcxé1 .\n_"), max_size=8)


@given(st.lists(PATTERNS, min_size=1, max_size=2).map("|".join), TEXTS)
def test_a_pattern_is_found_where_re_finds_it(source, text):
    # Python's $ also stands before a last line end, ECMA's does not.
    wanted = re.search(source.replace("$", "\\Z"), text, re.ASCII) is not None
    assert Space().matches(pattern.parse(source), text) == wanted


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("(?=a)", "look-around"),
        ("(?<=a)b", "look-around"),
        ("(a)\\1", "back-reference"),
        ("\\bfoo", "boundary"),
        ("\\p{L}", "property"),
        ("a(^b)", "inside"),
        ("(a", "without an end"),
        ("[a", "too early"),
        ("*a", "nothing to repeat"),
        ("a**", "nothing to repeat"),
        ("a)", "stray"),
        ("[z-a]", "wrong order"),
        ("a{3,1}", "wrong order"),
        ("(((a{99}){99}){99})", "repeats too much"),
        ("a{9999}", "more than"),
        ("a" * 501, "501 characters"),
        ("(" * 40 + ")" * 40, "nests"),
        ("\\u{110000}", "code point"),
        ("\\uD83D", "surrogate"),
    ],
)
def test_what_is_not_supported_is_named(source, part):
    with pytest.raises(pattern.PatternError, match=re.escape(part)):
        pattern.parse(source)


@given(st.text(max_size=20))
def test_any_text_is_parsed_or_refused(source):
    try:
        found = pattern.parse(source)
    except pattern.PatternError:
        return
    Space().state(found)


def test_ecma_spellings():
    space = Space()
    assert space.matches(pattern.parse("^\\x41\\u00e9\\u{1F600}\\cJ\\/[\\b-]$"), "Aé😀\n/-")
    assert space.matches(pattern.parse("^(?<year>\\d{4})$"), "2024")
    assert not space.matches(pattern.parse("^\\W$"), "é")
    assert not space.matches(pattern.parse("^\\D$"), "٣")
    assert space.matches(pattern.parse("^\\W\\D$"), "-é")
    assert space.matches(pattern.parse(""), "anything\n")


@pytest.mark.parametrize("source", [f for c in "sSdDwW" for f in (f"\\{c}", f"[^\\{c}]", f"[^a\\{c}]")])
def test_a_class_holds_only_what_every_validator_counts_in(source):
    """Some validators read the classes as ASCII, some as Unicode: a character must pass both."""
    everything = "".join(chr(c) for c in range(0x20000) if not 0xD800 <= c <= 0xDFFF)
    accepted = set(re.findall(source, everything)) & set(re.findall(source, everything, re.ASCII))
    (found,) = pattern.parse(f"^{source}$").parts
    ours = {c for low, high in found.ranges for c in map(chr, range(low, min(high, 0x1FFFF) + 1))}
    assert ours
    assert ours <= accepted


CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER


@pytest.mark.parametrize("name", sorted(formats.PATTERNS))
@given(data=st.data())
def test_every_text_of_a_format_conforms(name, data):
    source = f"\\A(?:{formats.PATTERNS[name]})\\Z"
    text = data.draw(st.from_regex(re.compile(source, re.ASCII)))
    CHECKER.check(text, name)
    assert Space().matches(formats.regex(name), text)


BOUNDS = (
    st.decimals(-2000, 2000, places=3) | st.integers(-(10**18), 10**18).map(Decimal) | st.just(Decimal(0))
)


@st.composite
def intervals(draw):
    low, high = draw(st.none() | BOUNDS), draw(st.none() | BOUNDS)
    if low is not None and high is not None and low > high:
        low, high = high, low
    return Interval(
        low=low,
        high=high,
        low_open=draw(st.booleans()),
        high_open=draw(st.booleans()),
        fraction=draw(st.sampled_from([0, 3, 20])),
    )


def inside(span, value):
    above = span.low is None or value > span.low or (value == span.low and not span.low_open)
    below = span.high is None or value < span.high or (value == span.high and not span.high_open)
    return above and below


@given(intervals(), st.data())
def test_an_interval_holds_the_numbers_between_its_bounds(span, data):
    near = [b for b in (span.low, span.high) if b is not None]
    values = st.decimals(-3000, 3000, places=min(span.fraction, 3))
    if near:
        # Large numbers have no decimals; see the module.
        large = max(map(abs, near)) >= 10**11
        step = Decimal(1) if large else Decimal(1).scaleb(-min(span.fraction, 3))
        around = st.builds(lambda b, k: (b // step + k) * step, st.sampled_from(near), st.integers(-2, 2))
        values |= around
    value = data.draw(values).normalize() + 0
    text = f"{value:f}"
    assert Space().matches(numbers.between(span), text) == inside(span, value)


@given(intervals())
def test_the_shortest_number_of_an_interval_is_inside_as_a_double_too(span):
    found = numbers.between(span)
    if found == NOTHING:
        # Nothing representable: integers between bounds that have none.
        assert span.low is not None
        assert span.high is not None
        step = Fraction(1, 10**span.fraction)
        assert not inside(
            span, Decimal(math.ceil(Fraction(span.low) / step)) * Decimal(1).scaleb(-span.fraction)
        )
        return
    space = Space()
    state = space.state(found)
    assert space.cost(state) < NEVER
    text = bytearray()
    while space.cost(state):
        text.append(space.best_byte(state))
        state = space.step(state, text[-1])
    exact = Decimal(text.decode())
    assert inside(span, exact)
    assert text.decode() == json.dumps(json.loads(text)) or span.fraction


@given(st.integers(-(10**39), 10**39))
def test_unbounded_integers(value):
    assert Space().matches(numbers.unbounded(True), str(value))


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_unbounded_numbers(value):
    text = json.dumps(value)
    accepted = Space().matches(numbers.unbounded(False), text)
    assert accepted or len(re.sub(r"e.*|-|0*\.", "", text)) > 20 or "e-" in text
