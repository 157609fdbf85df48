"""`gossamer keys`: the API keys of a server."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclopts import App

app = App(name="keys", help="Make, list and revoke the API keys of a server.")
DEFAULT_FILE = Path("gossamer-keys.json")


@app.command
def add(
    name: str,
    *,
    file: Path = DEFAULT_FILE,
    max_concurrent: int | None = None,
    tokens_per_minute: int | None = None,
) -> int:
    """Make a key and print it, this once: the file keeps only a salted hash of it.

    `gossamer serve --api-keys FILE` accepts it from its next request on.

    Args:
        name: Whose key it is; it stands in no log.
        file: The file of keys; made if there is none.
        max_concurrent: Requests that it may have in flight; default: any number.
        tokens_per_minute: Tokens of prompts and answers together; default: any number.
    """
    from gossamer.gateway.keys import KeyFileError, new_key, read_keys, write_keys

    keys = read_keys(file) if file.exists() else ()
    if any(key.name == name for key in keys):
        raise KeyFileError(f"{file} has a key of {name} already; revoke it first or choose another name")
    secret, entry = new_key(name, max_concurrent=max_concurrent, tokens_per_minute=tokens_per_minute)
    write_keys(file, [*keys, entry])
    print(secret)
    print(f"added to {file}; the key is shown only now", file=sys.stderr)
    return 0


@app.command(name="list")
def show(*, file: Path = DEFAULT_FILE) -> int:
    """List whose keys there are, with their limits.

    Args:
        file: The file of keys.
    """
    from gossamer.cli.tables import Row, aligned
    from gossamer.gateway.keys import read_keys

    rows: list[Row] = [("name", "id", "created", "max concurrent", "tokens per minute")]
    for key in read_keys(file):
        limits = (key.max_concurrent, key.tokens_per_minute)
        rows.append((key.name, key.id, key.created, *("-" if n is None else f"{n:,}" for n in limits)))
    for line in aligned(rows, right={3, 4}):
        print(line)
    return 0


@app.command
def revoke(name: str, *, file: Path = DEFAULT_FILE) -> int:
    """Drop a key: a running server refuses it from its next request on.

    Args:
        name: Whose key.
        file: The file of keys.
    """
    from gossamer.gateway.keys import KeyFileError, read_keys, write_keys

    keys = read_keys(file)
    left = [key for key in keys if key.name != name]
    if len(left) == len(keys):
        known = ", ".join(sorted(key.name for key in keys)) or "none"
        raise KeyFileError(f"{file} has no key of {name}; it has: {known}")
    write_keys(file, left)
    print(f"revoked the key of {name} in {file}", file=sys.stderr)
    return 0
