import json

import msgspec
from tests.model import small

from gossamer.cli import main
from gossamer.exam.questions import Generator
from gossamer.exam.report import ExamReport
from gossamer.exam.run import Examiner, hold
from gossamer.model import Transformer
from gossamer.records.envelope import decode
from gossamer.text.tokenizer import Tokenizer

SHORT = ["eval-nano", "--model", "debug", "--count", "3", "--pass-back", "1", "--max-tokens", "6"]


def test_json_of_the_command(capsys):
    assert main.run([*SHORT, "--seed", "4", "--json"]) == 0
    report = decode(capsys.readouterr().out, ExamReport)
    assert report.questions == report.exact.total == 3
    assert report.exact.count == report.ended.count == 0
    assert report.faults == {"no end": 3}
    assert report.pass_back.difference.pairs == 1
    assert {e.effort for e in report.by_effort} == {"low", "high", "max"}
    assert sum(g.exact.total for g in report.by_category) == 3
    assert report.cost.generated_tokens == 5 * 6


def test_tables_of_the_command(capsys):
    assert main.run(SHORT) == 0
    out = capsys.readouterr().out
    for text in ("Wilson 95 %", "well-formed", "by phrasing", "pass-back", "kind of value"):
        assert text in out


def test_mistakes_are_one_line(capsys, tmp_path):
    assert main.run(["eval-nano", "--model", str(tmp_path)]) == 1
    assert "give nano, debug or a folder" in capsys.readouterr().err
    assert main.run(["eval-nano", "--model", "debug", "--count", "0"]) == 1
    assert "count must be at least 1" in capsys.readouterr().err
    assert main.run(["eval-nano", "--words", str(tmp_path / "none")]) == 1
    assert main.run(["eval-nano", "--threads", "0"]) == 1


def test_guessing_changes_no_number_but_the_cost():
    model, tokenizer = Transformer(small.debug(), seed=2).eval(), Tokenizer.bytes_only()
    found = []
    for guess in (True, False):
        told = []
        report = hold(
            Examiner(model, tokenizer, max_tokens=5, guess=guess),
            Generator(seed=9),
            count=2,
            pass_back=0,
            model_name="debug",
            words_name="invented",
            threads=1,
            progress=lambda done, total, told=told: told.append((done, total)),
        )
        assert told == [(1, 2), (2, 2)]
        tree = json.loads(msgspec.json.encode(report))
        tree.pop("cost")
        found.append(tree)
    assert found[0] == found[1]
