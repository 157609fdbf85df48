"""One step of each phase: the book alone, the tower against the book, the tower through the text network.

Shape legend: B pictures or dialogues, P patches, N rows of an image, D hidden width.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from gossamer.images.patches import cut
from gossamer.images.rules import Fit, ImageRules, fit
from gossamer.kernels import backend
from gossamer.model.transformer import Transformer
from gossamer.model.vision import Vision
from gossamer.text.chat import Media, Rendered
from gossamer.text.specials import MEDIA_PAD
from gossamer.text.tokenizer import Tokenizer
from gossamer.train.vision import pictures
from gossamer.train.vision.book import Book, Dialogues, batch, embedded
from gossamer.train.vision.canvas import Typefaces
from gossamer.train.vision.facts import KINDS, VALUES, Facts, dialogue, draw_facts

SHARPNESS = 8.0
"""Of the choice among a slot's values: a fact that is there scores about 1, others about 0."""
CHOICE_WEIGHT = 0.5
"""Of that choice beside the distance of the rows."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures of one size, with what they show.

    Attributes:
        facts: Of each.
        patches: [B, P, 3 * side * side].
        size: Of each.
    """

    facts: list[Facts]
    patches: Tensor
    size: Fit


class Sight:
    """The frozen text network, its vocabulary, and where pictures come from.

    Args:
        text: Its parameters are frozen here.
        tokenizer: Its vocabulary.
        rules: How pictures are preprocessed.
    """

    def __init__(self, text: Transformer, tokenizer: Tokenizer, rules: ImageRules) -> None:
        self.text, self.tokenizer, self.rules = text.requires_grad_(False), tokenizer, rules
        self._pad = tokenizer.special(MEDIA_PAD)
        self._typefaces = Typefaces()
        self._fused = bool(backend.available())

    def draw(self, rng: random.Random, count: int, kinds: tuple[str, ...] = tuple(KINDS)) -> Pictures:
        """So many pictures of one size, their kinds in turn."""
        size = rng.choice(pictures.SIZES)
        facts, cuts = [], []
        for i in range(count):
            kind = kinds[i % len(kinds)]
            facts.append(draw_facts(rng, kind))
            cuts.append(cut(pictures.draw(kind, facts[-1], size, rng, self._typefaces), self.rules))
        patches = torch.stack([torch.from_numpy(one.values) for one in cuts])
        return Pictures(facts=facts, patches=patches, size=cuts[0].fit)

    def dialogues(self, rng: random.Random, facts: list[Facts], size: Fit, turns: int) -> Dialogues:
        """A dialogue about each picture: up to ``turns`` of its slots, in any order."""
        media = Media(width=size.width, height=size.height, num_tokens=size.num_tokens)
        found: list[Rendered] = []
        for one in facts:
            slots = rng.sample(list(one), min(turns, len(one)))
            found.append(dialogue(one, media, self.tokenizer, rng, slots=slots))
        return batch(found, self._pad)

    def loss(self, dialogues: Dialogues, rows: Tensor) -> Tensor:
        """Weighted mean cross entropy of the asked tokens, with these rows [all pads, D] in place."""
        text = self.text
        given = embedded(dialogues, text.model.embed_tokens.weight, rows)
        asked = dialogues.targets >= 0
        if self._fused:
            from gossamer.train.fused import network

            h = network.hidden(text, dialogues.ids, network.Ask(mode="dense"), given)
            logits = F.linear(h[asked], text.lm_head.weight)
        else:
            logits = text(dialogues.ids, attention_mode="dense", embeddings=given)[asked]
        each = F.cross_entropy(logits, dialogues.targets[asked], reduction="none")
        weights = dialogues.weights[asked]
        return (each * weights).sum() / weights.sum()


def book_loss(sight: Sight, book: Book, rng: random.Random, count: int, turns: int) -> Tensor:
    """How well the book's rows make the text network answer, on facts without pictures."""
    kinds = tuple(KINDS)
    facts = [draw_facts(rng, kinds[i % len(kinds)]) for i in range(count)]
    width, height = rng.choice(pictures.SIZES)
    size = fit(sight.rules, width, height)
    rows = book.directions(facts, size.num_tokens) * book.scale
    return sight.loss(sight.dialogues(rng, list(facts), size, turns), rows.flatten(0, 1))


def tower_loss(vision: Vision, book: Book, drawn: Pictures) -> tuple[Tensor, dict[str, float]]:
    """How far the tower's rows are from the book's; and the share of right values of each slot.

    Two terms: in each picture the values that it shows shall be more in the rows than others of their slots,
    and the rows shall be the book's.
    """
    size = drawn.size
    rows = vision(drawn.patches, size.rows, size.columns) / book.scale.detach()  # [B, N, D]
    wanted = book.directions(drawn.facts, size.num_tokens).detach()
    loss = 1 - F.cosine_similarity(rows, wanted, dim=-1).mean()
    right: dict[str, float] = {}
    for slot, scores in book.scores(rows).items():
        there = [i for i, one in enumerate(drawn.facts) if slot in one]
        if not there:
            continue
        values = torch.tensor([VALUES[slot].index(drawn.facts[i][slot]) for i in there])
        share = len(there) / len(drawn.facts)
        loss = loss + CHOICE_WEIGHT * share * F.cross_entropy(SHARPNESS * scores[there], values)
        right[slot] = float((scores[there].argmax(-1) == values).float().mean())
    return loss, right


def joint_loss(sight: Sight, vision: Vision, drawn: Pictures, rng: random.Random, turns: int) -> Tensor:
    """How well the tower's rows make the text network answer."""
    rows = vision(drawn.patches, drawn.size.rows, drawn.size.columns)
    return sight.loss(sight.dialogues(rng, drawn.facts, drawn.size, turns), rows.flatten(0, 1))
