"""API keys: made once, shown once, kept as salted hashes in one JSON file.

A key is ``gsk-ID-SECRET``: the id finds the entry, the secret has 256 random bits.  Such a secret cannot be
guessed from its hash however fast the hash is, so none of the slow password hashes is needed, which would
cost each request tens of milliseconds.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec

from gossamer.errors import GossamerError
from gossamer.protocol.errors import RequestError
from gossamer.records.envelope import Record, RecordError, Time, Value, decode, encode
from gossamer.records.request_log import Identifier

LOG = logging.getLogger("gossamer.gateway")
_KEY = re.compile(r"gsk-([0-9a-f]{16})-([A-Za-z0-9_-]{43})")
_NOBODY = ("0" * 32, "0" * 64)
Positive = Annotated[int, msgspec.Meta(ge=1)]
Hex32 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]
Hex64 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]


class KeyFileError(GossamerError, ValueError):
    """The file of keys cannot be used, or not so."""


class ApiKey(Value, frozen=True, kw_only=True, omit_defaults=True):
    """What is known about a key: not the key.

    Attributes:
        id: Stands in the key itself.
        name: Whose it is; unique in its file.
        created: When it was made.
        salt: Of its hash, 16 bytes as hex.
        hash: HMAC-SHA-256 of the whole key under the salt, as hex.
        max_concurrent: Requests at a time; None has no limit.
        tokens_per_minute: Of prompts and answers together; None has no limit.
    """

    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}$")]
    name: Identifier
    created: Time
    salt: Hex32
    hash: Hex64
    max_concurrent: Positive | None = None
    tokens_per_minute: Positive | None = None

    def fits(self, presented: str) -> bool:
        """Whether this is the key; takes the same time wherever they differ."""
        return hmac.compare_digest(_hash(self.salt, presented), self.hash)


class KeyFile(Record, frozen=True, kw_only=True, tag="gossamer.api_keys/1"):
    """All keys of a server."""

    keys: tuple[ApiKey, ...] = ()


def new_key(
    name: str, *, max_concurrent: int | None = None, tokens_per_minute: int | None = None
) -> tuple[str, ApiKey]:
    """A key for its owner, and its entry.

    Raises:
        KeyFileError: a name or limit that an entry cannot hold.
    """
    key_id, salt = secrets.token_hex(8), secrets.token_hex(16)
    secret = f"gsk-{key_id}-{secrets.token_urlsafe(32)}"
    try:
        entry = msgspec.convert(
            {
                "id": key_id,
                "name": name,
                "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
                "salt": salt,
                "hash": _hash(salt, secret),
                "max_concurrent": max_concurrent,
                "tokens_per_minute": tokens_per_minute,
            },
            ApiKey,
        )
    except msgspec.ValidationError as error:
        raise KeyFileError(f"no key of that kind: {error}") from None
    return secret, entry


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The entries of a file.

    Raises:
        KeyFileError: it cannot be read, is none, or names two keys alike.
    """
    try:
        keys = decode(path.read_bytes(), KeyFile, where=str(path)).keys
    except OSError as error:
        raise KeyFileError(
            f"cannot read the keys in {path}: {error.strerror}; make one with: gossamer keys add NAME "
            f"--file {path}"
        ) from None
    except RecordError as error:
        raise KeyFileError(str(error)) from None
    for attribute in ("id", "name"):
        values = [getattr(key, attribute) for key in keys]
        if len(set(values)) < len(values):
            raise KeyFileError(f"{path}: two keys have the same {attribute}; revoke one of them")
    return keys


def write_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Replace the file, readable by its owner only; a reader sees the old or the new one.

    Raises:
        KeyFileError: it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(encode(KeyFile(keys=tuple(keys))))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise KeyFileError(f"cannot write the keys to {path}: {error.strerror}") from None


class KeyRing:
    """The keys that a server accepts.  A change of their file counts from the next request on.

    Args:
        path: The file; see `read_keys`.

    Raises:
        KeyFileError: it cannot be used.
    """

    def __init__(self, path: Path):
        self._path = path
        self._stamp = _stamp(path)
        self._keys = {key.id: key for key in read_keys(path)}

    def find(self, presented: str) -> ApiKey | None:
        """The entry of a key, or None for any other text; the text may be anything."""
        self._refresh()
        parts = _KEY.fullmatch(presented)
        entry = None if parts is None else self._keys.get(parts[1])
        if entry is None:
            # As long as for a known id: the answer's time must not say which ids exist.
            hmac.compare_digest(_hash(_NOBODY[0], presented), _NOBODY[1])
            return None
        return entry if entry.fits(presented) else None

    def _refresh(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = {key.id: key for key in read_keys(self._path)}
            LOG.info("the keys were read again: %d", len(self._keys))
        except KeyFileError:
            # A half-edited file must neither let everybody in nor lock everybody out.
            LOG.error("the changed key file cannot be used; the keys known before still count")


def presented_key(headers: Callable[[str], Sequence[str]]) -> str | None:
    """The key that a request brings, or None.

    Args:
        headers: The values of a header by its lower-case name.

    Raises:
        RequestError: it brings two that differ, or a scheme other than Bearer.
    """
    found = list(headers("x-api-key"))
    for value in headers("authorization"):
        scheme, _, token = value.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthenticated("the authorization header must be: Bearer KEY")
        found.append(token.strip())
    if len(set(found)) > 1:
        raise unauthenticated("the request brings two different API keys; send one")
    return found[0] if found else None


def unauthenticated(problem: str) -> RequestError:
    """401; the text never quotes what was presented."""
    return RequestError(problem, status=401, type="invalid_authentication_error", code="invalid_api_key")


def _hash(salt: str, key: str) -> str:
    return hmac.new(bytes.fromhex(salt), key.encode("utf-8", "surrogateescape"), sha256).hexdigest()


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino)
