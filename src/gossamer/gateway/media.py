"""Media by URL, fetched without being led astray.

Nothing is fetched unless the operator named its host.  A name is resolved once, every address that it has is
looked at, and the connection goes to the address that was looked at: a name that points elsewhere a moment
later leads nowhere.  An address inside a private network is refused unless the operator wrote that very
address beside the name.  Each redirect starts over.  Nothing of the client's own is sent along.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from gossamer.errors import GossamerError
from gossamer.protocol.errors import RequestError

if TYPE_CHECKING:
    import ssl

    import httpx

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""All addresses of a name, as text; may raise OSError."""
MAX_BYTES = 20 << 20
TIMEOUT_S = 15.0
MAX_REDIRECTS = 3
MAX_URL_CHARS = 8192
PORTS = {"https": 443, "http": 80}
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
# Public addresses behind which clouds answer with a machine's secrets; all others are of no public range.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class MediaHostError(GossamerError, ValueError):
    """A host that the operator allows cannot be meant so."""


@dataclass(frozen=True, kw_only=True)
class MediaHost:
    """A place that media may come from.

    Attributes:
        scheme: ``https``, or ``http`` where the operator wrote that.
        host: Name or address, lower-case.
        port: The scheme's own unless written.
        address: Where it is, if the operator says so: it may then be private.
    """

    scheme: str
    host: str
    port: int
    address: Address | None = None

    @classmethod
    def parse(cls, text: str) -> MediaHost:
        """``[http://|https://]HOST[:PORT][=ADDRESS]``.

        Raises:
            MediaHostError: naming what is wrong.
        """
        place, pinned, wanted = text.strip().partition("=")
        scheme, found, rest = place.rpartition("://")
        scheme = scheme.lower() if found else "https"
        if scheme not in PORTS or "/" in rest or "@" in rest:
            raise MediaHostError(
                f"{text!r:.200} is no media host; write HOST, HOST:PORT or HOST=ADDRESS, with http:// before "
                "it for unencrypted transfer"
            )
        try:
            parts = urlsplit(f"{scheme}://{rest}")
            host, port = _host(parts), parts.port or PORTS[scheme]
            address = ipaddress.ip_address(wanted) if pinned else _literal(host)
        except ValueError as error:
            raise MediaHostError(f"{text!r:.200} is no media host: {error}") from None
        return cls(scheme=scheme, host=host, port=port, address=address)


@dataclass(frozen=True, kw_only=True)
class MediaFetcher:
    """Fetches from the hosts it was given and from no other.

    Attributes:
        hosts: See `MediaHost`.
        max_bytes: Of one body.
        timeout_s: For one fetch, redirects included.
        max_redirects: That are followed.
        kinds: Beginnings of the content types that are taken.
        resolve: How names become addresses.
        verify: Certificates to trust; None for those of the system.
    """

    hosts: tuple[MediaHost, ...]
    max_bytes: int = MAX_BYTES
    timeout_s: float = TIMEOUT_S
    max_redirects: int = MAX_REDIRECTS
    kinds: tuple[str, ...] = ("image/", "application/octet-stream")
    resolve: Resolve = field(default_factory=lambda: _resolve)
    verify: ssl.SSLContext | None = None

    @classmethod
    def of(cls, texts: Iterable[str]) -> MediaFetcher:
        """For hosts as the operator wrote them.

        Raises:
            MediaHostError: naming the one that is wrong.
        """
        return cls(hosts=tuple(MediaHost.parse(text) for text in texts))

    async def body(self, url: str) -> bytes:
        """The body alone, see `fetch`."""
        return (await self.fetch(url))[0]

    async def fetch(self, url: str) -> tuple[bytes, str]:
        """The body behind a URL, and its content type, lower-case and without parameters.

        Raises:
            RequestError: 400, ``media_refused`` where the URL may not be fetched, ``media_unavailable`` where
                it could not be.  The text never tells what an address inside a private network answered.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._follow(url)
        except TimeoutError:
            raise _unavailable(f"it took more than {self.timeout_s:g} s") from None

    async def _follow(self, url: str) -> tuple[bytes, str]:
        import httpx

        # No proxy, netrc or certificate file of the environment: they lead past the address that was checked.
        verify = True if self.verify is None else self.verify
        async with httpx.AsyncClient(
            trust_env=False, follow_redirects=False, verify=verify, timeout=self.timeout_s
        ) as client:
            for _ in range(self.max_redirects + 1):
                found = await self._once(client, url)
                if not isinstance(found, str):
                    return found
                url = urljoin(url, found)
        raise _refused(f"it redirects more than {self.max_redirects} times")

    async def _once(self, client: httpx.AsyncClient, url: str) -> tuple[bytes, str] | str:
        """Body and type, or the place of a redirect."""
        parts, entry = self.check(url)
        address = await self._address(entry)
        async with _get(client, parts, entry, address) as response:
            if response.status_code in (301, 302, 303, 307, 308):
                return response.headers.get("location") or ""
            if response.status_code != 200:
                raise _unavailable(f"the host answered {response.status_code}")
            return await self._read(response)

    def check(self, url: str) -> tuple[SplitResult, MediaHost]:
        """The parts of a URL that may be fetched, and the entry that allows it; opens nothing.

        Raises:
            RequestError: ``media_refused``.
        """
        if len(url) > MAX_URL_CHARS:
            raise _refused(f"it is longer than {MAX_URL_CHARS} characters")
        # What urlsplit would drop or a server could take for the end of a header.
        if any(c <= " " or c == "\\" or c >= "\x7f" for c in url):
            raise _refused("it holds blanks, backslashes, control or non-ASCII characters; escape them")
        try:
            parts = urlsplit(url)
            port = parts.port
            if parts.scheme not in PORTS:
                raise _refused("only https and http can be fetched")
            if "@" in parts.netloc:
                raise _refused("it holds a user name")
            host = _host(parts)
        except RequestError:
            raise
        except ValueError as error:
            raise _refused(f"it is no URL: {error}") from None
        wanted = (parts.scheme, host, PORTS[parts.scheme] if port is None else port)
        for entry in self.hosts:
            if (entry.scheme, entry.host, entry.port) == wanted:
                return parts, entry
        raise _refused(
            "this server does not fetch from there; send the image itself as a data: URL, or have the "
            "operator start the server with --allow-media-host HOST"
        )

    async def _address(self, entry: MediaHost) -> Address:
        if entry.address is not None:
            return entry.address
        try:
            found = [
                ipaddress.ip_address(text.partition("%")[0])
                for text in await self.resolve(entry.host, entry.port)
            ]
        except (OSError, ValueError):
            raise _unavailable("the name of its host has no address") from None
        if not found:
            raise _unavailable("the name of its host has no address")
        # One private address among public ones is how a name is turned against its resolver.
        if not all(is_public(address) for address in found):
            raise _refused(
                "its host has an address inside a private network; the operator can allow it with "
                "--allow-media-host HOST=ADDRESS"
            )
        return found[0]

    async def _read(self, response: httpx.Response) -> tuple[bytes, str]:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith(self.kinds):
            raise _refused("what is there has another content type than an image's")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _refused("what is there is compressed for transfer, which was not asked for")
        declared = response.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self.max_bytes:
            raise self._too_large()
        body = bytearray()
        async for piece in response.aiter_raw(65536):
            body += piece
            if len(body) > self.max_bytes:
                raise self._too_large()
        return bytes(body), kind

    def _too_large(self) -> RequestError:
        return _refused(f"what is there is larger than {self.max_bytes} bytes")


def is_public(address: Address) -> bool:
    """Whether an address is one that everybody may reach, however it is wrapped."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    known_bad = address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local
    return address.is_global and not known_bad and not address.is_reserved and address not in _METADATA


@asynccontextmanager
async def _get(
    client: httpx.AsyncClient, parts: SplitResult, entry: MediaHost, address: Address
) -> AsyncGenerator[httpx.Response]:
    import httpx

    shown = f"[{address}]" if address.version == 6 else str(address)
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    named = f"[{entry.host}]" if ":" in entry.host else entry.host
    host = named if entry.port == PORTS[entry.scheme] else f"{named}:{entry.port}"
    try:
        async with client.stream(
            "GET",
            f"{entry.scheme}://{shown}:{entry.port}{target}",
            headers={
                "host": host,
                "accept": "image/*",
                "accept-encoding": "identity",
                "user-agent": "gossamer",
            },
            # The certificate is that of the name, though the connection goes to the address.
            extensions={"sni_hostname": entry.host},
        ) as response:
            yield response
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        if isinstance(error, RequestError):
            raise
        # Which of them it was would tell who looks for it what is inside the network.
        raise _unavailable("its host did not answer as a web server does") from None


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[4][0]) for place in found]


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host(parts: SplitResult) -> str:
    """Name or address, lower-case, in its one usual spelling.

    Raises:
        ValueError: it is neither; numbers in the spellings that only resolvers know are neither.
    """
    host = (parts.hostname or "").removesuffix(".")
    address = _literal(host)
    if address is not None:
        return str(address)
    labels = host.split(".")
    if not host or len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("its host is neither a name nor an address")
    if labels[-1].isdecimal() or re.fullmatch("0x[0-9a-f]*", labels[-1]):
        raise ValueError("its host is a number that is no address; write it as a.b.c.d")
    return host


def _refused(why: str) -> RequestError:
    return RequestError(f"the media URL cannot be fetched: {why}", code="media_refused")


def _unavailable(why: str) -> RequestError:
    return RequestError(f"the media URL could not be fetched: {why}", code="media_unavailable")
