from hypothesis import given
from hypothesis import strategies as st

from gossamer.server.stop_strings import StopScanner

TEXT = st.text("ab", max_size=30)
STOPS = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


def shown_by_definition(text: str, stops: list[str]) -> str:
    """Character by character: the first stop string to be completed wins, the longest of several."""
    for end in range(1, len(text) + 1):
        done = [stop for stop in stops if text[:end].endswith(stop)]
        if done:
            return text[: end - max(map(len, done))]
    return text


@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=6))
def test_any_cut_gives_what_the_definition_says(text, stops, cuts):
    cuts = sorted(min(cut, len(text)) for cut in cuts)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    scanner = StopScanner(stops)
    shown, expected = "", shown_by_definition(text, stops)
    for piece in pieces:
        shown += scanner.feed(piece)
        # Nothing is ever shown that the end would have to take back.
        assert expected.startswith(shown)
    assert shown + scanner.flush() == expected
    assert (scanner.hit is not None) == any(stop in text for stop in stops)


@given(TEXT, STOPS)
def test_no_more_is_held_back_than_a_stop_could_need(text, stops):
    scanner = StopScanner(stops)
    scanner.feed(text)
    held = scanner.flush()
    assert held == "" or any(stop.startswith(held) for stop in stops)
