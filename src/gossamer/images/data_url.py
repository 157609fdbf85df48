"""The bytes of an image out of a ``data:`` URL."""

from __future__ import annotations

import binascii
import re

from gossamer.images.errors import ImageError

MAX_IMAGE_BYTES = 20 << 20
"""Of one image as it is sent, before base64; the published API's limit is not known."""
_HEAD = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
_BLANK = re.compile(r"[\r\n\t ]+")


def is_data_url(url: str) -> bool:
    """Whether the image lies in the URL itself."""
    return url[:5].lower() == "data:"


def decode_data_url(url: str, *, max_bytes: int = MAX_IMAGE_BYTES) -> bytes:
    """The bytes.

    Args:
        url: ``data:image/...;base64,...``.  The declared type is not believed: the bytes tell theirs.
        max_bytes: Most bytes.

    Raises:
        ImageError: another kind of URL, damaged base64, nothing, or too much.
    """
    head = _HEAD.match(url[:512])
    if head is None:
        raise ImageError("is not a data URL: expected data:image/<type>;base64,<data>")
    kind, parameters = head[1].strip().lower(), head[2].lower().split(";")
    if kind and not kind.startswith("image/") and kind != "application/octet-stream":
        raise ImageError(f"holds {kind!r:.80}, not an image")
    if "base64" not in (parameter.strip() for parameter in parameters):
        raise ImageError("is a data URL without base64; expected data:image/<type>;base64,<data>")
    return decode_base64(url[head.end() :], max_bytes=max_bytes)


def decode_base64(text: str, *, max_bytes: int = MAX_IMAGE_BYTES) -> bytes:
    """The bytes of base64 text; line breaks in it and missing padding are forgiven.

    Raises:
        ImageError: damaged, nothing, or too much.
    """
    if len(text) > max_bytes // 3 * 4 + 4 + max_bytes // 16:
        raise ImageError(f"is larger than {max_bytes:,} bytes; send a smaller image")
    text = _BLANK.sub("", text)
    text += "=" * (-len(text) % 4)
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"holds damaged base64 ({error})") from None
    if not data:
        raise ImageError("is empty")
    if len(data) > max_bytes:
        raise ImageError(f"has {len(data):,} bytes; at most {max_bytes:,} are accepted")
    return data
