"""`gossamer keys` as a person uses it."""

import pytest

from gossamer.cli.main import run
from gossamer.gateway.keys import KeyRing


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.json"


def keys(*words, file):
    return run(["keys", *words, "--file", str(file)])


def test_add_list_revoke(file, capsys):
    assert keys("add", "ann", "--max-concurrent", "4", "--tokens-per-minute", "200000", file=file) == 0
    secret = capsys.readouterr().out.strip()
    assert KeyRing(file).find(secret).max_concurrent == 4
    assert keys("add", "bob", file=file) == 0
    capsys.readouterr()
    assert keys("list", file=file) == 0
    header, ann, bob = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "id", "created", "max", "concurrent", "tokens", "per", "minute"]
    assert ann.split()[0] == "ann"
    assert ann.split()[-2:] == ["4", "200,000"]
    assert bob.split()[-2:] == ["-", "-"]
    assert keys("revoke", "ann", file=file) == 0
    assert KeyRing(file).find(secret) is None


def test_mistakes_are_one_line(file, capsys):
    assert keys("list", file=file) == 1
    assert "make one with: gossamer keys add" in capsys.readouterr().err
    assert keys("add", "ann", file=file) == 0
    assert keys("add", "ann", file=file) == 1
    assert "has a key of ann already" in capsys.readouterr().err
    assert keys("revoke", "bob", file=file) == 1
    assert "has no key of bob; it has: ann" in capsys.readouterr().err
    assert keys("add", "two words", file=file) == 1
    assert keys("add", "eve", "--max-concurrent", "0", file=file) == 1
