"""The book: rows that make the frozen text network say what a picture shows.

It is learned first, from dialogues about facts without any picture, with gradients through the text network.
The tower then learns to write these rows.  Every fact adds its own directions to all rows of an image, so
that the network can be led by all of them at once; the sum's length is one learned scale per part.

Shape legend: B dialogues, T tokens, N rows of an image, R rows of the book, D hidden width, F facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gossamer.text.chat import Rendered, Segment
from gossamer.train.vision.facts import SLOTS, VALUES, Facts

FIRST_SCALE = 0.3
"""Of a row's parts at first; about four times those of nano's token embeddings."""
FACT_SIZE = 0.3
"""Of a fact's parts at first, beside those of one that all images share."""
DECISIVE_WEIGHT = 4.0
"""Of the tokens that rows decide: the answer's own, and the one with which the model does not think."""
TAGS = ("think", "response", "message")


class Book(nn.Module):
    """Directions of all facts.

    Args:
        width: D.
        num_rows: R, most rows of an image.
        seed: Of the first entries.
    """

    def __init__(self, width: int, num_rows: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first: dict[str, int] = {}
        count = 0
        for slot, values in VALUES.items():
            self.first[slot] = count
            count += len(values)
        self.base = nn.Parameter(torch.randn(num_rows, width, generator=generator))
        self.entries = nn.Parameter(FACT_SIZE * torch.randn(count, num_rows, width, generator=generator))
        self.scale = nn.Parameter(torch.full((width,), FIRST_SCALE))

    def directions(self, facts: Sequence[Facts], num_rows: int) -> Tensor:
        """[B, N, D] of the pictures' facts, each row of root mean square one."""
        sums = torch.stack([self.base + self.entries[self.index(one)].sum(0) for one in facts])[:, :num_rows]
        return sums / sums.square().mean(-1, keepdim=True).sqrt()

    def index(self, facts: Facts) -> list[int]:
        """The entries of some facts."""
        return [self.first[slot] + VALUES[slot].index(value) for slot, value in facts.items()]

    def scores(self, rows: Tensor) -> dict[str, Tensor]:
        """How much each value of each slot is in rows [B, N, D]: [B, values], 1 for about a fact's share."""
        entries = self.entries.detach()[:, : rows.shape[1]].flatten(1)  # [F, N * D]
        # Without what all images share, or every fact would seem a little true.
        base = self.base.detach()[: rows.shape[1]].flatten()
        entries = entries - (entries @ base)[:, None] * base / base.square().sum()
        all_scores = rows.flatten(1) @ (entries / entries.square().sum(-1, keepdim=True)).T
        return {slot: all_scores[:, self.first[slot] :][:, : len(VALUES[slot])] for slot in SLOTS}


@dataclass(frozen=True, kw_only=True)
class Dialogues:
    """A batch of dialogues, shorter ones filled up at the end.

    Attributes:
        ids: [B, T] int64.
        targets: [B, T] int64, -100 where nothing is asked: a row's target is the next token.
        weights: [B, T] float32 of the targets.
        pads: [B, T] bool, where images' rows go.
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor
    pads: Tensor


def batch(rendered: Sequence[Rendered], pad: int) -> Dialogues:
    """Rendered dialogues as one batch; ``pad`` is the id that rows stand in for."""
    longest = max(len(one.ids) for one in rendered)
    ids = torch.zeros(len(rendered), longest, dtype=torch.int64)
    targets, weights = torch.full_like(ids, -100), torch.zeros(ids.shape)
    for i, one in enumerate(rendered):
        own = torch.tensor(one.ids)
        ids[i, : len(own)] = own
        said = torch.where(torch.tensor(one.generated), own, -100)
        targets[i, : len(own) - 1] = said[1:]
        weights[i, : len(own) - 1] = torch.tensor(_weights(one.segments))[1:]
    return Dialogues(ids=ids, targets=targets, weights=weights, pads=ids == pad)


def _weights(segments: Sequence[Segment]) -> list[float]:
    found: list[float] = []
    before = False
    for segment in segments:
        decisive = segment.generated and (not before or (not segment.control and segment.text not in TAGS))
        found += [DECISIVE_WEIGHT if decisive else float(segment.generated)] * len(segment.ids)
        before = segment.generated
    return found


def embedded(dialogues: Dialogues, table: Tensor, rows: Tensor) -> Tensor:
    """[B, T, D]: the tokens' embeddings with the rows [all pads, D] in place, in the order of the pads."""
    tokens = nn.functional.embedding(dialogues.ids, table)
    return tokens.masked_scatter(dialogues.pads[..., None], rows.to(tokens.dtype))
