import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.server.exposition import Buckets, MetricError, MetricFamily, Sample, render
from server.exposition_reader import read

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('\\"\n{},= é', max_size=6)
LABELS = st.dictionaries(st.sampled_from(["a", "model_name", "_x1"]), ANY_TEXT, max_size=3)
COUNTS = st.integers(0, 2**53)


@st.composite
def buckets(draw):
    bounds = sorted(draw(st.sets(st.floats(-1e9, 1e9), max_size=5)))
    counts = draw(st.lists(st.integers(0, 10**9), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
    return Buckets(bounds, counts=counts, total=draw(st.floats(-1e12, 1e12)))


@st.composite
def families(draw):
    made = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["counter", "gauge", "histogram"]))
        values = {"counter": COUNTS, "gauge": st.floats() | COUNTS, "histogram": buckets()}[kind]
        labels = draw(st.lists(LABELS, max_size=3, unique_by=lambda d: frozenset(d.items())))
        samples = [Sample(draw(values), chosen) for chosen in labels]
        name = f"gossamer:m{number}_total"
        made.append(MetricFamily(name, help=draw(ANY_TEXT), kind=kind, samples=samples))
    return made


def expected(family):
    """What a scraper must find."""
    for sample in family.samples:
        value = sample.value
        if not isinstance(value, Buckets):
            yield family.name, dict(sample.labels), value
            continue
        for bound in [*value.bounds, math.inf]:
            below = [n for b, n in zip([*value.bounds, math.inf], value.counts, strict=True) if b <= bound]
            yield f"{family.name}_bucket", {**sample.labels, "le": bound}, sum(below)
        yield f"{family.name}_sum", dict(sample.labels), value.total
        yield f"{family.name}_count", dict(sample.labels), sum(value.counts)


def comparable(name, labels, value):
    if "le" in labels:
        labels = {**labels, "le": float(labels["le"])}
    return name, labels, "NaN" if math.isnan(value) else float(value)


@given(families())
def test_a_scraper_finds_every_value(made):
    found = read(render(made))
    assert list(found) == [family.name for family in made]
    for family in made:
        seen = found[family.name]
        assert (seen["help"], seen["kind"]) == (family.help, family.kind)
        assert [comparable(*s) for s in seen["samples"]] == [comparable(*s) for s in expected(family)]


def test_the_page_to_the_letter():
    counter = MetricFamily(
        "a_total", help='back\\slash\nand "line"', kind="counter", samples=[Sample(3, {"x": 'q"\\\n'})]
    )
    gauges = [Sample(0.5), *(Sample(v, {"n": str(v)}) for v in (math.inf, -math.inf, math.nan))]
    gauge = MetricFamily("b", help="", kind="gauge", samples=gauges)
    values = Buckets((0.25, 1), counts=(2, 0, 1), total=9.5)
    histogram = MetricFamily("c_seconds", help="h", kind="histogram", samples=[Sample(values, {"m": "n"})])
    assert render([counter, gauge, histogram]) == (
        '# HELP a_total back\\\\slash\\nand "line"\n'
        "# TYPE a_total counter\n"
        'a_total{x="q\\"\\\\\\n"} 3\n'
        "# HELP b \n"
        "# TYPE b gauge\n"
        "b 0.5\n"
        'b{n="inf"} +Inf\n'
        'b{n="-inf"} -Inf\n'
        'b{n="nan"} NaN\n'
        "# HELP c_seconds h\n"
        "# TYPE c_seconds histogram\n"
        'c_seconds_bucket{m="n",le="0.25"} 2\n'
        'c_seconds_bucket{m="n",le="1.0"} 2\n'
        'c_seconds_bucket{m="n",le="+Inf"} 3\n'
        'c_seconds_sum{m="n"} 9.5\n'
        'c_seconds_count{m="n"} 3\n'
    )
    assert render([]) == ""


@pytest.mark.parametrize(
    ("name", "kind", "samples", "fault"),
    [
        ("9a", "gauge", [], "'9a' is no metric name"),
        ("a-b", "gauge", [], "'a-b' is no metric name"),
        ("a\n", "gauge", [], "is no metric name"),
        ("a", "counter", [], "a: the name of a counter ends with _total"),
        ("a_total", "counter", [Sample(-1)], "a counter is at least 0, got -1"),
        ("a_total", "counter", [Sample(math.nan)], "a counter is at least 0, got nan"),
        ("a", "gauge", [Sample(Buckets((), counts=(0,), total=0))], "Buckets are for histograms alone"),
        ("a", "histogram", [Sample(1)], "Buckets are for histograms alone"),
        ("a", "gauge", [Sample(1, {"x:y": "z"})], "'x:y' cannot be the name of a label"),
        ("a", "gauge", [Sample(1, {"__x": "z"})], "'__x' cannot be the name of a label"),
        ("a", "histogram", [Sample(Buckets((), counts=(0,), total=0), {"le": "1"})], "'le' cannot be"),
        ("a", "gauge", [Sample(1, {"x": "z"}), Sample(2, {"x": "z"})], "two samples have the labels"),
    ],
)
def test_what_a_scraper_would_refuse(name, kind, samples, fault):
    with pytest.raises(MetricError, match=fault):
        MetricFamily(name, help="", kind=kind, samples=samples)


@pytest.mark.parametrize(
    ("bounds", "counts", "fault"),
    [
        ((1.0, 1.0), (0, 0, 0), "bounds must be finite and rising"),
        ((2.0, 1.0), (0, 0, 0), "bounds must be finite and rising"),
        ((math.inf,), (0, 0), "bounds must be finite and rising"),
        ((1.0,), (0,), "1 bounds need 2 counts, got 1"),
        ((1.0,), (0, -1), "a bucket holds -1 values"),
    ],
)
def test_what_cannot_be_a_histogram(bounds, counts, fault):
    with pytest.raises(MetricError, match=fault):
        Buckets(bounds, counts=counts, total=0.0)


def test_two_families_cannot_share_a_sample_name():
    gauge = MetricFamily("a", help="", kind="gauge", samples=[Sample(1)])
    with pytest.raises(MetricError, match="a is written by two families"):
        render([gauge, gauge])
    histogram = MetricFamily("a", help="", kind="histogram", samples=[])
    other = MetricFamily("a_sum", help="", kind="gauge", samples=[])
    with pytest.raises(MetricError, match="a_sum is written by two families, a and a_sum"):
        render([histogram, other])
