"""What is wrong with an image that somebody sent."""

from gossamer.errors import GossamerError


class ImageError(GossamerError, ValueError):
    """An image that cannot be used: damaged, too large, animated, or at a place that is not read from."""
