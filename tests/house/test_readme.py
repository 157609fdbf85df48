"""Every command on the README's pages runs, and prints what the page says it prints."""

import doctest
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PAGE = (ROOT / "README.md").read_text()


def console_commands() -> list[tuple[str, str]]:
    """(command, expected output) of each `$ ` line in the ```console blocks."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command.strip(), output.strip("\n")))
    return found


COMMANDS = console_commands()
QUICK = [c for c in COMMANDS if not c[0].startswith("make ")]
MAKE = [c for c in COMMANDS if c[0].startswith("make ")]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(command: str, timeout: int) -> str:
    env = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }
    env["PORT"] = str(free_port())
    # This test may itself run under make, which would have the inner make announce its directory.
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        env.pop(name, None)
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip("\n")


def matches(expected: str, got: str) -> bool:
    """Doctest's rule: `...` stands for anything, runs of blanks are equal."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected + "\n", got + "\n", flags)


def test_the_page_has_commands():
    assert len(QUICK) >= 3
    assert [c for c, _ in MAKE if c.startswith("make run")]


@pytest.mark.parametrize(("command", "expected"), QUICK, ids=[c for c, _ in QUICK])
def test_command_prints_what_the_page_says(command, expected):
    got = run(command, timeout=120)
    if expected:
        assert matches(expected, got), f"--- the page\n{expected}\n--- the command\n{got}"


@pytest.mark.slow
@pytest.mark.parametrize(("command", "expected"), [(c, e) for c, e in MAKE if "run" in shlex.split(c)])
def test_make_run_streams_a_sample(command, expected):
    got = run(command, timeout=900)
    assert "[reasoning]" in got
    assert "[tool call 0]" in got
    # An install, where there was one to do, says so first.
    assert matches("..." + expected, "... " + got), f"--- the page\n{expected}\n--- the command\n{got}"
