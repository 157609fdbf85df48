"""What a user can get wrong in text, vocabularies and conversations."""

from gossamer.errors import GossamerError


class TokenizerError(GossamerError, ValueError):
    """A damaged vocabulary, an unknown special token, or an id outside the vocabulary."""


class ChatFormatError(GossamerError, ValueError):
    """A conversation that the chat format cannot express; the text names the message index and the key."""
