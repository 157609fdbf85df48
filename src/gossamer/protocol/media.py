"""Image parts of the other wire formats to and from `Part`, whose own shape is OpenAI's chat format.

Nothing is decoded here: base64 text stays the text it was.  Laws: what is parsed and written again is what
was sent, and a `Part` that is written and parsed again is the same `Part`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.protocol.errors import RequestError, invalid
from gossamer.protocol.messages import Part

_BASE64 = ";base64,"
_KEPT = ("cache_control",)
"""Fields of a block that have no effect here and are kept."""


def parse_anthropic_image(tree: Any, at: str) -> Part:
    """An Anthropic ``image`` block: base64 data, or a URL.

    Args:
        tree: The decoded block.
        at: Its place, named in errors.

    Raises:
        RequestError: naming the field that cannot be read.
    """
    source = _object(_object(tree, at, {"type", "source", *_KEPT}).get("source"), f"{at}.source", None)
    kind = source.get("type")
    if kind == "base64":
        _object(source, f"{at}.source", {"type", "media_type", "data"})
        media_type = _text(source, "media_type", f"{at}.source")
        if ";" in media_type or "," in media_type:
            raise invalid(
                f"{at}.source.media_type", f"must be a type such as image/png, got {media_type!r:.80}"
            )
        url = f"data:{media_type}{_BASE64}{_text(source, 'data', f'{at}.source')}"
    elif kind == "url":
        _object(source, f"{at}.source", {"type", "url"})
        url = _text(source, "url", f"{at}.source")
    else:
        raise invalid(f"{at}.source.type", f"must be base64 or url, got {kind!r:.80}")
    return _part({"url": url}, tree)


def to_anthropic_image(part: Part) -> dict[str, Any]:
    """The inverse of `parse_anthropic_image`; a ``detail`` has no place in that format.

    Raises:
        RequestError: the part is no image, or asks for a detail.
    """
    url, rest = _image(part)
    if rest:
        raise RequestError(f"image_url has {', '.join(sorted(rest))}, which an image block cannot carry")
    head, base64, data = url.partition(_BASE64)
    if base64 and head.startswith("data:") and ";" not in head and "," not in head:
        source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    else:
        source = {"type": "url", "url": url}
    return {"type": "image", "source": source, **_kept(part.media)}


def parse_input_image(tree: Any, at: str) -> Part:
    """An ``input_image`` item of the Responses format: a URL as text, and a detail.

    Raises:
        RequestError: naming the field that cannot be read; a file id is one, no files are kept here.
    """
    item = _object(tree, at, {"type", "image_url", "detail", "file_id", *_KEPT})
    if item.get("file_id") is not None:
        raise invalid(
            f"{at}.file_id", "is not supported: no files are kept here; send the image as a data URL"
        )
    value = {"url": _text(item, "image_url", at)}
    if item.get("detail") is not None:
        value["detail"] = _text(item, "detail", at)
    return _part(value, item)


def to_input_image(part: Part) -> dict[str, Any]:
    """The inverse of `parse_input_image`.

    Raises:
        RequestError: the part is no image, or has fields that an item cannot carry.
    """
    url, rest = _image(part)
    if set(rest) - {"detail"}:
        raise RequestError(f"image_url has {', '.join(sorted(rest))}, which an input_image cannot carry")
    return {"type": "input_image", "image_url": url, **rest, **_kept(part.media)}


def _part(value: Mapping[str, Any], tree: Mapping[str, Any]) -> Part:
    return Part(kind="image_url", media={"type": "image_url", "image_url": value, **_kept(tree)})


def _kept(tree: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: tree[key] for key in _KEPT if tree is not None and tree.get(key) is not None}


def _image(part: Part) -> tuple[str, dict[str, Any]]:
    """URL and further fields of an image part."""
    if part.kind != "image_url" or part.media is None:
        raise RequestError(f"a {part.kind} part is no image")
    value = part.media["image_url"]
    if isinstance(value, str):
        return value, {}
    return value["url"], {key: v for key, v in value.items() if key != "url" and v is not None}


def _object(tree: Any, at: str, keys: set[str] | None) -> Mapping[str, Any]:
    if not isinstance(tree, Mapping):
        raise invalid(at, "must be an object")
    for key, value in tree.items():
        if keys is not None and key not in keys and value is not None:
            raise invalid(f"{at}.{key}", "is not a field of an image")
    return tree


def _text(tree: Mapping[str, Any], key: str, at: str) -> str:
    value = tree.get(key)
    if not isinstance(value, str) or not value:
        raise invalid(f"{at}.{key}", "must be a non-empty string")
    return value
