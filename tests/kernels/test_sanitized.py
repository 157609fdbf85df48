"""The kernel tests on builds that stop at a bad address or at undefined behaviour."""

import os
import subprocess
from pathlib import Path

import pytest

import kernel_builds
from gossamer.kernels import backend

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
# The best build that runs here and the one that runs everywhere.
BUILDS = {*backend.available()[:1], "portable"}
SANITIZER_EXIT = 99


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Folder of kernel modules with address and undefined-behaviour checks, from a build of their own."""
    if not backend.available():
        pytest.skip("the native kernels are not built")
    return kernel_builds.build(tmp_path_factory.mktemp("sanitized"), BUILDS, GOSSAMER_SANITIZE="ON")


def python(modules: Path, *arguments: str, preload: bool = True) -> subprocess.CompletedProcess[str]:
    compiler = os.environ.get("CXX", "g++")
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout
        for name in ("libasan.so", "libubsan.so")
    ]
    env = {
        # The interpreter frees little of its own at its end.
        "ASAN_OPTIONS": f"detect_leaks=0:exitcode={SANITIZER_EXIT}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:exitcode={SANITIZER_EXIT}",
    }
    if preload:
        env["LD_PRELOAD"] = " ".join(library.strip() for library in libraries)
    return kernel_builds.python(modules, *arguments, **env)


def assert_nothing_reported(done: subprocess.CompletedProcess[str]) -> None:
    said = done.stdout + done.stderr
    assert done.returncode in (0, 1), said
    assert "AddressSanitizer" not in said, said
    assert "runtime error:" not in said, said


def test_the_builds_are_sanitized(modules):
    """Without the sanitizer's library they refuse to load; with it, they are what the tests get."""
    load = (
        "import kernel_builds; kernel_builds.pytest_configure()\n"
        "from gossamer.kernels import backend\n"
        "print(*(backend.load(name).__file__ for name in backend.available()))"
    )
    assert "ASan runtime does not come first" in python(modules, "-c", load, preload=False).stderr
    files = python(modules, "-c", load).stdout.split()
    assert len(files) == len(BUILDS)
    assert all(file.startswith(str(modules)) for file in files)


def test_serving_kernels_stay_in_bounds(modules):
    tests = ["tests/kernels", "tests/engine/test_native_runner.py"]
    done = python(modules, "-m", "pytest", "-p", "kernel_builds", "-p", "no:cacheprovider", *tests)
    assert_nothing_reported(done)
    assert done.returncode == 0, done.stdout + done.stderr


def test_training_kernels_stay_in_bounds(modules):
    """This build rounds in another order and may miss a tolerance, to which the normal one is held."""
    done = python(
        modules, "-m", "pytest", "-p", "kernel_builds", "-p", "no:cacheprovider", "tests/train/fused"
    )
    assert_nothing_reported(done)
    assert " passed" in done.stdout, done.stdout + done.stderr
