"""Which build of the native kernels runs here: one module per instruction set, chosen at run time."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from gossamer.errors import GossamerError

BACKENDS = ("avx512_bf16", "avx512", "avx2", "portable")
"""Best first."""
# AVX-512 as every server processor of Intel's has had it since 2017; AMD's came with the rest.
_AVX512 = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq")
NEEDS = {
    "avx512_bf16": (*_AVX512, "avx512vnni", "avx512bf16"),
    "avx512": _AVX512,
    "avx2": ("avx2", "fma"),
    "portable": (),
}


class BackendError(GossamerError):
    """A backend that was asked for is not there."""


def available() -> list[str]:
    """The backends that are built and that this processor can run, best first."""
    features = _features()
    return [name for name in BACKENDS if set(NEEDS[name]) <= features and _module(name) is not None]


def load(name: str | None = None) -> ModuleType:
    """The kernels of a backend, or of the best one.

    Args:
        name: one of `BACKENDS`; None takes the best that runs here.

    Raises:
        BackendError: the backend is unknown, not built, or needs what this processor lacks.
    """
    if name is None:
        found = available()
        if not found:
            raise BackendError(
                "the native kernels are not built; install g++ and cmake and install gossamer again"
            )
        name = found[0]
    if name not in NEEDS:
        raise BackendError(f"backend {name!r} is unknown; there are {', '.join(BACKENDS)}")
    missing = [need for need in NEEDS[name] if need not in _features()]
    if missing:
        raise BackendError(f"backend {name!r} needs {', '.join(missing)}, which this processor lacks")
    module = _module(name)
    if module is None:
        raise BackendError(f"backend {name!r} is not built; install g++ and cmake and install gossamer again")
    return module


@cache
def _features() -> frozenset[str]:
    try:
        native = importlib.import_module("gossamer._native")
    except ImportError:
        return frozenset()
    return frozenset(native.cpu_features())


@cache
def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"gossamer._native_{name}")
    except ImportError:
        return None
