"""`inspect --formats` prints and plots what the measurement returns."""

import json
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

import gossamer.mx
from gossamer.cli.main import run


@dataclass(frozen=True)
class Row:
    format: str
    weights: str
    sqnr_db: float


@pytest.fixture
def seeds(monkeypatch):
    """A stand-in measurement, so that this file tests the wiring alone; yields the seeds asked for."""
    asked: list[int] = []

    def measure(seed: int = 0) -> list[Row]:
        asked.append(seed)
        return [Row("mxfp4", "gaussian", 18.5), Row("int4 per tensor", "outliers", -1.25)]

    report = ModuleType("gossamer.mx.report")
    report.measure = measure  # type: ignore[attr-defined]
    report.CONDITIONS = "two rows, made up"  # type: ignore[attr-defined]
    report.plot_svg = lambda rows: f"<svg>{len(rows)} rows</svg>"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gossamer.mx.report", report)
    monkeypatch.setattr(gossamer.mx, "report", report, raising=False)
    return asked


def test_table(seeds, capsys):
    assert run(["inspect", "--formats", "--seed", "7"]) == 0
    assert seeds == [7]
    assert capsys.readouterr().out.splitlines() == [
        "signal kept by each format (measured, seed 7)",
        "two rows, made up",
        "",
        "format           weights   sqnr_db",
        "mxfp4            gaussian    18.50",
        "int4 per tensor  outliers    -1.25",
    ]


def test_json(seeds, capsys):
    assert run(["inspect", "--formats", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seed"], found["basis"]) == (0, "measured")
    assert found["rows"][1] == {"format": "int4 per tensor", "weights": "outliers", "sqnr_db": -1.25}


def test_plot(seeds, tmp_path, capsys):
    assert run(["inspect", "--formats", "--plot", str(tmp_path / "formats.svg")]) == 0
    assert (tmp_path / "formats.svg").read_text() == "<svg>2 rows</svg>"
    assert run(["inspect", "--formats", "--plot", str(tmp_path / "absent" / "x.svg")]) == 1
    assert "cannot write the plot" in capsys.readouterr().err
