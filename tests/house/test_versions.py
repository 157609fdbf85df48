"""One version everywhere, and the files a newcomer looks for."""

import re
import tomllib
from pathlib import Path

import gossamer

ROOT = Path(__file__).resolve().parents[2]


def test_version_is_the_same_in_package_project_and_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert gossamer.__version__ == project
    assert heading
    assert heading[1] == project


def test_every_dependency_is_pinned_in_constraints():
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *[d for e in project["optional-dependencies"].values() for d in e]]
    names = {re.split(r"[\[<>=! ]", d)[0].lower() for d in wanted} - {"gossamer", "torch"}
    assert names <= pinned


def test_contributing_is_short():
    assert (ROOT / "CONTRIBUTING.md").read_text().count("\n") < 150
