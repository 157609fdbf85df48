"""A pytest plugin (`-p sanitized`): kernel modules come from a folder instead of the installation.

GOSSAMER_SANITIZED names the folder; a backend that is not in it counts as not built.
"""

import importlib.util
import os
import sys
from pathlib import Path

from gossamer.kernels.backend import BACKENDS


def pytest_configure():
    folder = Path(os.environ["GOSSAMER_SANITIZED"])
    for backend in BACKENDS:
        name = f"gossamer._native_{backend}"
        found = sorted(folder.rglob(f"_native_{backend}.*.so"))
        if not found:
            sys.modules[name] = None  # what an import of an absent module looks like
            continue
        spec = importlib.util.spec_from_file_location(name, found[0])
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
