"""Expert loads from a file: a saved page of ``GET /metrics``, or the record that was made of one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gossamer.errors import GossamerError
from gossamer.records import envelope
from gossamer.records.expert_load import ExpertLoad, layer_load

METRIC = "gossamer:expert_load_tokens_total"
_SAMPLE = re.compile(re.escape(METRIC) + r'\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}\s+(\S+)(?:\s+-?\d+)?\s*')
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {r"\\": "\\", r"\n": "\n", r"\"": '"'}
MAX_INDEX = 1 << 20
"""Of layers and experts; a larger one is a damaged page."""

Loads = dict[int, dict[int, int]]


class ExpertLogError(GossamerError, ValueError):
    """A file from which no expert loads can be read, and what to do about it."""


def read(path: Path) -> ExpertLoad:
    """The loads in a file.

    Args:
        path: A page of /metrics as text, or a `gossamer.expert_load/1` record as JSON.

    Raises:
        ExpertLogError: the file cannot be read, holds no loads, or those of several models.
        RecordError: it is JSON, but not such a record.
    """
    try:
        # Not read_text: it would make a line end of a carriage return in a name.
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise ExpertLogError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ExpertLogError(f"{path} is no text; {_how(path)}") from None
    if text.lstrip().startswith("{"):
        return envelope.decode(text, ExpertLoad, where=str(path))
    model, loads = _loads(text, path)
    return _record(model, loads, path)


def _record(model: str, loads: Loads, path: Path) -> ExpertLoad:
    width = 1 + max(expert for row in loads.values() for expert in row)
    for layer, row in loads.items():
        if len(row) != width:
            absent = next(expert for expert in range(width) if expert not in row)
            raise ExpertLogError(
                f"{path}: layer {layer} lacks expert {absent} of {width}; was the page cut off?"
            )
    rows = {layer: [loads[layer][expert] for expert in range(width)] for layer in sorted(loads)}
    busy = [layer_load(layer, row) for layer, row in rows.items() if any(row)]
    if not busy:
        raise ExpertLogError(
            f"{path}: no expert of {model!r} had worked on a token when this page was saved; send requests, "
            "then save it again"
        )
    return ExpertLoad(
        model=model,
        num_experts=width,
        idle_layers=tuple(layer for layer, row in rows.items() if not any(row)),
        layers=tuple(busy),
    )


def _loads(text: str, path: Path) -> tuple[str, Loads]:
    """The model of a page and its tokens by layer and expert."""
    found: dict[str, Loads] = {}
    for where, labels, value in _samples(text, path):
        loads = found.setdefault(labels.get("model_name", ""), {})
        layer, expert = (_index(labels, name, where) for name in ("layer", "expert"))
        row = loads.setdefault(layer, {})
        if expert in row:
            raise ExpertLogError(
                f"{where}: layer {layer}, expert {expert} comes a second time; keep one page in the file"
            )
        row[expert] = _count(value, where)
    if not found:
        raise ExpertLogError(f"{path} holds no expert loads ({METRIC}); {_how(path)}")
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise ExpertLogError(f"{path} holds the loads of {len(found)} models ({names}); keep one of them")
    ((model, loads),) = found.items()
    return model or "unnamed", loads


def _samples(text: str, path: Path) -> Iterator[tuple[str, dict[str, str], str]]:
    # Not splitlines: a label may hold any other character that ends a line somewhere.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith(METRIC):
            continue
        where = f"{path}:{number}"
        sample = _SAMPLE.fullmatch(line.rstrip("\r"))
        labels = None if sample is None else _labels(sample.group(1))
        if sample is None or labels is None:
            raise ExpertLogError(f"{where}: not a sample of Prometheus' text format: {line!r:.120}")
        yield where, labels, sample.group(2)


def _labels(inside: str) -> dict[str, str] | None:
    labels, at = {}, 0
    while at < len(inside):
        label = _LABEL.match(inside, at)
        if label is None:
            return None
        value = re.sub(r"\\.", lambda found: _ESCAPES.get(found.group(), found.group()), label.group(2))
        labels[label.group(1)] = value
        at = label.end()
    return labels


def _index(labels: dict[str, str], name: str, where: str) -> int:
    text = labels.get(name, "")
    # Python refuses to read numbers of thousands of digits.
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < MAX_INDEX):
        raise ExpertLogError(f"{where}: label {name} must be a number from 0, got {text!r:.40}")
    return int(text)


def _count(text: str, where: str) -> int:
    try:
        value = float(text)
        count = int(value)
    except (ValueError, OverflowError):
        count, value = -1, 0.0
    if count < 0 or count != value:
        raise ExpertLogError(f"{where}: a load is a whole number from 0, got {text!r:.40}")
    return count


def _how(path: Path) -> str:
    return f"serve a model with experts, then save its page: curl http://127.0.0.1:8080/metrics > {path.name}"
