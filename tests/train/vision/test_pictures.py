"""Training pictures show their facts: checked on pixels where a pixel can tell."""

import random

import numpy as np
import pytest

from gossamer.train.vision.canvas import RANGES, Typefaces, colour, contrast, paper
from gossamer.train.vision.facts import KINDS, QUESTIONS, SLOTS, VALUES, draw_facts
from gossamer.train.vision.pictures import SIZES, draw


@pytest.fixture(scope="module")
def typefaces():
    return Typefaces()


def picture(kind, facts, seed, typefaces, size=SIZES[0]):
    return np.asarray(draw(kind, facts, size, random.Random(seed), typefaces)).astype(int)


def blobs(mask):
    """How many groups of neighbouring true pixels there are, specks left out."""
    left, count = {tuple(p) for p in np.argwhere(mask)}, 0
    while left:
        heap, area = [left.pop()], 0
        while heap:
            y, x = heap.pop()
            area += 1
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            heap += near
        count += area > 12
    return count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_pictures_have_their_size_and_are_the_same_for_the_same_seed(kind, size, typefaces):
    facts = draw_facts(random.Random(1), kind)
    one, again = (picture(kind, facts, 5, typefaces, size) for _ in range(2))
    assert one.shape == (size[1], size[0], 3)
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, picture(kind, facts, 6, typefaces, size))


@pytest.mark.parametrize("seed", range(40))
def test_as_many_shapes_are_seen_as_are_said(seed, typefaces):
    facts = draw_facts(random.Random(f"shapes {seed}"), "shapes")
    size = SIZES[seed % 3]
    seen = picture("shapes", facts, seed, typefaces, size)
    background = seen[0, 0] if (seen[0, 0] == seen[-1, -1]).all() else seen[-1, 0]
    assert blobs(np.abs(seen - background).sum(-1) > 60) == int(facts["number"])


@pytest.mark.parametrize("seed", range(8))
def test_a_switchs_knob_is_right_where_it_is_on(seed, typefaces):
    """Two pictures that differ in the state alone: where they differ the switch is, and its knob is white."""
    facts = {"button": "Save", "place": "top left"}
    on, off = (picture("screen", {**facts, "switch": state}, seed, typefaces) for state in ("on", "off"))
    rows, columns = np.nonzero((on != off).any(-1))
    window = np.s_[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    assert rows.max() - rows.min() < 14
    assert columns.max() - columns.min() < 26
    knobs = [np.nonzero((seen[window] == 255).all(-1))[1].mean() for seen in (on, off)]
    assert knobs[0] > knobs[1] + 5


@pytest.mark.parametrize("place", VALUES["place"])
def test_the_place_of_a_button_is_where_it_is_drawn(place, typefaces):
    """Two pictures that differ in the label alone differ where the button is."""
    found = []
    for seed in range(12):
        base = {"place": place, "switch": "off"}
        one, two = (picture("screen", {**base, "button": b}, seed, typefaces) for b in ("Save", "Open"))
        rows, columns = np.nonzero(np.abs(one - two).sum(-1) > 90)
        if len(rows):
            found.append((np.median(columns), np.median(rows)))
    assert len(found) >= 6
    x, y = np.median(found, axis=0) / 112
    assert ("left" in place) == (x < 0.42)
    assert ("right" in place) == (x > 0.58)
    assert ("top" in place) == (y < 0.42)
    assert ("bottom" in place) == (y > 0.58)


def test_shades_lie_in_the_range_of_their_name_and_backgrounds_show_them():
    rng = random.Random(2)
    for name, ranges in RANGES.items():
        for _ in range(50):
            shade = colour(rng, name)
            assert all(low <= part <= high for part, (low, high) in zip(shade, ranges, strict=True))
            assert contrast(paper(rng, shade), shade) > 60


def test_facts_are_of_their_kind_and_every_slot_can_be_asked_for():
    rng = random.Random(3)
    assert set(QUESTIONS) == set(SLOTS) == {slot for kind in KINDS.values() for slot in kind}
    for kind, slots in KINDS.items():
        for _ in range(50):
            facts = draw_facts(rng, kind)
            assert tuple(facts) == slots
            assert all(value in VALUES[slot] for slot, value in facts.items())
            if kind == "chart":
                assert "ABCD".index(facts["tallest"]) < int(facts["bars"])
