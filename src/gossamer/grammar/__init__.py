"""JSON Schema to grammars of text: what may come next, and how little is needed to end.  Free of torch."""
