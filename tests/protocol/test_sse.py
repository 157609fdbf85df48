import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol import sse

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
# Pieces that together make valid, odd and broken streams.
FRAGMENTS = st.lists(
    st.sampled_from(
        [
            b"data: a\n",
            b"data:b\r\n",
            b"data",
            b"\n",
            b"\r",
            b"\r\n",
            b"event: x\n",
            b"id: 7\n",
            b": hi\n",
            b"\xe2\x82",
        ]
    )
    | st.binary(max_size=6),
    max_size=20,
)


def decode(pieces: list[bytes]) -> list[sse.ServerSentEvent]:
    decoder = sse.Decoder()
    return [event for piece in pieces for event in decoder.feed(piece)]


@given(st.lists(LINE, min_size=1, max_size=4), st.none() | LINE.filter(lambda s: s and not s.startswith(" ")))
def test_what_is_encoded_comes_back(lines, name):
    data = "\n".join(lines)
    (event,) = decode([sse.encode(data, event=name)])
    assert event == sse.ServerSentEvent(data=data, event=name or "message")


@given(FRAGMENTS, st.data())
def test_cut_points_do_not_matter(fragments, data):
    stream = b"".join(fragments)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    # A trailing newline settles whether a last CR stood alone, whatever the cuts.
    whole = decode([stream, b"\n"])
    assert decode([*pieces, b"\n"]) == whole
    assert decode([*(bytes([byte]) for byte in stream), b"\n"]) == whole


def test_line_ends_and_fields_of_the_standard():
    stream = b"\xef\xbb\xbfdata: one\rdata:two\r\n\r\n: comment\n\n"
    stream += b"data\n\nid: 5\nevent: e\ndata:  x\n\ndata: cut off"
    assert decode([stream]) == [
        sse.ServerSentEvent(data="one\ntwo"),
        sse.ServerSentEvent(data=""),
        sse.ServerSentEvent(data=" x", event="e", id="5"),
    ]


def test_an_event_name_cannot_forge_a_field():
    with pytest.raises(ValueError, match="line break"):
        sse.encode("x", event="a\ndata: forged")


def test_a_comment_means_nothing():
    assert decode([sse.encode_comment("keep\nalive"), sse.encode("x")]) == [sse.ServerSentEvent(data="x")]


@given(st.text())
def test_json_events_are_one_line_by_any_definition(text):
    """Some clients split decoded text with str.splitlines, which knows more line ends than the standard."""
    event = sse.encode_json({"text": text}).decode()
    line, blank = event.splitlines()
    assert (line[:6], blank) == ("data: ", "")
    assert json.loads(line[6:]) == {"text": text}


def test_line_separators_are_escaped():
    assert sse.encode_json("a\x85b\u2028c\u2029d") == b'data: "a\\u0085b\\u2028c\\u2029d"\n\n'
