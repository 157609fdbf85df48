"""Runs in the transformers environment: Kimi-Linear's layers and model, DeepSeek-V3.2's attention.

worker_loop.py says how it is asked.  Weights arrive under the published names (one layer: what is below
``self_attn.``); gradients leave under them.
"""

from __future__ import annotations

import os
import sys
import warnings

import torch
from worker_loop import serve

# Where fla-core is installed transformers takes its Triton kernels, which need a GPU.  A blocked import
# leaves transformers' own PyTorch functions, the ones meant here.
sys.modules["fla"] = None

warnings.filterwarnings("ignore")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
torch.set_num_threads(1)

CONVOLUTIONS = ("q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight")
GATE = ("f_a_proj.weight", "f_b_proj.weight", "dt_bias", "A_log")


def plain(tensors):
    return {n: t.detach().numpy() for n, t in tensors.items()}


def weights_of(arrays):
    return {n.removeprefix("w."): torch.from_numpy(v) for n, v in arrays.items() if n.startswith("w.")}


def to_layer(weights):
    """Published names below self_attn. -> transformers' module names."""
    out = {}
    for name, value in weights.items():
        if name in CONVOLUTIONS:
            continue
        if name == "A_log":
            value = value.reshape(1, 1, -1, 1)
        out[f"forget_gate.{name}" if name in GATE else name] = value
    if CONVOLUTIONS[0] in weights:
        out["conv1d.weight"] = torch.cat([weights[n] for n in CONVOLUTIONS])
    return out


def from_layer(named):
    """The inverse of `to_layer`."""
    out = {}
    for name, value in named.items():
        name = name.removeprefix("forget_gate.")
        if name == "conv1d.weight":
            out |= dict(zip(CONVOLUTIONS, value.chunk(3), strict=True))
        else:
            out[name] = value.reshape(-1) if name == "A_log" else value
    return out


def to_model(weights):
    """Published names below language_model., experts stacked [E, I, Z] -> transformers' module names."""
    layers, out = {}, {}
    for name, value in weights.items():
        if ".self_attn." in name:
            prefix, _, rest = name.partition(".self_attn.")
            layers.setdefault(prefix, {})[rest] = value
        elif not name.endswith((".w1", ".w3", ".w2")):
            out[name.replace(".block_sparse_moe.", ".mlp.")] = value
        elif name.endswith(".w1"):
            prefix = name.removesuffix("w1")
            target = prefix.replace(".block_sparse_moe.", ".mlp.")
            out[target + "gate_up_proj"] = torch.cat([value, weights[prefix + "w3"]], 1)
            out[target + "down_proj"] = weights[prefix + "w2"]
    for prefix, layer in layers.items():
        out |= {f"{prefix}.self_attn.{n}": v for n, v in to_layer(layer).items()}
    return out


def from_model(named):
    """The inverse of `to_model`."""
    layers, out = {}, {}
    for name, value in named.items():
        if ".self_attn." in name:
            prefix, _, rest = name.partition(".self_attn.")
            layers.setdefault(prefix, {})[rest] = value
            continue
        if ".mlp." in name and (".experts." in name or ".gate." in name or ".shared_experts." in name):
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if name.endswith("gate_up_proj"):
            prefix = name.removesuffix("gate_up_proj")
            out[prefix + "w1"], out[prefix + "w3"] = value.chunk(2, 1)
        else:
            out[name.replace("experts.down_proj", "experts.w2") if ".experts.down" in name else name] = value
    for prefix, layer in layers.items():
        out |= {f"{prefix}.self_attn.{n}": v for n, v in from_layer(layer).items()}
    return out


def load(module, weights):
    missing, unexpected = module.load_state_dict(weights, strict=False)
    if missing or unexpected:
        raise ValueError(f"weights do not fit: missing {missing}, unexpected {unexpected}")


def kimi_config(options):
    from transformers.models.kimi_linear.configuration_kimi_linear import KimiLinearConfig

    return KimiLinearConfig(**options, attn_implementation="eager", use_cache=False)


def causal(tokens, past=0):
    blocked = torch.ones(tokens, past + tokens, dtype=torch.bool).triu(past + 1)
    return torch.zeros(blocked.shape).masked_fill(blocked, float("-inf"))[None, None]


def gradients(module, output, x, probe):
    (output * torch.from_numpy(probe)).sum().backward()
    named = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    return {"out": output.detach(), "grad.x": x.grad}, named


def in_pieces(module, config, x, split, *, mask):
    """Prefill ``split`` tokens, then one token at a time; outputs and the cache afterwards."""
    from transformers.cache_utils import DynamicCache

    cache, out = DynamicCache(config=config), []
    steps = [(0, split)] + [(t, t + 1) for t in range(split, x.shape[1])]
    for begin, end in steps:
        attention_mask = causal(end - begin, begin) if mask else None
        y = module(hidden_states=x[:, begin:end], attention_mask=attention_mask, cache=cache)
        out.append(y[0] if isinstance(y, tuple) else y)
    return torch.cat(out, 1), cache.layers[0]


def cache_arrays(layer):
    """conv [B, 3D, kernel] and state [B, H, K, V], or latent [B, T, R] and shared key part [B, T, P]."""
    if hasattr(layer, "recurrent_states") and layer.recurrent_states.get(0) is not None:
        return {"conv": layer.conv_states[0], "state": layer.recurrent_states[0]}
    return {"latent": layer.keys[:, 0], "key_part": layer.values[:, 0]}


def attention_layer(arrays, *, config, split):
    """One Kimi-Linear attention layer (KDA or MLA, by config.layer_types[0])."""
    from transformers.models.kimi_linear import modeling_kimi_linear as m

    built = kimi_config(config)
    full = built.layer_types[0] == "full_attention"
    module = (m.KimiLinearAttention if full else m.KimiLinearDeltaAttention)(built, 0).float().eval()
    load(module, to_layer(weights_of(arrays)))
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    y = module(hidden_states=x, attention_mask=causal(x.shape[1]) if full else None)
    found, named = gradients(module, y[0] if full else y, x, arrays["probe"])
    with torch.no_grad():
        stepped, layer = in_pieces(module, built, x.detach(), split, mask=full)
    found |= {"stepped": stepped} | cache_arrays(layer)
    return plain(found | {f"grad.{n}": v for n, v in from_layer(named).items()})


def cached_logits(module, config, ids, split):
    from transformers.cache_utils import DynamicCache

    cache, out = DynamicCache(config=config), []
    for begin, end in [(0, split)] + [(t, t + 1) for t in range(split, ids.shape[1])]:
        out.append(module(input_ids=ids[:, begin:end], cache=cache, use_cache=True).logits)
    states = {}
    for i, layer in enumerate(cache.layers):
        states |= {f"cache.{i}.{n}": v for n, v in cache_arrays(layer).items()}
    return torch.cat(out, 1), states


def model(arrays, *, config, split):
    """The whole Kimi-Linear model: logits, gradients of every parameter, cached pass and its states."""
    from transformers.models.kimi_linear.modeling_kimi_linear import KimiLinearForCausalLM

    built = kimi_config(config)
    module = KimiLinearForCausalLM(built).float().eval()
    load(module, to_model(weights_of(arrays)))
    ids = torch.from_numpy(arrays["ids"])
    logits = module(input_ids=ids).logits
    (logits * torch.from_numpy(arrays["probe"])).sum().backward()
    named = {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    with torch.no_grad():
        stepped, states = cached_logits(module, built, ids, split)
    found = {"logits": logits.detach(), "stepped": stepped} | states
    return plain(found | {f"grad.{n}": v for n, v in from_model(named).items()})


def checkpoint(arrays, *, folder):
    """Logits of a checkpoint folder read by transformers' own loader."""
    from transformers import AutoModelForCausalLM

    module, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    bad = {k: sorted(v) for k, v in report.items() if v}
    if bad:
        raise ValueError(f"the loader reports {bad}")
    with torch.no_grad():
        return plain({"logits": module.eval()(input_ids=torch.from_numpy(arrays["ids"])).logits})


class ScoreTap:
    """Records what the indexer hands to topk: its scores before selection."""

    def __enter__(self):
        self.scores, self.original = [], torch.Tensor.topk
        tap = self

        def topk(x, *arguments, **keywords):
            tap.scores.append(x.detach().clone())
            return tap.original(x, *arguments, **keywords)

        torch.Tensor.topk = topk
        return self

    def __exit__(self, *_):
        torch.Tensor.topk = self.original


def sparse_attention(arrays, *, config, k_norm_eps):
    """DeepSeek-V3.2's MLA with its indexer, rotation switched off (cos 1, sin 0)."""
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as m
    from transformers.models.deepseek_v32.configuration_deepseek_v32 import DeepseekV32Config

    built = DeepseekV32Config(
        **config, rope_parameters={"rope_type": "default", "rope_theta": 1e4}, attn_implementation="eager"
    )
    module = m.DeepseekV32Attention(built, 0).float().eval()
    load(module, weights_of(arrays))
    module.indexer.k_norm.eps = k_norm_eps
    x = torch.from_numpy(arrays["x"]).requires_grad_()
    still = (
        torch.ones(1, x.shape[1], built.qk_rope_head_dim),
        torch.zeros(1, x.shape[1], built.qk_rope_head_dim),
    )
    chosen = []
    module.indexer.register_forward_hook(lambda _m, _i, y: chosen.append(y))
    with ScoreTap() as tap:
        y, _ = module(x, position_embeddings=still, attention_mask=causal(x.shape[1]))
    found, named = gradients(module, y, x, arrays["probe"])
    # -inf above the diagonal becomes 0, so that the difference of two results is defined.
    scores = torch.where(torch.isfinite(tap.scores[0]), tap.scores[0], 0.0)
    found |= {"scores": scores, "chosen": chosen[0]}
    return plain(found | {f"grad.{n}": v for n, v in named.items()})


def serve_tasks() -> None:
    serve(
        {
            "attention_layer": attention_layer,
            "model": model,
            "checkpoint": checkpoint,
            "sparse_attention": sparse_attention,
        }
    )


if __name__ == "__main__":
    serve_tasks()
