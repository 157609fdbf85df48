"""The loop every worker script runs inside an outside environment: one JSON line in, one JSON line out.

A request names a task, an input .npz, an output .npz and the task's options.  The answer is ``{"ok": true}``
or the traceback.  What libraries print goes to standard error, so it cannot be mistaken for an answer.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable

import numpy as np


def serve(tasks: dict[str, Callable[..., dict]]) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            with np.load(request["inputs"]) as stored:
                arrays = {n: stored[n] for n in stored.files}
            found = tasks[request["task"]](arrays, **request["options"])
            np.savez(request["outputs"], **{n: np.asarray(v) for n, v in found.items()})
            answer = {"ok": True}
        except Exception:
            answer = {"ok": False, "error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
