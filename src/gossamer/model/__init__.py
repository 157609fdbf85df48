"""The network in torch: the definition that every faster form is tested against."""

from gossamer.model.cache import Cache
from gossamer.model.trace import Trace
from gossamer.model.transformer import Transformer

__all__ = ["Cache", "Trace", "Transformer"]
