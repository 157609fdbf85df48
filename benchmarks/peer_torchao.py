"""Runs in the oracle environment: torchao's MX encode and decode on one thread, as JSON on stdout."""

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")
import torch  # noqa: E402
from torchao.prototype.mx_formats.config import ScaleCalculationMode  # noqa: E402
from torchao.prototype.mx_formats.mx_tensor import MXTensor  # noqa: E402

torch.set_num_threads(1)
FORMATS = {"mxfp4": torch.float4_e2m1fn_x2, "mxfp8_e4m3": torch.float8_e4m3fn}


def best_rate(call, elements: int, runs: int) -> float:
    """Elements per second of the fastest run: noise only ever adds time."""
    call()
    taken = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return elements / min(taken)


def main() -> None:
    rows, columns, runs = (int(a) for a in sys.argv[1:4])
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    found = {}
    for name, dtype in FORMATS.items():

        def encode(dtype=dtype):
            return MXTensor.to_mx(x, dtype, 32, ScaleCalculationMode.EVEN)

        packed = encode()
        found[name] = {
            "encode": best_rate(encode, x.numel(), runs),
            "decode": best_rate(lambda packed=packed: packed.dequantize(torch.float32), x.numel(), runs),
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
