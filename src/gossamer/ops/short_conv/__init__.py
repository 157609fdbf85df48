"""Short causal depthwise convolution with SiLU, the first step of each KDA input."""

from gossamer.ops.short_conv.naive import naive_short_conv
from gossamer.ops.short_conv.shifted import short_conv

__all__ = ["naive_short_conv", "short_conv"]
