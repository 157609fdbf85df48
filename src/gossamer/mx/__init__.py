"""OCP Microscaling formats: definition (`naive`), numpy path (`codec`, `pack`), torch part (`tensor`)."""

from gossamer.mx.codec import Encoded, check_scales, decode, encode
from gossamer.mx.formats import BLOCK, FORMATS, RULES, Format, MXError, Rule
from gossamer.mx.pack import pack4, unpack4

__all__ = [
    "BLOCK",
    "FORMATS",
    "RULES",
    "Encoded",
    "Format",
    "MXError",
    "Rule",
    "check_scales",
    "decode",
    "encode",
    "pack4",
    "unpack4",
]
