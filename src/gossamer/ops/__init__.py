"""The operators of the architecture in torch: each with a loop-level definition (``naive.py``)."""
