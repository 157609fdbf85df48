"""The text bar: bits per byte of a model on held-out text against `xz -9e` on the same bytes.

The model restarts at each document and pays for every byte of it, the first token included, which it
predicts from the document separator alone.  The separator after a document is not charged: xz gets all
documents as one stream and is told no borders either.  Long documents are read in windows of the training
context; each window after the first repeats `context - stride` tokens as context and is charged for the rest.
Shape legend: B windows, T tokens, V vocabulary.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from gossamer.text import specials
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.document import Document
from gossamer.train.errors import TrainError

Forward = Callable[[torch.Tensor], torch.Tensor]
"""From ids [B, T] int64 to logits [B, T, V]; causal, so that what follows a token cannot change it."""
CONTEXT = 1024
STRIDE = 768


@dataclass(frozen=True, kw_only=True)
class Window:
    """A piece of a document, with the separator or earlier tokens before what is charged."""

    ids: tuple[int, ...]
    """T + 1 tokens: the last one is only predicted."""
    charged: int
    """How many of them, counted from the end, are charged."""


def windows(ids: Sequence[int], separator: int, context: int, stride: int) -> Iterator[Window]:
    """Cut a document's ids so that every one is charged exactly once."""
    whole = (separator, *ids)
    done = 0
    while done < len(ids):
        end = min(len(ids), context if done == 0 else done + stride)
        yield Window(ids=whole[max(0, end - context) : end + 1], charged=end - done)
        done = end


def measure(
    forward: Forward,
    tokenizer: Tokenizer,
    sets: Mapping[str, Sequence[Document]],
    *,
    context: int = CONTEXT,
    stride: int = STRIDE,
    batch_rows: int = 4,
) -> dict[str, dict]:
    """Measure every held-out set.

    Args:
        forward: the model; it sees about context / stride times the tokens of the sets.
        tokenizer: the model's.
        sets: documents by set, as `heldout.read` gives them.
        context: tokens of one window, at most; the training context.
        stride: tokens charged per window after a document's first.
        batch_rows: windows per call, of nearly equal length; shorter ones are padded at the end.

    Returns:
        Per set: bytes, documents, tokens, xz_bytes, model_bytes, bits_per_byte, xz_bits_per_byte,
        ratio_to_xz (model over xz: 0.8 is 20 % below xz), bytes_per_token, context, stride.

    Raises:
        TrainError: a stride outside 1..context, or an empty set.
    """
    if not 1 <= stride <= context:
        raise TrainError(f"stride {stride} is outside 1..{context}, the context")
    return {
        name: _measure_set(forward, tokenizer, documents, context, stride, batch_rows)
        for name, documents in sets.items()
    }


def xz_bytes(documents: Sequence[Document]) -> int:
    """Size of all documents, one after another, as one `xz -9e` stream."""
    raw = "".join(document.text for document in documents).encode()
    return len(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))


def _measure_set(
    forward: Forward,
    tokenizer: Tokenizer,
    documents: Sequence[Document],
    context: int,
    stride: int,
    batch_rows: int,
) -> dict:
    num_bytes = sum(document.num_bytes for document in documents)
    if not num_bytes:
        raise TrainError("a held-out set has no text; build the data again")
    separator = tokenizer.special(specials.EOS)
    encoded = [tokenizer.encode(document.text) for document in documents]
    pieces = [w for ids in encoded for w in windows(ids, separator, context, stride)]
    pieces.sort(key=lambda w: len(w.ids))
    bits = sum(
        _bits(forward, pieces[i : i + batch_rows], separator) for i in range(0, len(pieces), batch_rows)
    )
    tokens = sum(map(len, encoded))
    packed = xz_bytes(documents)
    return {
        "bytes": num_bytes,
        "documents": len(documents),
        "tokens": tokens,
        "bytes_per_token": num_bytes / tokens,
        "xz_bytes": packed,
        "xz_bits_per_byte": 8 * packed / num_bytes,
        "model_bytes": math.ceil(bits / 8),
        "bits_per_byte": bits / num_bytes,
        "ratio_to_xz": bits / 8 / packed,
        "context": context,
        "stride": stride,
    }


@torch.no_grad()
def _bits(forward: Forward, batch: Sequence[Window], pad: int) -> float:
    length = max(len(window.ids) for window in batch) - 1
    ids = torch.full((len(batch), length + 1), pad, dtype=torch.int64)
    charged = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, window in enumerate(batch):
        own = len(window.ids)
        ids[row, :own] = torch.tensor(window.ids)
        charged[row, own - 1 - window.charged : own - 1] = True
    logits = forward(ids[:, :-1])[charged].float()
    targets = ids[:, 1:][charged]
    nats = torch.logsumexp(logits, -1) - logits.gather(-1, targets[:, None])[:, 0]
    return float(nats.double().sum()) / math.log(2)
