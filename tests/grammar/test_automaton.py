import re

from hypothesis import given
from hypothesis import strategies as st

from gossamer.grammar import chars
from gossamer.grammar.automaton import DONE, NEVER, NONE, Space, utf8
from gossamer.grammar.chars import Alt, Both, Cat, Repeat

LETTERS = st.sampled_from('abé\n"\\\x01汉')
LEAVES = st.lists(LETTERS, min_size=1, max_size=3).map(lambda cs: chars.chars("".join(cs)))


def combined(inner):
    pair = st.lists(inner, min_size=0, max_size=3).map(tuple)
    some = st.lists(inner, min_size=1, max_size=3).map(tuple)
    low = st.integers(0, 2)
    return (
        pair.map(Cat)
        | some.map(Alt)
        | st.tuples(inner, low, low).map(lambda t: Repeat(t[0], t[1], t[1] + t[2]))
        | st.tuples(inner, low).map(lambda t: Repeat(t[0], t[1], None))
    )


REGEXES = st.recursive(LEAVES, combined, max_leaves=8)


def python(regex):
    match regex:
        case chars.Chars():
            return "[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in regex.ranges) + "]"
        case Cat():
            return "".join(f"(?:{python(p)})" for p in regex.parts)
        case Alt():
            return "|".join(f"(?:{python(p)})" for p in regex.parts)
        case Repeat():
            high = "" if regex.high is None else regex.high
            return f"(?:{python(regex.part)}){{{regex.low},{high}}}"


@given(REGEXES, st.text(LETTERS, max_size=6))
def test_matches_what_re_matches(regex, text):
    assert Space().matches(regex, text) == bool(re.fullmatch(python(regex), text))


@given(REGEXES, REGEXES, st.text(LETTERS, max_size=6))
def test_both_is_an_intersection(one, other, text):
    space = Space()
    both = space.matches(Both((one, other)), text)
    assert both == (space.matches(one, text) and space.matches(other, text))


@given(st.lists(REGEXES, min_size=1, max_size=2))
def test_the_cost_is_the_length_of_the_text_that_best_bytes_spell(parts):
    space = Space()
    state = space.state(Both(tuple(parts)))
    cost = space.cost(state)
    if cost == NEVER:
        return
    spelled = bytearray()
    while space.cost(state):
        byte = space.best_byte(state)
        after = space.step(state, byte)
        # No other byte does better.
        others = [space.step(state, b) for b in space.representatives(state)]
        assert min(space.cost(s) for s in others if s != NONE) == space.cost(state) - 1
        spelled.append(byte)
        state = after
    assert space.accepts(state)
    assert len(spelled) == cost
    assert all(space.matches(p, spelled.decode()) for p in parts)


@given(st.lists(st.text(LETTERS, max_size=3), max_size=4), st.text(LETTERS, max_size=4))
def test_without_is_the_complement(words, text):
    assert Space().matches(chars.without(words), text) == (text not in words)


@given(REGEXES, st.text(LETTERS, max_size=5))
def test_quoted_matches_the_text_as_json_has_it(regex, text):
    import json

    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    space = Space()
    assert space.matches(chars.quoted(regex), inside) == space.matches(regex, text)


@given(st.integers(0, 0xD7FF), st.integers(0, 0x10FFFF), st.characters(exclude_categories=["Cs"]))
def test_utf8_covers_a_range_exactly(low, high, char):
    if high < low or high >= 0xD800:
        high = max(low, min(high, 0xD7FF))
    raw = char.encode()
    inside = [
        spans
        for spans in utf8(low, high)
        if len(spans) == len(raw) and all(a <= b <= c for b, (a, c) in zip(raw, spans, strict=True))
    ]
    assert len(inside) == (low <= ord(char) <= high)


def test_an_impossible_intersection_costs_never():
    space = Space()
    state = space.state(Both((Repeat(chars.DIGIT, 2, 2), Repeat(chars.DIGIT, 3, 3))))
    assert space.cost(state) == NEVER
    assert space.state(chars.EPSILON) == DONE
