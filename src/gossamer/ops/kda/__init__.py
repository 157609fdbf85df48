"""Kimi Delta Attention: a linear recurrence with a per-channel decay and a delta-rule write."""

from gossamer.ops.kda.chunk import chunk_kda
from gossamer.ops.kda.gate import bounded_decay, log_decay, softplus_decay
from gossamer.ops.kda.naive import naive_kda
from gossamer.ops.kda.recurrent import kda_step, recurrent_kda

__all__ = [
    "bounded_decay",
    "chunk_kda",
    "kda_step",
    "log_decay",
    "naive_kda",
    "recurrent_kda",
    "softplus_decay",
]
