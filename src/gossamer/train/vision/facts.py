"""What a picture can say, how it is asked for, and the dialogue that asks.

A picture has facts of its kind: a value for each of some slots.  Every answer is the value itself.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from gossamer.text.chat import Media, Rendered, render
from gossamer.text.tokenizer import Tokenizer

Facts = Mapping[str, str]
"""Slot to value, of one picture."""

VALUES: dict[str, tuple[str, ...]] = {
    "shape": ("circle", "square", "triangle", "star", "cross", "ring"),
    "colour": ("red", "green", "blue", "yellow", "black", "purple", "orange", "grey"),
    "number": ("1", "2", "3", "4", "5", "6"),
    "word": (
        *("cat", "dog", "sun", "map", "key", "box", "hat", "cup", "pen", "bus"),
        *("fish", "tree", "book", "milk", "star", "door", "ship", "lamp", "bird", "rain"),
    ),
    "tallest": ("A", "B", "C", "D"),
    "bars": ("2", "3", "4"),
    "button": ("Save", "Open", "Close", "Send", "Help", "Edit", "Stop", "Next"),
    "place": ("top left", "top right", "bottom left", "bottom right", "middle"),
    "switch": ("on", "off"),
}
SLOTS = tuple(VALUES)
KINDS: dict[str, tuple[str, ...]] = {
    "shapes": ("shape", "colour", "number"),
    "word": ("word", "colour"),
    "chart": ("tallest", "bars"),
    "screen": ("button", "place", "switch"),
}
QUESTIONS: dict[str, tuple[str, ...]] = {
    "shape": ("What shape is it?", "Which shape is shown?"),
    "colour": ("What colour is it?", "Which colour is shown?"),
    "number": ("How many are there?", "Count the shapes."),
    "word": ("What word is written?", "Read the word."),
    "tallest": ("Which bar is tallest?", "Name the tallest bar."),
    "bars": ("How many bars are there?", "Count the bars."),
    "button": ("What does the button say?", "Read the button."),
    "place": ("Where is the button?", "In which place is the button?"),
    "switch": ("Is the switch on or off?", "What is the state of the switch?"),
}
EFFORTS = ("low", "high", "max", None, None, None)
"""Served prompts name an effort; half of the dialogues leave its sentence, a third of their tokens, out."""


def draw_facts(rng: random.Random, kind: str) -> dict[str, str]:
    """A value for each slot of a kind; the tallest bar is one of those there are."""
    facts = {slot: rng.choice(VALUES[slot]) for slot in KINDS[kind]}
    if kind == "chart":
        facts["tallest"] = rng.choice(VALUES["tallest"][: int(facts["bars"])])
    return facts


def dialogue(
    facts: Facts, media: Media, tokenizer: Tokenizer, rng: random.Random, *, slots: Sequence[str]
) -> Rendered:
    """Questions for some slots in their order, each answered at once; the picture stands before the first."""
    conversation = []
    for turn, slot in enumerate(slots):
        question = rng.choice(QUESTIONS[slot])
        parts = [{"type": "image_url", "image_url": ""}, {"type": "text", "text": question}]
        conversation.append({"role": "user", "content": question if turn else parts})
        conversation.append({"role": "assistant", "content": facts[slot], "reasoning_content": ""})
    return render(
        conversation,
        tokenizer=tokenizer,
        reasoning_effort=rng.choice(EFFORTS),
        add_generation_prompt=False,
        media=[media],
    )
