"""One seeded dialogue after another, as OpenAI-shaped messages with the tools they were offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gossamer.train.dialogue import invent, offer, phrase, recall, repair, talk, turns, values
from gossamer.train.dialogue.scene import EFFORTS, Dialogue, Scene
from gossamer.train.dialogue.talk import Turn
from gossamer.train.dialogue.values import Draw

__all__ = ["EFFORTS", "Dialogue", "Generator"]

GLOSSARY = (("test", "a procedure to find out whether something works"),)
WITH_CALLS: tuple[tuple[float, Callable[[Draw, str | None], Dialogue]], ...] = (
    (0.50, turns.single),
    (0.03, turns.parallel),
    (0.14, turns.chained),
    (0.07, turns.again),
    (0.12, recall.decided),
    (0.14, repair.failing),
)
"""Shares among the dialogues with calls."""
TALK_SHARE = 0.15
EFFORT_DECK = ("low", "low", "low", "high", "high", "max", "max", None, None)


class Generator:
    """Makes dialogue number `index` of a seed; the same arguments always give the same dialogue.

    Args:
        seed: chooses the whole sequence; held-out sets use another one.
        glossary: words with meanings for definitions.
        words: what names, values and chatter are made of; thousands keep them from being learned by heart.
        difficulty: 0 (one tool, one argument, short plain values, one turn) to 1.
    """

    def __init__(
        self,
        seed: int,
        glossary: list[tuple[str, str]] | None = None,
        words: Sequence[str] = values.WORDS,
        difficulty: float = 1.0,
    ):
        self.seed = seed
        self.glossary = glossary or list(GLOSSARY)
        self.words = words
        self.difficulty = difficulty

    def dialogue(self, index: int) -> Dialogue:
        """Dialogue number `index`."""
        rng = Draw(f"{self.seed}/{index}", self.words, self.difficulty)
        effort = rng.choice(EFFORT_DECK)
        if rng.random() < TALK_SHARE:
            return self._unused(rng, effort) if rng.random() < 0.67 else self._talk(rng, effort)
        if rng.random() > self.difficulty:
            return turns.single(rng, effort)
        kind = rng.random()
        for share, make in WITH_CALLS:
            kind -= share
            if kind < 0:
                return make(rng, effort)
        return turns.single(rng, effort)

    def _unused(self, rng: Draw, effort: str | None) -> Dialogue:
        """Tools are on offer and none is of use."""
        # Invented tools only: one of every day might answer what is asked here.
        tools = [invent.tool(rng) for _ in range(turns.number_of_tools(rng))]
        tools = list({tool.name: tool for tool in tools}.values())
        turn = self._turn(rng)
        if rng.random() < 0.3:
            other = offer.one(rng)
            taken = {
                word for tool in tools for word in f"{tool.wish} {tool.name} {tool.about}".lower().split()
            }
            if not taken.intersection(w for w in other.wish.lower().split() if w not in ("the", "a", "of")):
                _, request = phrase.request(rng, other, other.draw(rng))
                turn = talk.unfit(rng, other.wish, request)
        return _spoken(Scene(rng, effort, tools), "unused tools", [turn])

    def _talk(self, rng: Draw, effort: str | None) -> Dialogue:
        if rng.random() < 0.15:
            made = list(talk.remembered(rng))
        else:
            made = [self._turn(rng) for _ in range(rng.choice((1, 1, 1, 2)))]
        return _spoken(Scene(rng, effort), "talk", made)

    def _turn(self, rng: Draw) -> Turn:
        kind = rng.random()
        if kind < 0.5:
            return talk.copying(rng)
        if kind < 0.62:
            return talk.small_talk(rng)
        if kind < 0.70:
            return talk.arithmetic(rng)
        if kind < 0.80:
            return talk.definition(rng, self.glossary)
        if kind < 0.92:
            return talk.transform(rng)
        return talk.unknown(rng)


def _spoken(scene: Scene, family: str, made: list[Turn]) -> Dialogue:
    for turn in made:
        scene.user(turn.user)
        scene.say(turn.answer, turn.short, *turn.steps)
    return scene.dialogue(family)
