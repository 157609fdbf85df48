"""Runs in the transformers environment: llama.cpp's own converter, from checkpoint folders to GGUF files.

Usage: convert_k3.py [--outtype f32] LLAMA_CPP_FOLDER CHECKPOINT_FOLDER...

Writes CHECKPOINT_FOLDER.gguf beside each.

The converter knows a tokenizer by the hash of what it makes of a fixed text, and refuses one it has not seen.
The vocabulary of a test checkpoint is such a one; prompts are token ids, so which pre-tokenizer it claims to
have decides nothing.  Everything else is the converter's own doing.
"""

from __future__ import annotations

import sys


def main() -> None:
    arguments = sys.argv[1:]
    outtype = "f32"
    if arguments[0] == "--outtype":
        outtype, arguments = arguments[1], arguments[2:]
    source, *checkpoints = arguments
    sys.path.insert(0, source)
    import convert_hf_to_gguf
    from conversion.base import TextModel

    TextModel.get_vocab_base_pre = lambda _model, _tokenizer: "gpt-2"
    for checkpoint in checkpoints:
        options = ["--outfile", f"{checkpoint}.gguf", "--outtype", outtype]
        sys.argv = ["convert_hf_to_gguf.py", checkpoint, *options]
        convert_hf_to_gguf.main()


if __name__ == "__main__":
    main()
