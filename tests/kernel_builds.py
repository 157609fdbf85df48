"""Kernel modules built apart from the installation, and a pytest plugin (`-p kernel_builds`) that takes them.

GOSSAMER_KERNEL_BUILDS names their folder; a backend that is not in it counts as not built.
GOSSAMER_PRETEND_CPU is what the processor counts as, names with blanks between; unset, it is asked.
"""

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

from gossamer.kernels import backend

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure():
    folder = Path(os.environ["GOSSAMER_KERNEL_BUILDS"])
    if pretended := os.environ.get("GOSSAMER_PRETEND_CPU"):
        backend._features = lambda: frozenset(pretended.split())
    for name in backend.BACKENDS:
        found = sorted(folder.rglob(f"_native_{name}.*.so"))
        name = f"gossamer._native_{name}"
        if not found:
            sys.modules[name] = None  # what an import of an absent module looks like
            continue
        spec = importlib.util.spec_from_file_location(name, found[0])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def build(folder: Path, backends: set[str], **definitions: str) -> Path:
    """The folder of the modules of some backends, built with definitions of CMakeLists.txt."""
    options = {
        "build-dir": str(folder / "build"),
        "install.strip": "false",
        "cmake.define.GOSSAMER_BACKENDS": ";".join(sorted(backends)),
        **{f"cmake.define.{name}": value for name, value in definitions.items()},
    }
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps"]
    for name, value in options.items():
        command += ["-C", f"{name}={value}"]
    done = subprocess.run(
        [*command, "-w", str(folder), str(ROOT)], capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if "/_native_" in name:
                archive.extract(name, folder / "modules")
    assert len(list((folder / "modules").rglob("*.so"))) == len(backends)
    return folder / "modules"


def python(modules: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python from the root with the plugin at hand and these modules named."""
    env = {
        **os.environ,
        "GOSSAMER_KERNEL_BUILDS": str(modules),
        "PYTHONPATH": str(ROOT / "tests"),
        "HYPOTHESIS_PROFILE": "quick",
        **environment,
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=1700)
