"""Learning nano's vocabulary: byte-level BPE merges, written as ranks that `gossamer.text` reads."""

from __future__ import annotations

from collections.abc import Iterable

from gossamer.text import specials
from gossamer.text.pattern import split_pattern
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.errors import TrainError

DIGITS = 1


def learn(texts: Iterable[str], *, vocab_size: int) -> Tokenizer:
    """Learn `vocab_size` - 64 ranks (256 bytes and the merges in order of learning) from texts.

    Raises:
        TrainError: the texts hold too few different pairs for that many merges.
    """
    from tokenizers import Regex, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Learner

    num_ranks = vocab_size - specials.SMALL_SLOTS
    learner = Learner(models.BPE())
    split = pre_tokenizers.Split(Regex(split_pattern(DIGITS)), behavior="isolated")
    learner.pre_tokenizer = pre_tokenizers.Sequence(  # pyrefly: ignore
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=num_ranks,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    learner.train_from_iterator(texts, trainer)
    ordered = sorted(learner.get_vocab().items(), key=lambda item: item[1])
    if len(ordered) != num_ranks:
        raise TrainError(f"the texts give {len(ordered)} ranks, not {num_ranks}; use more text")
    to_byte = _bytes_of_characters()
    ranks = {bytes((byte,)): byte for byte in range(256)}
    for token, _ in ordered:
        raw = bytes(to_byte[character] for character in token)
        if len(raw) > 1:
            ranks[raw] = len(ranks)
    return Tokenizer(ranks, specials=specials.small(num_ranks), digits=DIGITS, source="nano")


def _bytes_of_characters() -> dict[str, int]:
    """The byte behind each character of the byte-level alphabet: printable ones stand for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + i): byte for i, byte in enumerate(others)}
