"""Which tokens may come next in a text of a grammar: llguidance's masks, and the costs of `tracker`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gossamer.errors import GossamerError
from gossamer.grammar import tracker
from gossamer.grammar.errors import SchemaError
from gossamer.grammar.rules import Grammar
from gossamer.grammar.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Mask = NDArray[np.bool_]
"""[T] over the ordinary tokens: whether each may come next."""

# Stretches of a string that most strings allow, shortest first: tokens made of them are looked at together.
_SLICES = (r'[^"\\\x00-\x1F\x7F]{1,10}', r'[^"\\\x00-\x1F\x7F]{1,30}', r'[^"\\\x00-\x1F\x7F]+')


class GuideError(GossamerError):
    """A text was followed that the grammar does not have, or a limit was met on the way."""


@dataclass(frozen=True)
class History:
    """The tokens of a text so far, the last one first: a value that shares its past with others."""

    token_id: int
    before: History | None
    length: int


class Masks:
    """llguidance's view of a vocabulary; made at its first use, for it takes a moment.

    Args:
        vocabulary: All ordinary tokens; one more id after them stands for the end of the text.
    """

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self._lock = threading.Lock()

    @property
    def tokenizer(self) -> LLTokenizer:
        """The tokenizer that llguidance works with."""
        with self._lock:
            return self._tokenizer

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(_Tokens(self.vocabulary)), slices=list(_SLICES))

    def limits(self) -> Any:
        """What one grammar may take: beyond it a schema is refused, or an answer ends with an error."""
        from llguidance import LLParserLimits

        return LLParserLimits(
            initial_lexer_fuel=2_000_000,
            step_lexer_fuel=500_000,
            verbose_errors=False,
            max_grammar_size=200_000,
        )


class Guide:
    """One grammar, ready to be followed by any number of texts.

    Args:
        grammar: The texts.
        masks: Of the vocabulary.
        path: Where its schema stands, for errors.

    Raises:
        SchemaError: llguidance refuses the grammar as too large.
    """

    def __init__(self, grammar: Grammar, masks: Masks, path: str = "#"):
        from llguidance import LLMatcher

        self.grammar = grammar
        self.start = tracker.start(grammar)
        self.byte_ids = masks.vocabulary.byte_ids
        self._num_tokens = len(masks.vocabulary)
        self._matcher = LLMatcher(masks.tokenizer, grammar.lark(), log_level=0, limits=masks.limits())
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0]
            raise SchemaError(path, "", f"is too complex to enforce: {reason:.200}")

    def follow(self) -> Cursor:
        """A cursor at the start of a new text."""
        return Cursor(self._matcher, self._num_tokens)


class Cursor:
    """Computes masks along texts that share a beginning.  Callable from any thread.

    Args:
        fresh: A matcher that no text was followed with; it is copied at the first mask.
        num_tokens: Of the vocabulary.
    """

    def __init__(self, fresh: LLMatcher, num_tokens: int):
        self._fresh = fresh
        self._num_tokens = num_tokens
        self._copied: LLMatcher | None = None
        self._at: History | None = None
        self._lock = threading.Lock()

    def copy(self) -> Cursor:
        """Another cursor at the start of the same grammar."""
        return Cursor(self._fresh, self._num_tokens)

    def mask(self, history: History | None) -> Mask:
        """The tokens that may follow.

        Args:
            history: The text so far; one near that of the last call costs least.

        Raises:
            GuideError: it is not in the grammar, or too complex there.
        """
        with self._lock:
            if self._copied is None:
                self._copied = self._fresh.deep_copy()
            self._move(self._copied, history)
            raw = np.frombuffer(self._copied.compute_bitmask(), dtype=np.uint8)
            _check(self._copied)
        return np.unpackbits(raw, count=self._num_tokens, bitorder="little").view(np.bool_)

    def _move(self, matcher: LLMatcher, history: History | None) -> None:
        """Take back what is not in the history, then take the rest of it."""
        old, new = self._at, history
        ahead: list[int] = []
        num_back = 0
        while old is not new:
            if new is not None and (old is None or new.length >= old.length):
                ahead.append(new.token_id)
                new = new.before
            elif old is not None:
                num_back += 1
                old = old.before
        if num_back:
            matcher.rollback(num_back)
        if ahead:
            matcher.consume_tokens(ahead[::-1])
        _check(matcher)
        self._at = history


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        reason = matcher.get_error().partition("\n")[0]
        raise GuideError(f"the constrained answer cannot go on: {reason:.200}")


class _Tokens:
    """The vocabulary in the form that llguidance asks for."""

    def __init__(self, vocabulary: Vocabulary):
        self.tokens: Sequence[bytes] = [*vocabulary.tokens, b"\xff<end>"]
        self.eos_token_id = len(vocabulary)
        self.bos_token_id = None
        self.special_token_ids: Sequence[int] = [self.eos_token_id]
        self._byte_ids = vocabulary.byte_ids

    def __call__(self, text: bytes | str) -> list[int]:
        """Any tokens that spell the text: masks do not depend on the way it is cut."""
        return [self._byte_ids[byte] for byte in (text.encode() if isinstance(text, str) else text)]
