"""`inspect --experts` on a page as a server writes it."""

import json

import pytest

from gossamer.cli.main import run

PAGE = "\n".join(
    f'gossamer:expert_load_tokens_total{{model_name="toy",layer="{layer}",expert="{expert}"}} {count}'
    for layer, row in enumerate([[0, 0], [30, 10], [0, 1200]])
    for expert, count in enumerate(row)
)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "toy.prom"
    path.write_text(f"# HELP gossamer:x y\n{PAGE}\n")
    return path


def test_table(log, capsys):
    assert run(["inspect", "--experts", str(log)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "toy: load of 2 experts in 2 layers (measured)",
        "a token counts once for each expert that worked on it; evenness: entropy over that of an even load",
        "layers without any load: 0",
        "",
        "layer  tokens  busiest/mean  busiest   idle  evenness",
        "    1      40          1.50        0   0.0%    0.8113",
        "    2   1,200          2.00        1  50.0%    0.0000",
    ]


def test_json_is_a_log_again(log, tmp_path, capsys):
    assert run(["inspect", "--experts", str(log), "--json"]) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert (found["schema"], found["basis"]) == ("gossamer.expert_load/1", "measured")
    assert found["layers"][1]["tokens"] == [0, 1200]
    again = tmp_path / "again.json"
    again.write_text(printed)
    assert run(["inspect", "--experts", str(again), "--json"]) == 0
    assert capsys.readouterr().out == printed


def test_plot(log, tmp_path, capsys):
    picture = tmp_path / "experts.svg"
    assert run(["inspect", "--experts", str(log), "--plot", str(picture)]) == 0
    assert picture.read_text().startswith("<svg ")
    assert run(["inspect", "--experts", str(log), "--plot", str(tmp_path / "absent" / "x.svg")]) == 1
    assert "cannot write the plot" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--experts", "absent.prom"], "absent.prom: No such file"),
        (["nano", "--experts", "a.prom"], "leave off nano"),
        (["--formats", "--experts", "a.prom"], "leave off --formats"),
    ],
)
def test_mistakes(words, message, capsys):
    assert run(["inspect", *words]) == 1
    assert message in capsys.readouterr().err
