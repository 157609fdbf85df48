"""Gossamer: the open stack for enormous sparse models of the Kimi-K3.1-Pro family."""

__version__ = "0.1.0"
