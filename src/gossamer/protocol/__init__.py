"""Wire formats as pure values: no I/O, no HTTP, no tokens."""
