"""The errors of this folder."""

from gossamer.errors import GossamerError


class ModelError(GossamerError, ValueError):
    """Arguments that a model cannot work with."""


class CacheError(GossamerError, ValueError):
    """A cache used in a way its state does not allow."""
