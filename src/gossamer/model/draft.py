"""A draft head: one small block that predicts the token after the next, for speculative decoding.

It reads what the trunk already has (the output of its last layer at token t, normed, and the token t+1) and
shares the trunk's embedding and output head, as the multi-token-prediction modules of DeepSeek-V3 do.  Its
block is a KDA layer and a dense network, so its own state has a fixed size.

Shape legend: B batch, T tokens, D hidden width, V vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from gossamer.checkpoint import CheckpointReader, CheckpointWriter
from gossamer.checkpoint.bf16 import f32_to_bf16
from gossamer.config.model import ModelConfig
from gossamer.model.cache import KDAState
from gossamer.model.dense_mlp import DenseMLP
from gossamer.model.errors import ModelError
from gossamer.model.kda import KimiDeltaAttention
from gossamer.model.layers import RMSNorm, linear
from gossamer.model.transformer import Transformer

CONFIG_FILE = "draft.json"
KIND = "kda-mtp-1"
FLOAT32_NAMES = ("A_log", "dt_bias", "conv1d.weight", "o_norm.weight")


class DraftHead(nn.Module):
    """y = block(eh_proj [enorm(embed(x_{t+1})); hnorm(h_t)]).

    The trunk's output head on shared_head_norm(y) predicts x_{t+2}.  Names follow the multi-token-prediction
    layers of the DeepSeek-V3 checkpoint.

    Args:
        config: of the trunk.
        intermediate_size: of the dense network.
    """

    def __init__(self, config: ModelConfig, intermediate_size: int) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.config, self.intermediate_size = config, intermediate_size
        self.enorm = RMSNorm(hidden, eps)
        self.hnorm = RMSNorm(hidden, eps)
        self.eh_proj = linear(2 * hidden, hidden)
        self.input_layernorm = RMSNorm(hidden, eps)
        self.self_attn = KimiDeltaAttention(config)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = DenseMLP(config, intermediate_size)
        self.shared_head_norm = RMSNorm(hidden, eps)

    def forward(self, embedded: Tensor, hidden: Tensor, cache: KDAState | None = None) -> Tensor:
        """What the output head reads, and what the next draft step takes as `hidden`.

        Args:
            embedded: [B, T, D], the trunk's embedding of the tokens x_{t+1}.
            hidden: [B, T, D], the trunk's normed last output at t, or the previous draft step's result.
            cache: continue from it and update it in place.

        Returns:
            [B, T, D].
        """
        y = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1))
        y = y + self.self_attn(self.input_layernorm(y), cache)
        y = y + self.mlp(self.post_attention_layernorm(y))
        return self.shared_head_norm(y)

    def new_cache(self, batch_size: int) -> KDAState:
        """An empty state for B sequences."""
        return KDAState(self.config, batch_size, torch.float32)


def last_hidden(model: Transformer, token_ids: Tensor, mode: str = "sparse") -> Tensor:
    """The trunk's normed last output [B, T, D] that its head and the draft head read."""
    kept: list[Tensor] = []
    handle = model.model.norm.register_forward_hook(lambda _module, _inputs, output: kept.append(output))
    try:
        model(token_ids, logits_for="all", attention_mode="dense" if mode == "dense" else "sparse")
    finally:
        handle.remove()
    return kept[0]


def save(draft: DraftHead, folder: Path) -> int:
    """Write `draft/` below a model folder and return the bytes of its weights."""
    out = folder / "draft"
    out.mkdir(exist_ok=True)
    with CheckpointWriter(out, overwrite=True) as writer:
        for name, tensor in draft.state_dict().items():
            values = tensor.detach().float().numpy()
            if name.endswith(FLOAT32_NAMES):
                writer.add(name, values, "F32")
            else:
                writer.add(name, f32_to_bf16(values), "BF16")
    facts = {"kind": KIND, "intermediate_size": draft.intermediate_size}
    (out / CONFIG_FILE).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return sum(path.stat().st_size for path in out.glob("*.safetensors"))


def load(folder: Path, config: ModelConfig) -> DraftHead | None:
    """The draft head of a model folder in float32, or None where it has none.

    Raises:
        ModelError: it is of an unknown kind.
        CheckpointError: its weights are damaged or do not fit the trunk.
    """
    path = folder / "draft" / CONFIG_FILE
    if not path.is_file():
        return None
    facts = json.loads(path.read_text(encoding="utf-8"))
    if facts.get("kind") != KIND:
        raise ModelError(f"{path} names draft kind {facts.get('kind')!r}; this version knows {KIND!r}")
    draft = DraftHead(config, int(facts["intermediate_size"]))
    with CheckpointReader.open(folder / "draft") as reader, torch.no_grad():
        for name, tensor in draft.state_dict().items():
            array = torch.from_numpy(reader.array(name).copy())
            stored = array if array.dtype == torch.float32 else array.view(torch.bfloat16)
            if stored.shape != tensor.shape:
                raise ModelError(
                    f"{folder / 'draft'}: {name} has shape {tuple(stored.shape)}, "
                    f"the trunk needs {tuple(tensor.shape)}"
                )
            tensor.copy_(stored)
    return draft.eval()
