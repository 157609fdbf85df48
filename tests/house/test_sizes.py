"""The house's size rules, so that a file that grows is seen on the day it does."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    [*(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").glob("*.py"), *(ROOT / "tests").rglob("*.py")]
)
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 50
BANNED_NAMES = {"utils", "util", "helpers", "common", "manager", "misc"}

# Long where splitting would hide the sense: a forward pass read top to bottom, or one table of cases.
LONG_FUNCTIONS = {
    "Transformer.forward",
}


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring: a long contract is no reason to split code."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


def functions(tree: ast.AST, prefix: str = "") -> list[tuple[str, int]]:
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append((prefix + node.name, code_lines(node)))
            found += functions(node, prefix + node.name + ".")
        elif isinstance(node, ast.ClassDef):
            found += functions(node, prefix + node.name + ".")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_and_functions_stay_short(path):
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    assert path.stem not in BANNED_NAMES
    long = [
        f"{name} {lines}"
        for name, lines in functions(ast.parse(text))
        if lines > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS
    ]
    assert not long, long
