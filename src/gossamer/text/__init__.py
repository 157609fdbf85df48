"""Between text and token ids: the tokenizer, the chat format, and the streaming parser. Torch-free."""
