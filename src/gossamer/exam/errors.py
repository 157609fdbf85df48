"""What can go wrong in an exam."""

from __future__ import annotations

from gossamer.errors import GossamerError


class ExamError(GossamerError, ValueError):
    """An exam that cannot be held as asked, naming the value and the fix."""
