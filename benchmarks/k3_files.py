"""Checkpoints of the K3 architecture for benchmarks against llama.cpp, and their GGUF files.

llama.cpp knows K3 but no sparse attention, so nothing here has indexers.  Files are made once and kept under
`.cache/bench` at the root (7 GB).
"""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
from llama_peer import ROOT
from plain_tokenizer import write_tokenizer

import gossamer
from gossamer.checkpoint import CheckpointReader, CheckpointWriter
from gossamer.checkpoint.bf16 import f32_to_bf16
from gossamer.config import count, hf, layout
from gossamer.config.model import KDAConfig, MLAConfig, ModelConfig, MoEConfig, QuantConfig
from gossamer.kernels.random_weights import random_weights
from gossamer.kernels.weights import settled

CACHE = ROOT / ".cache" / "bench"
VERSION = "2"
"""Of what this file writes; another one makes the files anew."""


def bench_config() -> ModelConfig:
    """2.9 B parameters, 0.66 B active: too large for any cache, small enough for any machine's memory."""
    return ModelConfig(
        name="bench",
        family="k3",
        vocab_size=32768,
        hidden_size=1536,
        intermediate_size=3072,
        num_layers=12,
        full_attention_layers=(3, 7, 11),
        activation="situ",
        attn_res_block_size=4,
        max_context=32768,
        kda=KDAConfig(num_heads=16, head_dim=128),
        mla=MLAConfig(
            num_heads=16,
            q_lora_rank=512,
            kv_lora_rank=256,
            qk_nope_head_dim=128,
            qk_rope_head_dim=64,
            v_head_dim=128,
        ),
        moe=MoEConfig(
            num_experts=128,
            experts_per_token=16,
            num_shared_experts=2,
            intermediate_size=768,
            latent_size=768,
        ),
        quant=QuantConfig(),
        bos_token_id=32764,
        eos_token_id=32766,
        pad_token_id=32767,
    )


def bench() -> Path:
    """The folder of a random checkpoint of `bench_config`."""
    return _made("bench", _write_bench)


def nano_k3() -> Path:
    """The folder of nano's weights without its indexers, as a K3 checkpoint."""
    return _made("nano-k3", _write_nano)


def gguf(folder: Path, llama: Path, python: Path, outtype: str) -> Path:
    """A checkpoint through llama.cpp's own converter; routed experts stay MXFP4."""
    out = folder.with_name(f"{folder.name}-{outtype}.gguf")
    if not out.exists():
        worker = ROOT / "tests" / "oracle" / "convert_k3.py"
        command = [str(python), str(worker), "--outtype", outtype, str(llama), str(folder)]
        subprocess.run(command, check=True, capture_output=True)
        folder.with_name(f"{folder.name}.gguf").rename(out)
    return out


def quantised(source: Path, llama: Path) -> Path:
    """The same with a trunk of Q8_0, by llama.cpp's own quantiser."""
    out = source.with_name(source.name.replace("-bf16", "-q8_0"))
    if not out.exists():
        program = llama / "build" / "bin" / "llama-quantize"
        command = [str(program), "--tensor-type", "_exps=mxfp4", str(source), str(out), "Q8_0", "2"]
        subprocess.run(command, check=True, capture_output=True)
    return out


def _made(name: str, write) -> Path:
    folder, stamp = CACHE / name, CACHE / name / "stamp"
    if not (stamp.exists() and stamp.read_text() == VERSION):
        shutil.rmtree(folder, ignore_errors=True)
        for old in CACHE.glob(f"{name}-*.gguf"):
            old.unlink()
        folder.mkdir(parents=True)
        write(folder)
        stamp.write_text(VERSION)
    return folder


def _write_bench(folder: Path) -> None:
    config = bench_config()
    hf.write(config, folder)
    write_tokenizer(folder, config.vocab_size)
    shapes = {spec.name: spec for spec in count.tensors(config)}
    prefix = layout.text_prefix(config)
    with CheckpointWriter(folder) as writer:
        for weight in random_weights(config, 0):
            name = prefix + weight.name
            if weight.kind == "mxfp4":
                writer.add(f"{name}.weight_packed", weight.data, "U8")
                writer.add(f"{name}.weight_scale", weight.scales, "U8")
                continue
            name = name if name in shapes else f"{name}.weight"
            spec = shapes[name]
            data = weight.data.reshape(-1)
            size = int(np.prod(spec.shape))
            data = np.pad(data, (0, size - data.size)).reshape(spec.shape)
            writer.add(name, *_stored(data, spec.dtype))


def _stored(data: np.ndarray, dtype: str) -> tuple[np.ndarray, str]:
    if dtype == "BF16" and data.dtype == np.float32:
        return f32_to_bf16(data), dtype
    return data, dtype


def _write_nano(folder: Path) -> None:
    source = Path(gossamer.__file__).parent / "data" / "nano"
    with CheckpointReader.open(source) as reader, CheckpointWriter(folder) as writer:
        config = replace(
            settled(hf.read(source), reader), family="k3", dsa=None, name="nano-k3", extra={}, spelling={}
        )
        hf.write(config, folder)
        write_tokenizer(folder, config.vocab_size)
        for name in sorted(name for name in reader.names() if ".indexer." not in name):
            writer.add(name, reader.array(name), reader.info(name).dtype)
