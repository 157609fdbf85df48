"""URLs that mean harm, names that change their mind, and servers that never stop."""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from contextlib import contextmanager

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gossamer.gateway.media import MediaFetcher, MediaHost, MediaHostError, is_public
from gossamer.protocol.errors import RequestError

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100


def answer(status=200, body=PNG, **headers):
    fields = {"content_type": "image/png", "content_length": str(len(body)), **headers}
    lines = [
        f"HTTP/1.1 {status} X",
        *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items() if v is not None),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Site:
    """A server on loopback that says given bytes per path and remembers what it was sent."""

    def __init__(self, sock):
        self.port = sock.getsockname()[1]
        self.pages = {}
        self.heard = []
        self._sock = sock
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        with connection:
            head = b""
            while not head.endswith(b"\r\n\r\n") and (piece := connection.recv(4096)):
                head += piece
            self.heard.append(head)
            page = self.pages.get(head.split(b" ")[1].decode() if head else "", answer(404))
            try:
                for piece in [page] if isinstance(page, bytes) else page:
                    connection.sendall(piece)
            except OSError:
                return


@contextmanager
def site():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield Site(sock)
        sock.shutdown(socket.SHUT_RDWR)


def fetcher(where, host="pictures.example", **options):
    entry = MediaHost.parse(f"http://{host}:{where.port}=127.0.0.1")
    return MediaFetcher(hosts=(entry,), **options)


def fetch(fetching, url):
    return asyncio.run(fetching.fetch(url))


def refused(fetching, url, code="media_refused"):
    with pytest.raises(RequestError) as caught:
        fetch(fetching, url)
    assert (caught.value.status, caught.value.code) == (400, code)
    return caught.value.message


def test_a_picture_of_an_allowed_host():
    with site() as where:
        where.pages["/a.png?b=1"] = answer(content_type="Image/PNG; x=y")
        assert fetch(fetcher(where), f"http://Pictures.Example:{where.port}/a.png?b=1#c") == (
            PNG,
            "image/png",
        )
        (head,) = where.heard
    lines = dict(line.split(": ", 1) for line in head.decode().lower().split("\r\n")[1:] if line)
    assert lines["host"] == f"pictures.example:{where.port}"
    assert not {"cookie", "authorization", "referer"} & set(lines)


HOSTILE = [
    "http://127.0.0.1/",
    "http://localhost/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://2130706433/",
    "https://0x7f.1/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://ok.example:22/",
    "http://ok.example/",
    "https://ok.example.evil.example/",
    "https://evil.example/ok.example",
    "https://ok.example@evil.example/",
    "https://evil.example@ok.example/",
    "https://ok.example:443@evil.example/",
    "https://evil.example#@ok.example/",
    "https://evil.example?ok.example",
    "https://evil.example\\@ok.example/",
    "https://ok.example\\.evil.example/",
    "https://ok.example%2eevil.example/",
    "https://ok.example%00.evil.example/",
    "https://ok。example/",
    "https://ok.exаmple/",
    "https://ok.example/\r\nhost: evil",
    "https://ok.example/ x",
    "\thttps://ok.example/",
    "https:/ok.example/",
    "https:ok.example",
    "//ok.example/",
    "ok.example",
    "https://",
    "https://:443/",
    "https://ok.example:99999/",
    "https://ok.example:x/",
    "https://[ok.example]/",
    "https://[::1%25eth0]/",
    "file:///etc/passwd",
    "ftp://ok.example/",
    "gopher://ok.example/",
    "data:image/png;base64,AAAA",
    "ms://file",
    "unix:///var/run/docker.sock",
    "https://ok.example/" + "a" * 9000,
    "",
]


@pytest.mark.parametrize("url", HOSTILE, ids=range(len(HOSTILE)))
def test_what_was_not_named_is_not_fetched(url):
    async def resolve(host, port):
        raise AssertionError(f"asked for {host}")

    fetching = MediaFetcher(hosts=(MediaHost.parse("ok.example"),), resolve=resolve)
    refused(fetching, url)
    refused(MediaFetcher(hosts=()), url)


@given(st.one_of(st.text(), st.text(alphabet="htps:/.@#?%[]\\01ok.example-").map("https://".__add__)))
def test_any_text_is_refused_or_is_the_host_that_was_named(url):
    fetching = MediaFetcher(hosts=(MediaHost.parse("ok.example"),))
    with contextlib.suppress(RequestError):
        parts, entry = fetching.check(url)
        assert (parts.scheme, parts.hostname.removesuffix("."), entry.port) == ("https", "ok.example", 443)


def resolving(*addresses):
    asked = []

    async def resolve(host, port):
        asked.append(host)
        if not addresses:
            raise OSError("unknown name")
        return list(addresses)

    return resolve, asked


PRIVATE = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "240.0.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "::127.0.0.1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_that_points_inside_is_refused(address):
    for addresses in ([address], ["93.184.216.34", address]):
        resolve, asked = resolving(*addresses)
        fetching = MediaFetcher(hosts=(MediaHost.parse("ok.example"),), resolve=resolve)
        assert "HOST=ADDRESS" in refused(fetching, "https://ok.example/")
        assert asked == ["ok.example"]


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses(address):
    assert is_public(ipaddress.ip_address(address))


def test_a_name_without_address():
    resolve, _ = resolving()
    fetching = MediaFetcher(hosts=(MediaHost.parse("ok.example"),), resolve=resolve)
    refused(fetching, "https://ok.example/", "media_unavailable")


def test_the_connection_goes_to_the_address_that_was_looked_at(monkeypatch):
    """A name that changes its mind between look and connection, as in DNS rebinding."""
    with site() as where:
        where.pages["/"] = answer()
        resolve, asked = resolving("127.0.0.1")
        monkeypatch.setattr("gossamer.gateway.media.is_public", lambda address: True)
        entry = MediaHost.parse(f"http://ok.example:{where.port}")
        # Nobody else may look the name up: it does not exist outside this test.
        assert (
            fetch(MediaFetcher(hosts=(entry,), resolve=resolve), f"http://ok.example:{where.port}/")[0] == PNG
        )
        assert asked == ["ok.example"]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "https://evil.example/",
        "//evil.example/",
        "file:///etc/passwd",
        "http://pictures.example/",
        "",
    ],
)
def test_a_redirect_is_looked_at_like_any_url(location):
    with site() as where:
        where.pages["/"] = answer(302, b"", location=location or None)
        refused(fetcher(where), f"http://pictures.example:{where.port}/")
        assert all(head.startswith(b"GET / ") for head in where.heard)


def test_redirects_are_followed_so_far():
    with site() as where:
        for i in range(4):
            where.pages[f"/{i}"] = answer(307, b"", location=f"/{i + 1}")
        where.pages["/4"] = answer()
        url = f"http://pictures.example:{where.port}"
        assert fetch(fetcher(where), f"{url}/1") == (PNG, "image/png")
        assert "redirects more than 3 times" in refused(fetcher(where), f"{url}/0")


def endless(piece, head=b"HTTP/1.1 200 X\r\ncontent-type: image/png\r\n\r\n"):
    yield head
    while True:
        yield piece


def test_bodies_that_are_too_large():
    with site() as where:
        url = f"http://pictures.example:{where.port}/"
        where.pages["/"] = answer()
        assert fetch(fetcher(where, max_bytes=len(PNG)), url)[0] == PNG
        refused(fetcher(where, max_bytes=len(PNG) - 1), url)
        where.pages["/"] = answer(content_length=str(10**12))
        refused(fetcher(where), url)
        where.pages["/"] = endless(b"x" * 65536)
        refused(fetcher(where, max_bytes=1 << 20), url)


def test_servers_that_never_end():
    def slowly():
        yield b"HTTP/1.1 200 X\r\ncontent-type: image/png\r\n\r\n"
        for _ in range(100):
            threading.Event().wait(0.05)
            yield b"x"

    with site() as where:
        where.pages["/"] = slowly()
        message = refused(
            fetcher(where, timeout_s=0.3), f"http://pictures.example:{where.port}/", "media_unavailable"
        )
    assert "more than 0.3 s" in message


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (answer(404), "media_unavailable"),
        (answer(206), "media_unavailable"),
        (answer(content_type="text/html"), "media_refused"),
        (answer(content_type=None), "media_refused"),
        (answer(content_encoding="gzip"), "media_refused"),
        (answer(body=PNG, content_length=str(len(PNG) + 5)), "media_unavailable"),
        (b"SSH-2.0-OpenSSH\r\n", "media_unavailable"),
        (b"", "media_unavailable"),
        (b"HTTP/1.1 200 X\r\n" + b"x: " + b"a" * 300_000 + b"\r\n\r\n", "media_unavailable"),
    ],
    ids=range(9),
)
def test_other_answers(page, code):
    with site() as where:
        where.pages["/"] = page
        refused(fetcher(where), f"http://pictures.example:{where.port}/", code)


def test_nobody_there():
    with site() as where:
        fetching = fetcher(where)
    refused(fetching, f"http://pictures.example:{where.port}/", "media_unavailable")


def test_the_environment_leads_nowhere_else(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with site() as where:
        where.pages["/"] = answer()
        assert fetch(fetcher(where), f"http://pictures.example:{where.port}/")[0] == PNG


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Ok.Example", ("https", "ok.example", 443, None)),
        ("ok.example:8443", ("https", "ok.example", 8443, None)),
        ("http://ok.example", ("http", "ok.example", 80, None)),
        ("ok.example=10.0.0.7", ("https", "ok.example", 443, ipaddress.ip_address("10.0.0.7"))),
        ("10.0.0.7:80", ("https", "10.0.0.7", 80, ipaddress.ip_address("10.0.0.7"))),
        ("https://[FD00::1]:80=fd00::1", ("https", "fd00::1", 80, ipaddress.ip_address("fd00::1"))),
    ],
)
def test_hosts_as_the_operator_writes_them(text, parsed):
    entry = MediaHost.parse(text)
    assert (entry.scheme, entry.host, entry.port, entry.address) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.example",
        "a b",
        "ftp://a",
        "a/b",
        "u@a",
        "a=b",
        "a=",
        "127.1",
        "0x7f000001",
        "a:99999",
        "é.example",
    ],
)
def test_hosts_that_are_none(text):
    with pytest.raises(MediaHostError):
        MediaFetcher.of([text])
