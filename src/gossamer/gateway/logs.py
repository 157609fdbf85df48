"""The log of a serving process: nothing reaches it but what is on a list.

Redaction looks for what must not be there and misses some; here everything is left out that is not known to
be harmless.  A request is one `gossamer.records.request_log.RequestLog`, which has no field for a text.
Errors are class and place, never their message, which may quote a conversation or a key.  Of other packages'
lines only level, logger and place are kept, except where the text is a constant in their source.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Literal, TextIO

from gossamer.errors import GossamerError
from gossamer.records.envelope import encode
from gossamer.records.request_log import RequestLog

LEVELS = ("debug", "info", "warning", "error")
LogFormat = Literal["text", "json"]
_CONSTANT_TEXTS = frozenset(
    {
        "Invalid HTTP request received.",
        "Exception in ASGI application",
        "Shutting down",
        "Finished server process [%d]",
        "Started server process [%d]",
        "Waiting for application startup.",
        "Application startup complete.",
        "Waiting for application shutdown.",
        "Application shutdown complete.",
        "Application startup failed. Exiting.",
        "Application shutdown failed. Exiting.",
        "Waiting for connections to close. (CTRL+C to force quit)",
        "Waiting for background tasks to complete. (CTRL+C to force quit)",
        "Cancel %s running task(s), timeout graceful shutdown exceeded",
        "Unsupported upgrade request.",
    }
)
"""Lines of the HTTP server; what they are filled with is left out all the same."""


class LogError(GossamerError, ValueError):
    """A log that cannot be written so."""


class SafeFormatter(logging.Formatter):
    """One line per record, in words or as a JSON object; an error's frames follow on lines of their own.

    Args:
        style: ``text`` or ``json``; in JSON the frames are a field.
    """

    def __init__(self, style: LogFormat):
        super().__init__()
        self._json = style == "json"

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`; never raises, never quotes."""
        request = getattr(record, "record", None)
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"
        frames = _frames(record)
        if self._json:
            if isinstance(request, RequestLog):
                return encode(request, is_line=True).decode().rstrip()
            fields = {
                "time": stamp,
                "level": record.levelname,
                "logger": record.name,
                "event": _event(record),
            }
            return json.dumps({**fields, "frames": frames} if frames else fields)
        if isinstance(request, RequestLog):
            return f"{stamp} {record.levelname} {_words(request)}"
        return "\n  ".join([f"{stamp} {record.levelname} {record.name}: {_event(record)}", *frames])


def configure(level: str, style: LogFormat = "text", *, stream: TextIO | None = None) -> None:
    """Log to stderr, or to ``stream``, from the whole process: errors that end it or a thread are lines too.

    Raises:
        LogError: an unknown level or style.
    """
    for name, value, known in (("level", level, LEVELS), ("format", style, ("text", "json"))):
        if value not in known:
            raise LogError(f"log {name} {value!r} is unknown; use one of {', '.join(known)}")
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(SafeFormatter(style))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What is written when writing fails would show the record that failed.
    logging.raiseExceptions = False
    for quiet in ("uvicorn", "asyncio"):
        logging.getLogger(quiet).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    log = logging.getLogger("gossamer")
    sys.excepthook = lambda kind, error, tb: _last_words(log, error)
    threading.excepthook = lambda args: _last_words(log, args.exc_value)
    sys.unraisablehook = lambda args: _last_words(log, args.exc_value)
    warnings.showwarning = _show_warning


def place_of(error: BaseException) -> str:
    """Class and place of an error without its message, which may quote a conversation."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"@{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def _last_words(log: logging.Logger, error: BaseException | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        return
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    log.critical("an error ended what was being done", exc_info=exc_info)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    logging.getLogger("gossamer").warning("%s@%s:%d", category.__name__, Path(filename).name, lineno)


def _event(record: logging.LogRecord) -> str:
    if record.name.partition(".")[0] == "gossamer":
        try:
            return record.getMessage()
        except Exception:
            return f"a line that does not fit its values, {record.module}:{record.lineno}"
    text = record.msg.strip() if isinstance(record.msg, str) else ""
    return text if text in _CONSTANT_TEXTS else f"{record.module}:{record.lineno}"


def _frames(record: logging.LogRecord) -> list[str]:
    """Class and frames of an error and of those behind it: file, line and function, no message, no source."""
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    lines: list[str] = []
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        lines.append(type(error).__name__)
        frames = traceback.extract_tb(error.__traceback__)
        lines += [f"at {Path(f.filename).name}:{f.lineno} {f.name}" for f in frames]
        error = error.__cause__ or error.__context__
    return lines


def _words(request: RequestLog) -> str:
    fields = json.loads(encode(request))
    said = []
    for name, value in fields.items():
        if name not in ("schema", "time"):
            shown = ",".join(value) if isinstance(value, list) else value
            said.append(f"{name}={shown}")
    return " ".join(["request", *said])
