"""Compare what a checkpoint holds with what a configuration says it must hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from gossamer.checkpoint.errors import CheckpointError
from gossamer.checkpoint.reader import CheckpointReader
from gossamer.config.count import TensorSpec

# No published source settles whether these are stored as F32 or BF16, so either is accepted.
_EITHER_FLOAT: Final = re.compile(
    r"\.self_attn\.([qkv]_conv1d\.weight|o_norm\.weight|A_log|indexer\.k_norm\.(weight|bias))$"
)
_FLOATS: Final = ("F32", "BF16")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One tensor that is not as expected."""

    kind: Literal["missing", "extra", "dtype", "shape"]
    name: str
    file: str | None
    """The shard; None for a missing tensor."""
    expected: str
    found: str

    def __str__(self) -> str:
        """One line for a terminal, naming file and tensor."""
        if self.kind == "missing":
            return f"{self.name}: missing, expected {self.expected}"
        if self.kind == "extra":
            return f"{self.file}: {self.name}: not part of this configuration ({self.found})"
        return f"{self.file}: {self.name}: {self.kind} is {self.found}, expected {self.expected}"


def check(reader: CheckpointReader, specs: Iterable[TensorSpec]) -> list[Problem]:
    """Every difference between the headers of a checkpoint and the tensors of a configuration.

    Reads headers only.  Optional tensors may be absent; a few whose precision no source settles may be
    F32 or BF16.

    Args:
        reader: the opened checkpoint.
        specs: `gossamer.config.count.tensors(config)`.

    Returns:
        Problems in the order of ``specs``, then the extra tensors in file order; empty when all is well.

    Raises:
        CheckpointError: when a header itself is damaged.
    """
    problems: list[Problem] = []
    expected: set[str] = set()
    for spec in specs:
        expected.add(spec.name)
        if spec.name in reader:
            problems += _compare(reader, spec)
        elif not spec.optional:
            problems.append(
                Problem(kind="missing", name=spec.name, file=None, expected=_describe(spec), found="nothing")
            )
    problems += [
        Problem(
            kind="extra", name=t.name, file=t.file, expected="nothing", found=f"{t.dtype} {list(t.shape)}"
        )
        for t in reader.infos()
        if t.name not in expected
    ]
    return problems


def require(reader: CheckpointReader, specs: Iterable[TensorSpec], *, allow_extra: bool = False) -> None:
    """Raise unless `check` finds nothing.

    Raises:
        CheckpointError: naming file and tensor of the first problem, and how many there are.
    """
    problems = [p for p in check(reader, specs) if not (allow_extra and p.kind == "extra")]
    if problems:
        first, more = problems[0], len(problems) - 1
        text = {
            "missing": f"is missing, expected {first.expected}",
            "extra": f"is not part of this configuration ({first.found})",
        }.get(first.kind, f"has {first.kind} {first.found}, expected {first.expected}")
        raise CheckpointError(
            text + (f"; and {more} more problem(s)" if more else ""), file=first.file, tensor=first.name
        )


def _compare(reader: CheckpointReader, spec: TensorSpec) -> Iterable[Problem]:
    info = reader.info(spec.name)
    allowed = _FLOATS if spec.dtype in _FLOATS and _EITHER_FLOAT.search(spec.name) else (spec.dtype,)
    if info.dtype not in allowed:
        yield Problem(
            kind="dtype", name=spec.name, file=info.file, expected=" or ".join(allowed), found=info.dtype
        )
    if info.shape != tuple(spec.shape):
        yield Problem(
            kind="shape",
            name=spec.name,
            file=info.file,
            expected=str(list(spec.shape)),
            found=str(list(info.shape)),
        )


def _describe(spec: TensorSpec) -> str:
    return f"{spec.dtype} {list(spec.shape)}"
