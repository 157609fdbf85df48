"""Images of Anthropic's and the Responses format: round trips both ways, and what is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.protocol.errors import RequestError
from gossamer.protocol.media import (
    parse_anthropic_image,
    parse_input_image,
    to_anthropic_image,
    to_input_image,
)
from gossamer.protocol.messages import Part

types = st.sampled_from(["image/png", "image/jpeg", "image/webp", "image/gif", "image/x-other"])
base64_text = st.text("ABCDwxyz0189+/=", min_size=1, max_size=40)
remote = st.sampled_from(["https://a.example/b.png", "ms://file-1", "data:image/png,raw", "x"])
caching = st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}])

anthropic_blocks = st.builds(
    lambda source, more: {"type": "image", "source": source, **more},
    st.one_of(
        st.builds(lambda t, d: {"type": "base64", "media_type": t, "data": d}, types, base64_text),
        st.builds(lambda u: {"type": "url", "url": u}, remote),
    ),
    caching,
)
urls = st.one_of(st.builds(lambda t, d: f"data:{t};base64,{d}", types, base64_text), remote)
input_items = st.builds(
    lambda url, detail, more: {"type": "input_image", "image_url": url, **detail, **more},
    urls,
    st.sampled_from([{}, {"detail": "low"}]),
    caching,
)


@given(anthropic_blocks)
def test_anthropic_blocks_come_back(block):
    part = parse_anthropic_image(block, "at")
    assert to_anthropic_image(part) == block
    assert parse_anthropic_image(to_anthropic_image(part), "at") == part


@given(input_items)
def test_input_images_come_back(item):
    part = parse_input_image(item, "at")
    assert to_input_image(part) == item
    assert parse_input_image(to_input_image(part), "at") == part


@given(urls, st.booleans())
def test_parts_of_the_chat_format_go_through_both(url, bare):
    part = Part(kind="image_url", media={"type": "image_url", "image_url": url if bare else {"url": url}})
    for there, back in ((to_anthropic_image, parse_anthropic_image), (to_input_image, parse_input_image)):
        again = back(there(part), "at")
        assert again.media is not None
        assert again.media["image_url"] == {"url": url}


@pytest.mark.parametrize(
    ("block", "param"),
    [
        ({"type": "image"}, "at.source"),
        ({"type": "image", "source": "x"}, "at.source"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "at.source.type"),
        ({"type": "image", "source": {"type": "base64", "data": "AA"}}, "at.source.media_type"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "a;b", "data": "AA"}},
            "at.source.media_type",
        ),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}, "at.source.data"),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": 3}},
            "at.source.data",
        ),
        ({"type": "image", "source": {"type": "url", "url": ""}}, "at.source.url"),
        ({"type": "image", "source": {"type": "url", "url": "x", "more": 1}}, "at.source.more"),
        ({"type": "image", "source": {"type": "url", "url": "x"}, "title": "t"}, "at.title"),
    ],
)
def test_blocks_that_cannot_be_read_are_named(block, param):
    with pytest.raises(RequestError) as caught:
        parse_anthropic_image(block, "at")
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "input_image"}, "at.image_url"),
        ({"type": "input_image", "image_url": {"url": "x"}}, "at.image_url"),
        ({"type": "input_image", "file_id": "file-1"}, "at.file_id"),
        ({"type": "input_image", "image_url": "x", "detail": 3}, "at.detail"),
        ({"type": "input_image", "image_url": "x", "width": 3}, "at.width"),
    ],
)
def test_items_that_cannot_be_read_are_named(item, param):
    with pytest.raises(RequestError) as caught:
        parse_input_image(item, "at")
    assert caught.value.param == param


def test_what_another_format_cannot_carry_is_refused_not_dropped():
    detailed = Part(kind="image_url", media={"type": "image_url", "image_url": {"url": "x", "detail": "low"}})
    with pytest.raises(RequestError, match="detail"):
        to_anthropic_image(detailed)
    odd = Part(kind="image_url", media={"type": "image_url", "image_url": {"url": "x", "zoom": 2}})
    with pytest.raises(RequestError, match="zoom"):
        to_input_image(odd)
    for write in (to_anthropic_image, to_input_image):
        with pytest.raises(RequestError, match="no image"):
            write(Part(kind="text", text="x"))
