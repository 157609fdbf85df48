"""What can go wrong because of a user or the machine while training."""

from gossamer.errors import GossamerError


class TrainError(GossamerError, ValueError):
    """A training run that cannot start or go on; the text names the value and the fix."""
