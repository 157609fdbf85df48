"""Read and write the `tiktoken.model` file: one base64 token and its rank per line."""

import binascii
from collections.abc import Mapping
from pathlib import Path

from gossamer.text.errors import TokenizerError


def read(path: Path) -> dict[bytes, int]:
    """Return token -> rank.

    Raises:
        TokenizerError: a malformed line (by number), a token or rank seen twice, ranks that are not
            0 .. n - 1, or a vocabulary that cannot spell every byte.
    """
    data = path.read_bytes()
    decode = binascii.a2b_base64
    try:
        pairs = [
            (decode(token, strict_mode=True), int(rank))
            for token, rank in (line.split() for line in data.splitlines() if line)
        ]
    except ValueError:
        raise _malformed(path, data) from None
    ranks = dict(pairs)
    if len(ranks) != len(pairs):
        raise _repeated_token(path, pairs)
    check(ranks, source=str(path))
    return ranks


def check(ranks: Mapping[bytes, int], *, source: str) -> None:
    """Refuse ranks that are repeated or not 0 .. n - 1, and vocabularies without all 256 bytes."""
    seen: dict[int, bytes] = {}
    for token, rank in ranks.items():
        if rank in seen:
            raise TokenizerError(f"{source}: rank {rank} is given to {seen[rank]!r} and to {token!r}")
        seen[rank] = token
    if ranks and (min(seen) != 0 or max(seen) != len(seen) - 1):
        missing = next((i for i in range(len(seen)) if i not in seen), None)
        raise TokenizerError(f"{source}: ranks must be 0..{len(seen) - 1} without gaps; {missing} is missing")
    lacking = [byte for byte in range(256) if bytes((byte,)) not in ranks]
    if lacking:
        raise TokenizerError(
            f"{source}: {len(lacking)} single-byte tokens are missing, the first is 0x{lacking[0]:02x}; "
            "without all 256 some text cannot be encoded"
        )


def write(ranks: Mapping[bytes, int], path: Path) -> None:
    """Write the ranks in order; the inverse of `read`."""
    lines = [
        binascii.b2a_base64(token, newline=False) + f" {rank}\n".encode()
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
    ]
    path.write_bytes(b"".join(lines))


def _malformed(path: Path, data: bytes) -> TokenizerError:
    """Find the first bad line; only called once the fast path has failed."""
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        fields = line.split()
        try:
            if len(fields) != 2:
                raise ValueError(f"{len(fields)} fields instead of 2")
            binascii.a2b_base64(fields[0], strict_mode=True)
            int(fields[1])
        except ValueError as error:
            shown = line[:60].decode("utf-8", "replace")
            return TokenizerError(
                f"{path}, line {number}: expected `<base64 token> <rank>`, got {shown!r} ({error})"
            )
    return TokenizerError(f"{path}: not a tiktoken.model file")


def _repeated_token(path: Path, pairs: list[tuple[bytes, int]]) -> TokenizerError:
    seen: set[bytes] = set()
    for token, rank in pairs:
        if token in seen:
            return TokenizerError(f"{path}: token {token!r} occurs twice, again with rank {rank}")
        seen.add(token)
    raise AssertionError("a token was counted twice but is not repeated")
