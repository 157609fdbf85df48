"""Expert loads read back from the page that the server writes, and their picture."""

import base64
import re
import struct
import zlib
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gossamer.records import envelope
from gossamer.records.envelope import RecordError
from gossamer.records.expert_load import ExpertLoad, layer_load
from gossamer.server import expert_log, expert_map
from gossamer.server.expert_log import ExpertLogError
from gossamer.server.exposition import render
from gossamer.server.metrics import ServingMetrics

from .test_metrics import FakeEngine

SVG = "{http://www.w3.org/2000/svg}"


def page(loads, name="nano"):
    serving = ServingMetrics(
        model_name=name, engine=FakeEngine(), expert_loads=lambda: np.array(loads, np.int64)
    )
    return render(serving.families())


@pytest.fixture
def log(tmp_path):
    def write(text):
        path = tmp_path / "page.prom"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_saved_page_gives_the_figures(log):
    found = expert_log.read(log(page([[0, 0, 0, 0], [5, 5, 5, 5], [0, 0, 9, 3]])))
    assert (found.model, found.num_experts, found.idle_layers, found.basis) == ("nano", 4, (0,), "measured")
    even, odd = found.layers
    assert (even.layer, even.tokens, even.num_tokens) == (1, (5, 5, 5, 5), 20)
    assert (even.max_over_mean, even.busiest, even.num_idle, even.evenness) == (1.0, 0, 0, 1.0)
    assert (odd.layer, odd.max_over_mean, odd.busiest, odd.num_idle) == (2, 3.0, 2, 2)
    share = np.array([0.75, 0.25])
    assert odd.evenness == pytest.approx(-(share * np.log(share)).sum() / np.log(4))


@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.integers(0, 10**9)),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12),
)
def test_what_is_written_is_read(tmp_path_factory, loads, name):
    path = tmp_path_factory.mktemp("log") / "page"
    path.write_bytes(page(loads, name).encode())
    if not loads.any():
        with pytest.raises(ExpertLogError, match="send requests"):
            expert_log.read(path)
        return
    found = expert_log.read(path)
    assert found.model == name
    assert sorted([*found.idle_layers, *(layer.layer for layer in found.layers)]) == list(range(len(loads)))
    for layer in found.layers:
        row = loads[layer.layer]
        assert layer.tokens == tuple(row.tolist())
        assert layer.max_over_mean == pytest.approx(row.max() / row.mean())
    # The record is a log too.
    path.write_bytes(envelope.encode(found))
    assert expert_log.read(path) == found
    ElementTree.fromstring(expert_map.draw(found))


def test_a_scraper_may_add_times_and_carriage_returns(log):
    text = page([[1, 2]]).replace("\n", " 1764720000000\r\n")
    assert expert_log.read(log(text)).layers[0].tokens == (1, 2)


def sample(layer, expert, value, model="m"):
    labels = f'model_name="{model}",layer="{layer}",expert="{expert}"'
    return f"gossamer:expert_load_tokens_total{{{labels}}} {value}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"no expert loads .*curl http://127\.0\.0\.1:8080/metrics > page\.prom"),
        ("gossamer:num_requests_running 0\n", "no expert loads"),
        ("<html>404</html>", "no expert loads"),
        (page([[0, 0]]), "no expert of 'nano' had worked on a token .* send requests"),
        (sample(0, 0, 1) + sample(0, 0, 2), r":2: layer 0, expert 0 comes a second time"),
        (sample(0, 0, 1) + sample(0, 1, 2) + sample(1, 1, 4), "layer 1 lacks expert 0 of 2"),
        (sample(0, 0, 1, "a") + sample(0, 0, 1, "b"), r"2 models \(a, b\)"),
        (sample("x", 0, 1), ":1: label layer must be a number from 0, got 'x'"),
        (sample(0, -1, 1), "label expert must be a number from 0, got '-1'"),
        (sample(0, 99999999, 1), "label expert"),
        (sample("1" * 5000, 0, 1), "label layer must be a number from 0"),
        (sample(0, 0, -3), "a load is a whole number from 0, got '-3'"),
        (sample(0, 0, 1.5), "got '1.5'"),
        (sample(0, 0, "NaN"), "got 'NaN'"),
        (sample(0, 0, "+Inf"), "got '.Inf'"),
        (sample(0, 0, "many"), "got 'many'"),
        (sample(0, 0, 1)[:40], ":1: not a sample of Prometheus' text format"),
        ("gossamer:expert_load_tokens_total 3\n", ":1: not a sample"),
    ],
)
def test_a_file_without_figures_is_an_error_that_says_why(log, text, message):
    with pytest.raises(ExpertLogError, match=message):
        expert_log.read(log(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"busiest":1', b'"busiest":9', "busiest 9 and num_idle 0 contradict its tokens"),
        (b'"num_idle":0', b'"num_idle":1', "busiest 1 and num_idle 1 contradict its tokens"),
    ],
)
def test_a_record_whose_figures_contradict_its_tokens_is_refused(log, tmp_path, old, new, message):
    data = b"".join(envelope.encode(expert_log.read(log(page([[1, 2]])))).split())
    assert old in data
    (tmp_path / "x.json").write_bytes(data.replace(old, new))
    with pytest.raises(RecordError, match=message):
        expert_log.read(tmp_path / "x.json")


def test_a_record_of_nothing_is_refused(tmp_path):
    text = '{"schema":"gossamer.expert_load/1","model":"m","num_experts":1,"idle_layers":[],"layers":[]}'
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RecordError, match="no layer has worked on any token"):
        expert_log.read(tmp_path / "x.json")


def test_files_that_are_no_logs(tmp_path):
    with pytest.raises(ExpertLogError, match=r"absent\.prom: No such file"):
        expert_log.read(tmp_path / "absent.prom")
    (tmp_path / "x.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExpertLogError, match=r"x\.bin is no text"):
        expert_log.read(tmp_path / "x.bin")
    (tmp_path / "x.json").write_text('{"schema": "gossamer.plan/1"}')
    with pytest.raises(RecordError, match=r"x\.json: schema is 'gossamer\.plan/1'"):
        expert_log.read(tmp_path / "x.json")


def test_a_record_that_contradicts_itself_is_refused():
    good = layer_load(1, [1, 2])
    with pytest.raises(RecordError, match="layer 1 has 2 experts where there are 3"):
        ExpertLoad(model="m", num_experts=3, idle_layers=(), layers=(good,))
    with pytest.raises(RecordError, match="layers must rise"):
        ExpertLoad(model="m", num_experts=2, idle_layers=(), layers=(good, good))
    tree = envelope.encode(ExpertLoad(model="m", num_experts=2, idle_layers=(), layers=(good,)))
    with pytest.raises(RecordError, match="layer 1: 9 tokens, but its experts have 3"):
        envelope.decode(tree.replace(b'"num_tokens": 3', b'"num_tokens": 9'), ExpertLoad)


def decoded(svg):
    """The picture's pixels as places in its palette, [rows, columns], and the palette."""
    data = base64.b64decode(re.search(r'base64,([^"]+)"', svg).group(1))
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks[kind], at = body, at + 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert (lines[:, 0] == 2).all()
    pixels = np.cumsum(lines[:, 1:].astype(np.int64), 0) % 256
    return pixels, np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)


def test_every_cell_has_the_colour_of_its_load(log):
    found = expert_log.read(log(page([[0, 0, 0, 0], [4, 4, 4, 4], [0, 1, 1, 62]])))
    svg = expert_map.draw(found)
    pixels, palette = decoded(svg)
    assert pixels.max() < len(palette)
    high, wide = pixels.shape[0] // 2, pixels.shape[1] // 4
    cells = pixels[::high, ::wide]
    np.testing.assert_array_equal(pixels, np.repeat(np.repeat(cells, high, 0), wide, 1))
    middle = 1 + 3 * 16
    # Even; idle, an eighth or less twice, and 62 of a mean of 16.
    assert cells[0].tolist() == [middle] * 4
    assert cells[1].tolist() == [0, 1, 1, middle + round(np.log2(62 / 16) * 16)]
    assert len({tuple(colour) for colour in palette.tolist()}) == len(palette)


def test_the_largest_model_makes_one_small_picture():
    draw = np.random.default_rng(1)
    layers = tuple(layer_load(i, draw.poisson(200, 896).tolist()) for i in range(1, 93))
    found = ExpertLoad(model="k3.1-pro", num_experts=896, idle_layers=(0,), layers=layers)
    svg = expert_map.draw(found)
    assert len(svg) < 200_000
    pixels, _ = decoded(svg)
    assert pixels.shape[1] % 896 == 0
    root = ElementTree.fromstring(svg)
    left, top, width, height = map(float, root.get("viewBox").split())
    assert (left, top, width) == (0, 0, expert_map.WIDTH)
    texts = root.findall(f".//{SVG}text")
    numbers = [t.text for t in texts if t.get("text-anchor") == "end" and t.text.isdigit()]
    assert numbers == [str(i) for i in range(5, 93, 5)]
    # Nothing stands outside the card, and no two layer numbers on each other.
    assert all(0 <= float(t.get("x")) < width and 0 < float(t.get("y")) < height for t in texts)
    assert "script" not in svg
    assert "Without any load, and left out: layer 0." in svg


def test_names_are_escaped():
    load = ExpertLoad(model="<b>&", num_experts=1, idle_layers=(1, 2, 5), layers=(layer_load(0, [3]),))
    svg = expert_map.draw(load)
    assert "<b>" not in svg
    assert "layers 1-2, 5." in svg
    ElementTree.fromstring(svg)
