"""Vocabularies for the text tests: bytes only, a small one with merges, and the real one if it is here."""

import os
from pathlib import Path

import pytest

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    return Tokenizer.bytes_only()


@pytest.fixture(scope="session")
def merged_tokenizer() -> Tokenizer:
    """Merges that cut characters in two, join marker look-alikes, and cross words."""
    ranks = {bytes((byte,)): byte for byte in range(256)}
    merges = [
        b"\xe4\xbd",
        b"\xbd\xa0",
        b"\xf0\x9f",
        b"th",
        b"the",
        b"<|",
        b"|>",
        b"op",
        b"open",
        b"&q",
        b'="',
    ]
    merges += [b" t", b"me", b"ss", b"mess", b"ag", b"message", b"12", b"\n\n", b"{}", b'"}']
    for token in merges:
        ranks[token] = len(ranks)
    return Tokenizer(ranks, specials=specials.small(len(ranks)), digits=3)


@pytest.fixture(scope="session", params=["bytes", "merged"])
def tokenizer(request, byte_tokenizer, merged_tokenizer) -> Tokenizer:
    return byte_tokenizer if request.param == "bytes" else merged_tokenizer


@pytest.fixture(scope="session")
def kimi_vocab() -> Path:
    folder = os.environ.get("GOSSAMER_KIMI_VOCAB") or REPOSITORY.parent / "shared" / "data" / "kimi-vocab"
    if not (Path(folder) / "tiktoken.model").is_file():
        pytest.skip("the released K3 vocabulary is not here; set GOSSAMER_KIMI_VOCAB to its folder")
    return Path(folder)


@pytest.fixture(scope="session")
def kimi(kimi_vocab) -> Tokenizer:
    return Tokenizer.load(kimi_vocab)
