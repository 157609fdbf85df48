"""Multi-head latent attention without positions: expanded for long inputs, absorbed for decoding."""

from gossamer.ops.mla.absorbed import absorbed_attention
from gossamer.ops.mla.expanded import attention_weights, expanded_attention, head_keys_values
from gossamer.ops.mla.naive import naive_attention

__all__ = [
    "absorbed_attention",
    "attention_weights",
    "expanded_attention",
    "head_keys_values",
    "naive_attention",
]
