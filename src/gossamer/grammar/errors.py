"""What a schema can get wrong."""

from __future__ import annotations

from gossamer.errors import GossamerError


class SchemaError(GossamerError, ValueError):
    """A schema that decoding cannot enforce.

    Attributes:
        path: JSON pointer to the offending keyword, ``#`` being the schema itself.
        keyword: The keyword, "" where the schema as a whole is at fault.
    """

    def __init__(self, path: str, keyword: str, problem: str):
        self.path, self.keyword = path, keyword
        super().__init__(f"{path}/{keyword} {problem}" if keyword else f"{path} {problem}")


class NoValueError(SchemaError):
    """No value satisfies the schema."""
