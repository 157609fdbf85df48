"""Bindings of the native kernels; nothing here needs torch."""
