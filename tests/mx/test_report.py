"""The comparison of formats: its figures follow from theory where theory has one, and the plot is sound."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from gossamer.mx import plot, report


@pytest.fixture(scope="module")
def rows():
    return report.measure(seed=0)


def db(rows, name, scaling, field):
    return next(getattr(r, field) for r in rows if (r.format, r.scaling) == (name, scaling))


def test_every_format_is_there_once(rows):
    keys = [(r.format, r.scaling) for r in rows]
    assert len(set(keys)) == len(keys) == 5 + 2 * 4
    assert next(r.bits for r in rows if r.format == "MXFP4 E2M1") == 4.25
    assert next(r.bits for r in rows if (r.format, r.scaling) == ("INT4", "group of 32")) == 4.5


def test_figures_are_reproducible(rows):
    assert report.measure(seed=0) == rows
    other = report.measure(seed=1)
    assert other != rows
    for a, b in zip(rows, other, strict=True):
        assert abs(a.gaussian_db - b.gaussian_db) < 1.5  # one maximum decides a whole per-tensor scale


def test_uniform_quantisation_follows_theory():
    """A step of amax / 127 has noise step^2 / 12, whatever the signal."""
    x, _ = report.weights(3)
    step = float(np.abs(x).max()) / 127
    theory = 10 * math.log10(float(np.square(x.astype(np.float64)).mean()) / (step**2 / 12))
    assert report.sqnr_db(x, report.quantise_int(x, 8, None)) == pytest.approx(theory, abs=0.05)


def test_outliers_hurt_wide_scales_most(rows):
    """The reason for small blocks: what 0.1 % of outliers cost, by the reach of one scale."""
    cost = [
        db(rows, "INT4", s, "gaussian_db") - db(rows, "INT4", s, "outliers_db")
        for s in ("group of 32", "group of 128", "per channel")
    ]
    assert cost == sorted(cost)
    assert cost[-1] > 9
    mx = (
        db(rows, "MXFP4 E2M1", "block of 32", "gaussian_db"),
        db(rows, "MXFP4 E2M1", "block of 32", "outliers_db"),
    )
    assert mx[0] - mx[1] < 1
    assert mx[1] > db(rows, "INT4", "group of 32", "outliers_db")
    assert mx[0] == pytest.approx(19.0, abs=0.1)


def test_exact_copies_and_zero_blocks():
    x = np.zeros((2, 32), np.float32)
    assert (report.quantise_int(x, 4, 32) == 0).all()
    assert report.sqnr_db(np.ones(3, np.float32), np.ones(3, np.float32)) == math.inf


def test_plot_is_sound_xml_without_overlap(rows):
    root = ET.fromstring(report.plot_svg(rows))
    space = "{http://www.w3.org/2000/svg}"
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    texts = [(t.text, float(t.attrib["x"]), float(t.attrib["y"]), t.attrib["text-anchor"], t.attrib["class"])
             for t in root.iter(f"{space}text")]  # fmt: skip
    boxes = []
    for content, x, y, anchor, style in texts:
        size = 18 if "title" in style else 12.5 if "small" in style else 14
        wide = len(content) * size * 0.56
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
        assert left >= 0, content
        assert left + wide <= width, content
        assert size < y < height, content
        boxes.append((left, left + wide, y - size * 0.8, y + size * 0.1, content))
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], (a, b)
    bars = [r for r in root.iter(f"{space}rect") if r.attrib.get("height") == str(plot._BAR)]
    assert len(bars) == 2 * len(rows)
    lengths = [float(r.attrib["width"]) for r in bars[::2]]
    ratio = [r.gaussian_db / n for r, n in zip(rows, lengths, strict=True)]
    assert max(ratio) / min(ratio) < 1.01
    assert {r.format for r in rows} <= {t[0].split(",")[0] for t in texts}
