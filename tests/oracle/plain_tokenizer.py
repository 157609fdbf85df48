"""A tokenizer that llama.cpp's converter accepts, for checkpoints that are asked by token ids."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIALS = ("[BOS]", "[EOS]", "<|end_of_msg|>", "[PAD]")


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """ASCII tokens only: the server reports no probabilities for a token that ends inside a character."""
    characters = sorted(set(map(chr, range(33, 127))) | {"\u0120", "\u010a"})  # visible, space, newline
    made = (f"t{i}" for i in range(vocab_size - len(SPECIALS) - len(characters)))
    vocabulary = {token: i for i, token in enumerate([*characters, *made])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("t", "0")]))  # the file format wants some
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "[BOS]", "eos_token": "<|end_of_msg|>", "pad_token": "[PAD]"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
