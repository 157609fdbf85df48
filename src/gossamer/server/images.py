"""Images of a request: from what was sent to rows that stand in for prompt tokens.

The tower runs in a thread of its own, and so does the reading of what was sent: an image takes as long as it
takes, the answers of others go on meanwhile, and a bad image is refused without waiting for good ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from gossamer.engine.api import Embeddings
from gossamer.images.data_url import decode_data_url, is_data_url
from gossamer.images.decode import probe
from gossamer.images.errors import ImageError
from gossamer.images.patches import prepare
from gossamer.images.rules import Fit, ImageRules, fit
from gossamer.kernels.vision import VisionNetwork
from gossamer.protocol.errors import RequestError
from gossamer.protocol.request import Request
from gossamer.text.chat import Media, Rendered

MAX_IMAGES = 100
"""Of one request."""
KEPT_BYTES = 64 << 20
"""Rows of images that conversations send again with each turn."""
DIGEST_BYTES = 32

Fetch = Callable[[str], Awaitable[bytes]]
"""Gets the bytes behind a URL that is no data URL; raises `RequestError` where it may not or cannot."""


@dataclass(frozen=True)
class SentImage:
    """An image part of a request: its URL, and where it stands."""

    url: str
    where: str


@dataclass(frozen=True, kw_only=True)
class ReadImage:
    """An image whose size is known and whose pixels are not decoded yet."""

    data: bytes
    digest: bytes
    size: Fit
    where: str

    @property
    def media(self) -> Media:
        """Its place in the prompt."""
        return Media(width=self.size.width, height=self.size.height, num_tokens=self.size.num_tokens)


def images_of(request: Request) -> list[SentImage]:
    """The image parts in the order of the conversation, tool results included.

    Raises:
        RequestError: a video, or more than `MAX_IMAGES`.
    """
    found = list(_parts(request))
    if len(found) > MAX_IMAGES:
        raise RequestError(
            f"messages hold {len(found)} images; at most {MAX_IMAGES} are accepted",
            param="messages",
            code="too_many_images",
        )
    return found


def _parts(request: Request) -> Iterator[SentImage]:
    for index, message in enumerate(request.messages):
        if message.content is None or isinstance(message.content, str):
            continue
        for place, part in enumerate(message.content):
            where = f"messages[{index}].content[{place}].{part.kind}"
            if part.kind == "video_url":
                raise RequestError(
                    f"{where} is a video; this server reads images only, send frames of it as images",
                    param=where,
                    code="unsupported_value",
                )
            if part.media is not None:
                value = part.media[part.kind]
                # Both shapes were checked when the message was parsed.
                yield SentImage(value if isinstance(value, str) else value["url"], where)


class ImageEncoder:
    """Reads images and turns them into rows, the latest of which it keeps.

    Args:
        network: Tower and projector.
        rules: How its images are preprocessed.
        fetch: For URLs that are no data URLs; None refuses them all.
        kept_bytes: Memory for rows of earlier images.
    """

    def __init__(
        self,
        network: VisionNetwork,
        rules: ImageRules,
        *,
        fetch: Fetch | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._network, self._rules, self._fetch = network, rules, fetch
        self._kept: OrderedDict[bytes, NDArray[np.float32]] = OrderedDict()
        self._kept_bytes = kept_bytes
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="gossamer-image")
        self._tower = ThreadPoolExecutor(1, thread_name_prefix="gossamer-vision")

    async def read(self, images: Sequence[SentImage]) -> list[ReadImage]:
        """Bytes and sizes, in order.

        Raises:
            RequestError: naming the image that cannot be read.
        """
        return [await self._read(image) for image in images]

    async def encode(self, images: Sequence[ReadImage]) -> list[NDArray[np.float32]]:
        """Rows [N, D] of each image, in order.

        Raises:
            RequestError: naming the image whose data is damaged.
        """
        return [await self._encode(image) for image in images]

    async def _read(self, image: SentImage) -> ReadImage:
        loop = asyncio.get_running_loop()
        try:
            if is_data_url(image.url):
                data = await loop.run_in_executor(self._reader, decode_data_url, image.url)
            elif self._fetch is not None:
                data = await self._fetch(image.url)
            else:
                raise ImageError(
                    f"is a {_scheme(image.url)} URL, and this server reads images from data URLs only: "
                    "send data:image/<type>;base64,<data>, or have the operator name its host with "
                    "--allow-media-host"
                )
            width, height = await loop.run_in_executor(self._reader, probe, data)
            size = fit(self._rules, width, height)
        except ImageError as error:
            raise _refused(image.where, error) from None
        except RequestError as error:
            raise RequestError(f"{image.where}: {error}", param=image.where, code=error.code) from None
        digest = blake2b(data, digest_size=DIGEST_BYTES).digest()
        return ReadImage(data=data, digest=digest, size=size, where=image.where)

    async def _encode(self, image: ReadImage) -> NDArray[np.float32]:
        rows = self._kept.get(image.digest)
        if rows is None:
            loop = asyncio.get_running_loop()
            try:
                rows = await loop.run_in_executor(self._tower, self._rows, image)
            except ImageError as error:
                raise _refused(image.where, error) from None
            self._keep(image.digest, rows)
        else:
            self._kept.move_to_end(image.digest)
        return rows

    def _rows(self, image: ReadImage) -> NDArray[np.float32]:
        patches = prepare(image.data, self._rules)
        return self._network.run(patches.values, patches.fit.rows, patches.fit.columns)

    def _keep(self, digest: bytes, rows: NDArray[np.float32]) -> None:
        self._kept[digest] = rows
        while sum(kept.nbytes for kept in self._kept.values()) > self._kept_bytes:
            self._kept.popitem(last=False)


def place(
    rendered: Rendered, pad: int, images: Sequence[ReadImage], rows: Sequence[NDArray[np.float32]]
) -> list[Embeddings]:
    """Where each image's rows go.

    Args:
        rendered: The prompt; each image's block holds as many pads as it has rows.
        pad: Id of the token that they stand in for.
        images: In the order of the request.
        rows: Theirs.
    """
    pads = np.flatnonzero(np.asarray(rendered.ids) == pad)
    found, used = [], 0
    for which in rendered.media:
        count = len(rows[which])
        found.append(Embeddings(start=int(pads[used]), rows=rows[which], digest=images[which].digest))
        assert pads[used + count - 1] == pads[used] + count - 1, "an image's pads are not neighbours"
        used += count
    assert used == len(pads), f"{len(pads)} pads for {used} rows"
    return found


def _scheme(url: str) -> str:
    head, colon, _ = url.partition(":")
    return head[:20].lower() if colon and head[:20].isalnum() else "relative"


def _refused(where: str, error: ImageError) -> RequestError:
    return RequestError(f"{where} {error}", param=where, code="invalid_image")
