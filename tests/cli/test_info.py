"""`gossamer info` says what is here and what is missing."""

import json
import platform
import sys

import pytest

from gossamer import __version__
from gossamer.cli import info as command
from gossamer.cli.main import run


def test_json_holds_the_facts(capsys):
    assert run(["info", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["version"] == __version__
    assert facts["python"] == platform.python_version()
    assert facts["num_cores"] >= 1
    assert set(facts["optional"]) == {"torch", "tokenizers"}


def test_text_names_every_fact(capsys):
    assert run(["info"]) == 0
    out = capsys.readouterr().out
    for label in ("gossamer", "python", "platform", "native kernels", "torch", "presets"):
        assert label in out


def test_missing_native_kernels_are_said_loudly_on_stderr(monkeypatch, capsys):
    monkeypatch.setattr(command, "native_features", lambda: None)
    assert run(["info", "--json"]) == 0
    captured = capsys.readouterr()
    assert "THE NATIVE KERNELS ARE MISSING" in captured.err
    assert json.loads(captured.out)["native_kernels"] is None
    assert run(["info"]) == 0
    assert "native kernels  MISSING" in capsys.readouterr().out


def test_present_native_kernels_are_named(monkeypatch, capsys):
    monkeypatch.setattr(command, "native_features", lambda: ["avx2"])
    assert run(["info"]) == 0
    captured = capsys.readouterr()
    assert "built (avx2)" in captured.out
    assert captured.err == ""


def test_the_kernels_in_use_are_named(monkeypatch, capsys):
    monkeypatch.setattr(command, "backends", lambda: ["avx2", "portable"])
    assert run(["info"]) == 0
    assert "avx2 (also runs here: portable)" in capsys.readouterr().out
    monkeypatch.setattr(command, "backends", lambda: [])
    assert run(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernel_backends"] == []


def test_a_build_without_the_native_module_is_seen(monkeypatch):
    monkeypatch.setitem(sys.modules, "gossamer._native", None)
    monkeypatch.delattr("gossamer._native", raising=False)
    assert command.native_features() is None


def test_a_missing_package_gives_its_pip_line(monkeypatch, capsys):
    monkeypatch.setattr(command, "installed", lambda name: None)
    assert run(["info"]) == 0
    assert "not installed: pip install 'gossamer[train]'" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["msgspec", "cyclopts"])
def test_installed_reads_the_version_without_importing(name):
    from importlib.metadata import version

    assert command.installed(name) == version(name)
    assert command.installed("no_such_package_here") is None
