"""Shows a model pictures, asks one question about each, and counts right answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import gossamer
from gossamer.exam.errors import ExamError
from gossamer.exam.pictures import KINDS, Picture, picture
from gossamer.exam.report import Group
from gossamer.exam.statistics import share
from gossamer.images.patches import cut
from gossamer.images.rules import ImageRules
from gossamer.kernels.vision import VisionNetwork
from gossamer.model.transformer import Transformer
from gossamer.records.envelope import Record
from gossamer.text import specials
from gossamer.text.chat import Media, render
from gossamer.text.stream import ChatParser
from gossamer.text.tokenizer import Tokenizer

EFFORTS = ("low", "high", "max")
MAX_TOKENS = 48
"""Of an answer; the right ones have ten."""


class PictureReport(Record, frozen=True, kw_only=True, tag="gossamer.nano_pictures/1"):
    """What a picture exam found.

    Attributes:
        model: What was examined.
        seed: Of the pictures.
        total: Right answers of all.
        kinds: By kind of picture.
        slots: By what was asked for.
        duration_s: Of all answers.
        version: Of gossamer.
    """

    model: str
    seed: int
    total: Group
    kinds: list[Group]
    slots: list[Group]
    duration_s: float
    version: str


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """A text network with its tower.

    Attributes:
        model: In evaluation mode.
        tokenizer: Its vocabulary.
        tower: Its tower.
        rules: How images are preprocessed.
    """

    model: Transformer
    tokenizer: Tokenizer
    tower: VisionNetwork
    rules: ImageRules

    def answer(self, shown: Picture, effort: str) -> str:
        """The content of the greedy answer; what was thought is left out."""
        patches = cut(shown.image, self.rules)
        size = patches.fit
        rows = torch.from_numpy(self.tower.run(patches.values, size.rows, size.columns))
        parts = [{"type": "image_url", "image_url": ""}, {"type": "text", "text": shown.question}]
        rendered = render(
            [{"role": "user", "content": parts}],
            tokenizer=self.tokenizer,
            reasoning_effort=effort,
            media=[Media(width=size.width, height=size.height, num_tokens=size.num_tokens)],
        )
        ids = torch.tensor([rendered.ids])
        table = self.model.model.embed_tokens.weight
        given = torch.nn.functional.embedding(ids, table)
        pads = ids == self.tokenizer.special(specials.MEDIA_PAD)
        made = self._greedy(ids, given.masked_scatter(pads[..., None], rows.to(given.dtype)))
        parser = ChatParser(self.tokenizer, [], start=rendered.start)
        deltas = [*parser.feed(made), *parser.finish(stopped=True)]
        return "".join(delta.text for delta in deltas if delta.kind == "content")

    @torch.no_grad()
    def _greedy(self, ids: torch.Tensor, embeddings: torch.Tensor) -> list[int]:
        stop = self.tokenizer.special(specials.END_OF_MSG)
        cache, made = self.model.new_cache(1), []
        logits = self.model(ids, cache, logits_for="last", embeddings=embeddings)
        while len(made) < MAX_TOKENS:
            made.append(int(logits[0, -1].argmax()))
            if made[-1] == stop:
                break
            logits = self.model(torch.tensor([made[-1:]]), cache, logits_for="last")
        return made


def is_right(said: str, wanted: str) -> bool:
    """The same words; case, blanks around and a full stop do not count."""
    return said.strip().removesuffix(".").lower() == wanted.lower()


def examine(
    viewer: Viewer, *, model_name: str, seed: int, count: int, progress: Callable[[int, int], None]
) -> PictureReport:
    """Show ``count`` pictures.

    Raises:
        ExamError: no pictures are asked for.
    """
    if count < 1:
        raise ExamError(f"an exam needs at least one picture, got {count}")
    started = time.monotonic()
    outcomes: list[tuple[Picture, bool]] = []
    for number in range(count):
        shown = picture(seed, number)
        said = viewer.answer(shown, EFFORTS[number % len(EFFORTS)])
        outcomes.append((shown, is_right(said, shown.answer)))
        progress(number + 1, count)
    slots = list(dict.fromkeys(slot for kind in KINDS.values() for slot in kind))
    return PictureReport(
        model=model_name,
        seed=seed,
        total=_group("all", [right for _, right in outcomes]),
        kinds=[_group(kind, [right for p, right in outcomes if p.kind == kind]) for kind in KINDS],
        slots=[_group(slot, [right for p, right in outcomes if p.slot == slot]) for slot in slots],
        duration_s=round(time.monotonic() - started, 1),
        version=gossamer.__version__,
    )


def _group(name: str, right: list[bool]) -> Group:
    return Group(name=name, exact=share(right))
