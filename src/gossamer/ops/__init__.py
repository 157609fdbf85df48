"""The operators of the architecture in torch: one folder each, with a loop-level definition in ``naive.py``."""
