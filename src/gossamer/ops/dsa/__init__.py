"""Sparse attention: a lightning indexer scores the past, the best top_k tokens are attended."""

from gossamer.ops.dsa.block import select_block
from gossamer.ops.dsa.index import index_scores, indexer_kl_loss, select_indices, select_mask
from gossamer.ops.dsa.naive import naive_dsa, naive_index_scores, naive_select

__all__ = [
    "index_scores",
    "indexer_kl_loss",
    "naive_dsa",
    "naive_index_scores",
    "naive_select",
    "select_block",
    "select_indices",
    "select_mask",
]
