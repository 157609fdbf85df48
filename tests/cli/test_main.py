"""The command table: exit codes, one-line errors, nothing imported before it is needed."""

import os
import subprocess
import sys
from importlib import import_module

import pytest
from cyclopts import App

from gossamer import __version__
from gossamer.cli import main as cli
from gossamer.config.model import ConfigError
from gossamer.errors import GossamerError


def add(monkeypatch, function):
    """Put a command of this test into the table."""
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "command", function, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "probe", (f"{__name__}:command", "A command of the test."))


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_every_command_with_its_line(words, capsys):
    assert cli.run(words) == 0
    out = capsys.readouterr().out
    for name, (_, help_text) in cli.COMMANDS.items():
        assert f"  {name}" in out
        assert help_text in out


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspct"], "unknown command inspct, did you mean inspect?"),
        (["zzz"], "unknown command zzz ("),
        (["--bad"], "unknown option --bad"),
        (["info", "--bad"], "--bad"),
        (["inspect", "k3", "--context", "many"], "context"),
        (["inspect", "k3", "stray"], "stray"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(words, message, capsys):
    assert cli.run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("gossamer: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_users_mistake_is_one_line_and_exit_1(monkeypatch, capsys):
    def command() -> None:
        raise ConfigError("hidden_size is wrong\n  in two lines")

    add(monkeypatch, command)
    assert cli.run(["probe"]) == 1
    assert capsys.readouterr().err == "gossamer: hidden_size is wrong in two lines\n"


def test_our_own_mistake_keeps_its_traceback(monkeypatch):
    def command() -> None:
        raise ZeroDivisionError

    add(monkeypatch, command)
    with pytest.raises(ZeroDivisionError):
        cli.run(["probe"])


@pytest.mark.parametrize(("package", "extra"), sorted(cli.EXTRAS.items()))
def test_a_missing_extra_prints_its_pip_line(package, extra, monkeypatch, capsys):
    def command() -> None:
        raise ModuleNotFoundError(f"No module named '{package}.nn'", name=f"{package}.nn")

    add(monkeypatch, command)
    assert cli.run(["probe"]) == 1
    assert (
        capsys.readouterr().err
        == f"gossamer: this command needs {package}: pip install 'gossamer[{extra}]'\n"
    )


def test_a_missing_extra_is_found_when_the_commands_own_file_needs_it(tmp_path, monkeypatch, capsys):
    (tmp_path / "needs_torch_at_once.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(cli.COMMANDS, "probe", ("needs_torch_at_once:command", "Needs torch."))
    assert cli.run(["probe"]) == 1
    assert "pip install 'gossamer[train]'" in capsys.readouterr().err


def test_any_other_missing_module_is_ours(monkeypatch):
    def command() -> None:
        raise ModuleNotFoundError("No module named 'gossamer.nothing'", name="gossamer.nothing")

    add(monkeypatch, command)
    with pytest.raises(ModuleNotFoundError):
        cli.run(["probe"])


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (3, 3), (0, 0)])
def test_a_command_may_return_its_exit_code(returned, code, monkeypatch):
    def command() -> int | None:
        return returned

    add(monkeypatch, command)
    assert cli.run(["probe"]) == code


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    def command() -> None:
        raise KeyboardInterrupt

    add(monkeypatch, command)
    assert cli.run(["probe"]) == 130
    assert capsys.readouterr().err == ""


def test_main_leaves_with_the_code(capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(["nonsense"])
    assert left.value.code == 2


def test_a_closed_pipe_is_not_an_error():
    command = [sys.executable, "-m", "gossamer.cli.main", "inspect", "nano", "--tensors"]
    read, write = os.pipe()
    with subprocess.Popen(command, stdout=write, stderr=subprocess.PIPE, text=True) as process:
        os.close(write)
        os.close(read)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == ""


def test_help_and_counts_import_neither_parser_nor_numpy_nor_torch():
    code = (
        "import sys, gossamer.cli.main as m\nm.run(['--help'])\n"
        "assert 'cyclopts' not in sys.modules\nm.run(['inspect', 'k3'])\n"
        "bad = {'numpy', 'torch', 'rich', 'transformers'} & set(sys.modules)\nassert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["info", "inspect"])
def test_table_paths_lead_to_commands(name):
    path, _ = cli.COMMANDS[name]
    module, _, attribute = path.partition(":")
    assert callable(getattr(import_module(module), attribute))


def test_build_registers_the_table_without_importing_it():
    code = (
        "import sys, gossamer.cli.main as m\napp = m.build()\nassert set(m.COMMANDS) <= set(app)\n"
        "assert not [n for n in sys.modules if n.startswith('gossamer.cli.') and n != 'gossamer.cli.main']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert isinstance(cli.build(), App)


def test_config_error_is_a_gossamer_error():
    assert issubclass(ConfigError, GossamerError)
