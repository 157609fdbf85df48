"""`gossamer info`: what is installed here, and what is missing."""

from __future__ import annotations

import sys
from typing import Any

NATIVE_NOTICE = """\
!! THE NATIVE KERNELS ARE MISSING: this install was built without a C++ compiler.
!! Everything still works, but slowly.  Install a compiler (for example g++), then
!!   pip install --force-reinstall --no-deps gossamer"""


def info(*, json: bool = False) -> None:
    """Show version, machine, native kernels and optional parts.

    Parameters
    ----------
    json: bool
        Print one JSON object instead of text.
    """
    facts = collect()
    if json:
        from json import dumps

        print(dumps(facts, indent=2))
    else:
        print(render(facts))
    if facts["native_kernels"] is None:
        print(NATIVE_NOTICE, file=sys.stderr)


def collect() -> dict[str, Any]:
    """The facts of this machine and install, ready for JSON."""
    import os
    import platform
    from pathlib import Path

    import gossamer

    folder = Path(gossamer.__file__).parent
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "version": gossamer.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "num_cores": cores,
        "native_kernels": native_features(),
        "kernel_backends": backends(),
        "optional": {name: installed(name) for name in ("torch", "tokenizers")},
        "package": str(folder),
        "presets": str(folder / "config" / "presets"),
    }


def native_features() -> list[str] | None:
    """Instruction sets the native module may use here; None when the module was not built."""
    try:
        from gossamer import _native  # pyrefly: ignore[missing-module-attribute]
    except ImportError:
        return None
    return list(_native.cpu_features())


def backends() -> list[str]:
    """The builds of the kernels that run on this processor, best first; the first one is used."""
    from gossamer.kernels import backend

    return backend.available()


def installed(name: str) -> str | None:
    """The version of a package read from its metadata, without importing it; None when absent.

    The metadata folder is looked for by name: the general search of `importlib.metadata` alone
    takes a fifth of the time this command may take.
    """
    from pathlib import Path

    for entry in sys.path:
        for found in Path(entry or ".").glob(f"{name}-*.dist-info"):
            return found.name.removeprefix(f"{name}-").removesuffix(".dist-info")
    return None


def render(facts: dict[str, Any]) -> str:
    """The facts as aligned lines."""
    from gossamer.cli.main import EXTRAS

    features = facts["native_kernels"]
    lines = {
        "gossamer": facts["version"],
        "python": facts["python"],
        "platform": facts["platform"],
        "cores": facts["num_cores"],
        "native kernels": "MISSING" if features is None else f"built ({', '.join(features) or 'baseline'})",
        "kernel backend": _chosen(facts["kernel_backends"]),
    }
    for name, version in facts["optional"].items():
        lines[name] = version or f"not installed: pip install 'gossamer[{EXTRAS[name]}]'"
    lines |= {"package": facts["package"], "presets": facts["presets"]}
    width = max(map(len, lines))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines.items())


def _chosen(backends: list[str]) -> str:
    if not backends:
        return "none: training goes through torch (--kernels torch)"
    return backends[0] + (f" (also runs here: {', '.join(backends[1:])})" if backends[1:] else "")
