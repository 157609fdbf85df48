"""Token ids in, token ids out; knows nothing of text, chat or HTTP."""
