"""A reader of Prometheus' text format 0.0.4, written from its description alone."""

import re

LINE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)', re.DOTALL)
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(,|$)', re.DOTALL)
ESCAPE = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}


def unescape(text: str) -> str:
    return re.sub(r"\\.", lambda found: ESCAPE[found.group()], text, flags=re.DOTALL)


def read(page: str) -> dict[str, dict]:
    """Name -> help, kind and samples, a list of (name, labels, value)."""
    assert page == "" or page.endswith("\n")
    families: dict[str, dict] = {}
    current = None
    for line in page.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, current, text = line.split(" ", 3)
            assert current not in families, "samples of a family stand together"
            families[current] = {"help": unescape(text), "samples": []}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            families[name]["kind"] = kind
        else:
            found = LINE.fullmatch(line)
            assert found, line
            name, inside, value = found.groups()
            labels = _labels(inside or "")
            assert name.startswith(current)
            families[current]["samples"].append((name, labels, float(value)))
    return families


def _labels(inside: str) -> dict[str, str]:
    labels, at = {}, 0
    while at < len(inside):
        found = LABEL.match(inside, at)
        assert found, inside
        labels[found.group(1)] = unescape(found.group(2))
        at = found.end()
    return labels
