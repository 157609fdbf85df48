"""The import rules, held twice: statically by import-linter, and at run time with torch blocked."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "gossamer"

TORCH_FREE_FOLDERS = (
    "config",
    "protocol",
    "records",
    "text",
    "checkpoint",
    "mx",
    "gateway",
    "kernels",
    "engine",
    "server",
)
# mx is torch-free but for the one file that says so in its name.
TORCH_FILES = {"gossamer.mx.tensor"}
NUMPY_FREE_FOLDERS = ("config", "protocol", "records")

BLOCKER = """
import sys, importlib
blocked = {blocked!r}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in blocked:
            raise ImportError(name + " is blocked in this test")
sys.meta_path.insert(0, Block())
for name in {modules!r}:
    importlib.import_module(name)
print("imported", len({modules!r}))
"""


def modules_of(folder: str) -> list[str]:
    """Every module of one folder of the package, by dotted name."""
    found = []
    for path in sorted((SRC / folder).rglob("*.py")):
        parts = list(path.relative_to(SRC.parent).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        name = ".".join(parts)
        if name not in TORCH_FILES:
            found.append(name)
    return found


def import_blocked(modules: list[str], blocked: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    code = BLOCKER.format(blocked=set(blocked), modules=modules)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("folder", TORCH_FREE_FOLDERS)
def test_folder_imports_without_torch(folder):
    modules = modules_of(folder)
    assert modules, f"src/gossamer/{folder} has no modules"
    done = import_blocked(modules, ("torch", "transformers"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"imported {len(modules)}"


@pytest.mark.parametrize("folder", NUMPY_FREE_FOLDERS)
def test_folder_imports_without_numpy(folder):
    done = import_blocked(modules_of(folder), ("torch", "transformers", "numpy"))
    assert done.returncode == 0, done.stderr


def test_the_blocker_blocks():
    done = import_blocked(["torch"], ("torch",))
    assert done.returncode != 0
    assert "torch is blocked" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["info"], ["inspect", "k3.1-pro"], ["inspect", "k3", "--json"]]
)
def test_torch_free_commands_run_with_torch_blocked(arguments):
    code = (
        BLOCKER.format(blocked={"torch", "transformers"}, modules=["gossamer.cli.main"])
        + f"\nsys.argv = ['gossamer', *{arguments!r}]\nimport gossamer.cli.main as m\nm.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [("config", "model"), ("gateway", "engine"), ("ops", "model"), ("text", "mx"), ("engine", "server")],
)
def test_the_layers_contract_can_fail(tmp_path, importer, imported):
    """It is clean today (make check); here the same list of layers meets a forbidden, late import."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    # Another name, because the linter would find the installed package first.
    package = tmp_path / "winged"
    for layer in contract["layers"]:
        for folder in layer.replace("(", "").replace(")", "").split("|"):
            (package / folder.strip()).mkdir(parents=True)
            (package / folder.strip() / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / importer / "bad.py").write_text(f"def late():\n    import winged.{imported}\n")
    layers = "\n".join(f"    {layer}" for layer in contract["layers"])
    (tmp_path / ".importlinter").write_text(
        "[importlinter]\nroot_package = winged\n\n[importlinter:contract:1]\nname = down\ntype = layers\n"
        f"containers = winged\nlayers =\n{layers}\n"
    )
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0, done.stdout
    assert f"winged.{importer}.bad -> winged.{imported}" in done.stdout
