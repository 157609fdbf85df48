"""The package as a stranger gets it: built without a compiler, installed without extras."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base_only(tmp_path_factory):
    """bin folder of an environment that holds the base install of a wheel built with no compiler."""
    folder = tmp_path_factory.mktemp("packaging")
    wheels, environment = folder / "wheels", folder / "env"
    broken = {**os.environ, "CXX": "/bin/false", "CC": "/bin/false"}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "-w", str(wheels), "-C", f"build-dir={folder / 'build'}", str(ROOT)]
    subprocess.run(build, env=broken, check=True, capture_output=True, timeout=600)
    (wheel,) = wheels.glob("*.whl")
    assert wheel.name.endswith("py3-none-any.whl"), wheel.name
    venv.create(environment, with_pip=True)
    target = environment / "bin" / "python"
    install = [str(target), "-m", "pip", "--disable-pip-version-check", "install", str(wheel)]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run([*install, *constraints], check=True, capture_output=True, timeout=600)
    return environment / "bin"


def gossamer(bin_folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(bin_folder / "gossamer"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd="/")


def test_base_install_has_no_torch(base_only):
    done = subprocess.run([str(base_only / "python"), "-c", "import torch"], capture_output=True, text=True)
    assert "No module named 'torch'" in done.stderr


def test_info_is_loud_about_the_missing_kernels(base_only):
    done = gossamer(base_only, "info")
    assert done.returncode == 0, done.stderr
    assert "MISSING" in done.stdout + done.stderr
    assert "gossamer[train]" in done.stdout + done.stderr


def test_torch_free_commands_work(base_only):
    done = gossamer(base_only, "inspect", "k3", "--json")
    assert done.returncode == 0, done.stderr
    assert '"num_parameters": 2779931837184' in done.stdout
    assert gossamer(base_only, "inspect", "--formats").returncode == 0
    assert gossamer(base_only, "serve", "--help").returncode == 0


def test_it_generates_without_torch_and_without_kernels(base_only):
    done = gossamer(base_only, "generate", "debug", "--prompt", "hello", "--max-tokens", "4", "--seed", "1")
    assert done.returncode == 0, done.stderr
    assert "4 generated tokens" in done.stderr
    assert "native kernels are not built" in done.stderr


def test_a_command_that_needs_torch_names_the_install(base_only):
    done = gossamer(base_only, "eval-nano", "--model", "debug", "--count", "1")
    assert done.returncode == 1
    assert "pip install 'gossamer[train]'" in done.stderr
    assert "Traceback" not in done.stderr
