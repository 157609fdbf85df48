"""The one base class of everything a user may cause.

Each folder derives its own error from it, so the command line can print one line for a user's
mistake and a traceback for ours.
"""


class GossamerError(Exception):
    """A mistake or a damaged input; the text names the value and what to do about it."""
