"""Runs in the mx environment: torchao, compressed-tensors, ml_dtypes and safetensors.

worker_loop.py says how it is asked.
"""

from __future__ import annotations

import numpy as np
from worker_loop import serve


def torchao(inputs, *, rules):
    """Codes, scales and decoded values of each format's array [blocks, 32] under every rule."""
    import torch
    from torchao.prototype.mx_formats import mx_tensor
    from torchao.prototype.mx_formats.config import ScaleCalculationMode

    dtypes = {
        "mxfp4": torch.float4_e2m1fn_x2,
        "mxfp6_e2m3": mx_tensor.DTYPE_FP6_E2M3,
        "mxfp6_e3m2": mx_tensor.DTYPE_FP6_E3M2,
        "mxfp8_e4m3": torch.float8_e4m3fn,
        "mxfp8_e5m2": torch.float8_e5m2,
    }
    out = {}
    for name in inputs:
        x = torch.from_numpy(inputs[name])
        for rule in rules:
            scales, data = mx_tensor.to_mx(x, dtypes[name], 32, ScaleCalculationMode(rule))
            values = mx_tensor.to_dtype(data, scales, dtypes[name], 32, torch.float32)
            codes = mx_tensor.unpack_uint4(data) if name == "mxfp4" else data.view(torch.uint8)
            out[f"{name} {rule} codes"] = codes.numpy().reshape(x.shape)
            out[f"{name} {rule} scales"] = scales.view(torch.uint8).numpy().reshape(-1)
            out[f"{name} {rule} values"] = values.numpy()
    return out


def torchao_decode(inputs):
    """Float32 values of packed MXFP4 bytes [n, 16] under scales [n]."""
    import torch
    from torchao.prototype.mx_formats import mx_tensor

    scales = torch.from_numpy(inputs["scales"]).view(torch.float8_e8m0fnu)
    data = torch.from_numpy(inputs["packed"])
    return {"values": mx_tensor.to_dtype(data, scales, torch.float4_e2m1fn_x2, 32, torch.float32).numpy()}


def compressed_tensors(inputs, *, bits):
    """What the checkpoint compressor of that many bits stores for x, and what it decompresses to."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils.helpers import calculate_qparams

    kind = {4: "mxfp4-pack-quantized", 6: "mxfp6-pack-quantized", 8: "mxfp8-quantized"}[bits]
    args = QuantizationArgs(
        num_bits=bits, type="float", symmetric=True, strategy="group", group_size=32,
        dynamic=False, observer="minmax", scale_dtype=torch.uint8, zp_dtype=torch.uint8,
    )  # fmt: skip
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
    x = torch.from_numpy(inputs["x"])
    scale, _ = calculate_qparams(x.amin(-1, keepdim=True), x.amax(-1, keepdim=True), args)
    compressor = BaseCompressor.get_value_from_registry(kind)
    stored = compressor.compress({"weight": x, "weight_scale": scale}, scheme)
    data = stored.get("weight_packed", stored.get("weight"))
    restored = compressor.decompress(dict(stored), scheme)["weight"]
    return {
        "data": data.view(torch.uint8).numpy(),
        "scales": stored["weight_scale"].view(torch.uint8).numpy().reshape(-1),
        "values": restored.detach().to(torch.float32).numpy(),
    }


def ml_dtypes(inputs, *, fmt, bits):
    """Codes of the float32 values y under RNE, the value of every code, and of every E8M0 byte."""
    import ml_dtypes as m

    dtype = {
        "mxfp4": m.float4_e2m1fn,
        "mxfp6_e2m3": m.float6_e2m3fn,
        "mxfp6_e3m2": m.float6_e3m2fn,
        "mxfp8_e4m3": m.float8_e4m3fn,
        "mxfp8_e5m2": m.float8_e5m2,
    }[fmt]
    every = np.arange(1 << bits, dtype=np.uint8)
    return {
        "codes": inputs["y"].astype(dtype).view(np.uint8),
        "table": every.view(dtype).astype(np.float32),
        "scales": np.arange(256, dtype=np.uint8).view(m.float8_e8m0fnu).astype(np.float32),
    }


def safetensors_read(inputs, *, path):
    """Every tensor of one file, as the safetensors library reads it; BF16 as its bits."""
    import torch
    from safetensors import safe_open

    out = {}
    with safe_open(path, framework="pt") as handle:
        for name in sorted(handle.keys()):
            tensor = handle.get_tensor(name)
            out[name] = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return out


def safetensors_write(inputs, *, path):
    """Write the inputs with the safetensors library."""
    from safetensors.numpy import save_file

    save_file(inputs, path, metadata={"by": "safetensors"})
    return {}


if __name__ == "__main__":
    serve(
        {
            "torchao": torchao,
            "torchao_decode": torchao_decode,
            "compressed_tensors": compressed_tensors,
            "ml_dtypes": ml_dtypes,
            "safetensors_read": safetensors_read,
            "safetensors_write": safetensors_write,
        }
    )
