"""The error of this folder."""

from gossamer.errors import GossamerError


class ShapeError(GossamerError, ValueError):
    """Operator arguments whose shapes or settings do not fit together."""
