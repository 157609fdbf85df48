"""Rank byte-pair encoding with special tokens that ordinary text can never produce."""

import codecs
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import tiktoken

from gossamer.text import ranks as rank_file
from gossamer.text import specials as special_tokens
from gossamer.text.errors import TokenizerError
from gossamer.text.pattern import cut, split_pattern

RANKS_FILE = "tiktoken.model"
CONFIG_FILE = "tokenizer_config.json"


class Tokenizer:
    """Text to token ids and back.

    Ids 0 .. n - 1 are the ranks of byte strings; the special slots follow. Merging by rank is left to the
    tiktoken library.

    Args:
        ranks: token bytes -> rank, ranks 0 .. n - 1, all 256 single bytes among them.
        specials: name -> id for ids n .. n + s - 1; slots without a name are called reserved.
        digits: how many digits (1 or 3) the pre-tokeniser keeps together.
        source: what errors call this vocabulary.
    """

    def __init__(
        self,
        ranks: Mapping[bytes, int],
        *,
        specials: Mapping[str, int],
        digits: int = 3,
        source: str = "vocabulary",
    ):
        rank_file.check(ranks, source=source)
        self._build(ranks, specials=specials, digits=digits, source=source)

    def _build(
        self, ranks: Mapping[bytes, int], *, specials: Mapping[str, int], digits: int, source: str
    ) -> None:
        if not specials:
            raise TokenizerError(f"{source}: no special tokens; name at least the chat format's")
        if digits not in (1, 3):
            raise TokenizerError(f"{source}: digits must be 1 or 3, got {digits!r}")
        slots = max(specials.values()) + 1 - len(ranks)
        self._specials = special_tokens.fill(specials, first=len(ranks), slots=slots)
        self._digits = digits
        self._ranks = ranks
        self._num_ranks = len(ranks)
        self._bytes: list[bytes] = [b""] * len(ranks)
        for token, rank in ranks.items():
            self._bytes[rank] = token
        self._bytes.extend(name.encode() for name in self._specials)
        # No specials are given to the merger: what it never knows it can never produce.
        self._encoding = tiktoken.Encoding(
            "gossamer",
            pat_str=split_pattern(digits),
            mergeable_ranks=ranks if isinstance(ranks, dict) else dict(ranks),
            special_tokens={},
        )

    @classmethod
    def load(cls, path: str | Path, *, specials: Mapping[str, int] | None = None) -> Self:
        """Read a tokenizer folder, or a bare `tiktoken.model` file.

        Special tokens come from `specials`, else from `tokenizer_config.json` beside the ranks (our layout
        or the published `added_tokens_decoder`), else, for exactly the 163,584 ranks of the released K3
        vocabulary, from the published table.

        Raises:
            TokenizerError: a file is missing or damaged, or nothing names the special tokens.
        """
        path = Path(path)
        model = path / RANKS_FILE if path.is_dir() else path
        if not model.is_file():
            raise TokenizerError(f"{model}: no such file; expected a folder that holds {RANKS_FILE}")
        ranks = rank_file.read(model)
        named, digits = _read_config(model.with_name(CONFIG_FILE))
        if specials is not None:
            named = dict(specials)
        if named is None and len(ranks) == special_tokens.PUBLISHED_BASE:
            named = special_tokens.published()
        if named is None:
            raise TokenizerError(
                f"{model}: {len(ranks)} ranks but nothing names the special tokens; put {CONFIG_FILE} beside "
                "it or pass specials="
            )
        made = cls.__new__(cls)
        made._build(ranks, specials=named, digits=digits, source=str(model))
        return made

    @classmethod
    def bytes_only(cls) -> Self:
        """Return the vocabulary of the debug preset: 256 bytes and 64 special slots, no merges."""
        ranks = {bytes((byte,)): byte for byte in range(256)}
        return cls(ranks, specials=special_tokens.small(256), digits=1, source="bytes")

    def save(self, folder: str | Path) -> None:
        """Write `tiktoken.model` and `tokenizer_config.json`; `load` gives an equal tokenizer back."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        rank_file.write(self._ranks, folder / RANKS_FILE)
        config = {"digits": self._digits, "specials": self._specials}
        (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """Ranks plus special slots."""
        return len(self._bytes)

    @property
    def num_ranks(self) -> int:
        """How many ids are ordinary; the first special id."""
        return self._num_ranks

    @property
    def digits(self) -> int:
        """How many digits the pre-tokeniser keeps together."""
        return self._digits

    @cached_property
    def specials(self) -> Mapping[str, int]:
        """Name -> id of every special slot."""
        return dict(self._specials)

    def special(self, name: str) -> int:
        """Return the id of a special token by name, such as ``"<|open|>"``."""
        try:
            return self._specials[name]
        except KeyError:
            known = ", ".join(n for n in self._specials if not n.startswith("<|reserved_"))
            raise TokenizerError(f"no special token {name!r}; this vocabulary has {known}") from None

    def is_special(self, token_id: int) -> bool:
        """Whether an id is a special slot."""
        return self._num_ranks <= token_id < len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ordinary text; never a special one, whatever the text looks like.

        Lone surrogates, which UTF-8 cannot hold, become U+FFFD.
        """
        ids: list[int] = []
        for piece in cut(text):
            ids.extend(self._encoding.encode_ordinary(piece))
        return ids

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one id; a special token's are its name."""
        if not 0 <= token_id < len(self._bytes):
            raise TokenizerError(f"token id {token_id} is outside 0..{len(self._bytes) - 1}")
        return self._bytes[token_id]

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the joined bytes of any ids; special tokens appear by name."""
        return b"".join(map(self.token_bytes, ids))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of any ids; bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def stream_decoder(self) -> "StreamDecoder":
        """Return a decoder that takes ids one by one and never gives half a character."""
        return StreamDecoder(self)


class StreamDecoder:
    """Ids to text, piece by piece; an incomplete UTF-8 sequence is held until it is complete or hopeless.

    The pieces joined equal `Tokenizer.decode` of all ids, however they are split.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> str:
        """Return the text that is now certain."""
        return self._utf8.decode(self._tokenizer.decode_bytes(ids))

    def finish(self) -> str:
        """Return what is held back, as U+FFFD, and start afresh."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


def _read_config(path: Path) -> tuple[dict[str, int] | None, int]:
    """Return the named specials (None when the file is absent or names none) and the digits setting."""
    if not path.is_file():
        return None, 3
    try:
        tree: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: not JSON ({error})") from None
    if not isinstance(tree, dict):
        raise TokenizerError(f"{path}: expected a JSON object")
    digits = tree.get("digits", 3)
    try:
        if "specials" in tree:
            return {str(name): int(token_id) for name, token_id in tree["specials"].items()}, digits
        if "added_tokens_decoder" in tree:
            added = tree["added_tokens_decoder"].items()
            return {str(entry["content"]): int(token_id) for token_id, entry in added}, digits
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TokenizerError(f"{path}: malformed special tokens ({error!r})") from None
    return None, digits
