"""The error of a damaged, incomplete or unsuitable checkpoint."""

from __future__ import annotations

from gossamer.errors import GossamerError


class CheckpointError(GossamerError, ValueError):
    """What is wrong, in which file and, where one is concerned, with which tensor."""

    def __init__(self, problem: str, *, file: str | None = None, tensor: str | None = None) -> None:
        self.problem = problem
        self.file = file
        self.tensor = tensor
        # repr keeps control characters and lone surrogates of a hostile name out of terminals and logs.
        parts = [
            file if file is None or file.isprintable() else repr(file),
            tensor and f"tensor {_short(tensor)}",
            problem,
        ]
        super().__init__(": ".join(p for p in parts if p))


def _short(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:200] + "...")
