"""Whatever is sent: a clear error, or the right pixels."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gossamer.images.data_url import decode_base64, decode_data_url
from gossamer.images.decode import FORMATS, MAX_PIXELS, decode, probe
from gossamer.images.errors import ImageError


def encoded(image, form="PNG", **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def noise(width=9, height=7, channels=3, seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)
    return Image.fromarray(values[..., 0] if channels == 1 else values)


def bomb(width, height):
    """A PNG that claims so many pixels and holds none."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("form", ["PNG", "WEBP", "GIF"])
def test_pixels_come_back(form):
    image = noise(channels=1).convert("RGB")
    data = encoded(image, form, **({"lossless": True} if form == "WEBP" else {}))
    assert probe(data) == (9, 7)
    np.testing.assert_array_equal(np.asarray(decode(data)), np.asarray(image))


def test_jpeg_comes_back_about_right():
    image = Image.new("RGB", (40, 30), (200, 30, 90))
    found = np.asarray(decode(encoded(image, "JPEG"))).astype(int)
    assert np.abs(found - np.asarray(image)).max() <= 3


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK"])
def test_modes_without_alpha_become_rgb(mode):
    image = noise().convert(mode)
    data = encoded(image, "JPEG" if mode == "CMYK" else "PNG")
    found = decode(data)
    assert found.mode == "RGB"
    if mode != "CMYK":
        np.testing.assert_array_equal(np.asarray(found), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_modes_with_alpha_keep_it(mode):
    image = noise(channels=4).convert(mode)
    np.testing.assert_array_equal(np.asarray(decode(encoded(image))), np.asarray(image.convert("RGBA")))


def test_a_transparent_colour_becomes_alpha():
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.putdata([0, 1])
    found = np.asarray(decode(encoded(palette, transparency=1)))
    assert found.tolist() == [[[255, 0, 0, 255], [0, 255, 0, 0]]]


def test_sixteen_bits_keep_their_range():
    levels = np.array([[0, 0x0100, 0x8000, 0xFFFF]], np.uint16)
    found = np.asarray(decode(encoded(Image.fromarray(levels))))
    assert found[0, :, 0].tolist() == [0, 1, 128, 255]


def test_one_pixel():
    image = Image.new("RGB", (1, 1), (1, 2, 3))
    assert np.asarray(decode(encoded(image))).tolist() == [[[1, 2, 3]]]


def test_a_hundred_thousand_pixels_wide():
    image = Image.new("RGB", (100_000, 3), (9, 8, 7))
    assert probe(encoded(image)) == (100_000, 3)
    assert decode(encoded(image)).size == (100_000, 3)


@pytest.mark.parametrize(
    ("width", "height"), [(50_000, 50_000), (MAX_PIXELS + 1, 1), (8_000, 8_000), (2**31 - 1, 2)]
)
def test_a_bomb_is_refused_before_it_is_decoded(width, height):
    for read in (probe, decode):
        with pytest.raises(ImageError, match=r"pixels|damaged"):
            read(bomb(width, height))


@pytest.mark.parametrize("form", ["PNG", "GIF", "WEBP"])
def test_animations_are_refused(form):
    frames = [noise(seed=seed) for seed in range(3)]
    data = encoded(frames[0], form, save_all=True, append_images=frames[1:])
    for read in (probe, decode):
        with pytest.raises(ImageError, match="animated"):
            read(data)


def test_a_photograph_with_a_thumbnail_is_no_animation():
    data = encoded(noise(30, 20), "MPO", save_all=True, append_images=[noise(10, 10)])
    assert probe(data) == (30, 20)
    assert decode(data).size == (30, 20)


def test_a_single_frame_of_an_animated_format_is_an_image():
    assert decode(encoded(noise(), "GIF")).size == (9, 7)


@pytest.mark.parametrize("form", FORMATS)
def test_cut_short_is_refused(form):
    data = encoded(noise(64, 64), form)
    for end in (len(data) // 4, len(data) // 2, len(data) * 3 // 4):
        with pytest.raises(ImageError, match=r"damaged|known format"):
            decode(data[:end])


@pytest.mark.parametrize(
    "data", [b"", b"GIF89a", b"<svg/>", b"%PDF-1.7", b"II*\0" + bytes(64), b"BM" + bytes(64)]
)
def test_other_things_are_refused(data):
    with pytest.raises(ImageError, match=r"format|damaged"):
        decode(data)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FORMATS), st.data())
def test_damage_is_an_image_error_or_an_image(form, data):
    whole = bytearray(encoded(noise(24, 24), form))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = decode(bytes(whole))
    except ImageError:
        return
    assert image.mode in ("RGB", "RGBA")
    assert image.width * image.height <= MAX_PIXELS


@given(st.binary(min_size=1, max_size=200), st.integers(1, 80))
def test_base64_comes_back(data, line):
    text = base64.b64encode(data).decode()
    broken = "\r\n".join(text[i : i + line] for i in range(0, len(text), line))
    for url in (text, text.rstrip("="), broken):
        assert decode_base64(url) == data
        assert decode_data_url(f"data:image/png;base64,{url}") == data
        assert decode_data_url(f"DATA:image/png;charset=x;BASE64,{url}") == data


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("data:image/png;base64,", "empty"),
        ("data:image/png,abc", "without base64"),
        ("data:text/html;base64,aGk=", "text/html"),
        ("data:image/png;base64,a*b=", "damaged base64"),
        ("data:image/png;base64,abcde", "damaged base64"),
        ("data:image/png", "not a data URL"),
        ("https://example.com/a.png", "not a data URL"),
    ],
)
def test_other_urls_are_refused_by_name(url, names):
    with pytest.raises(ImageError, match=names):
        decode_data_url(url)


def test_too_many_bytes_are_refused():
    with pytest.raises(ImageError, match="at most 100"):
        decode_base64(base64.b64encode(bytes(101)).decode(), max_bytes=100)
    with pytest.raises(ImageError, match="larger than 100"):
        decode_base64("A" * 100_000, max_bytes=100)
    assert len(decode_base64(base64.b64encode(bytes(100)).decode(), max_bytes=100)) == 100
