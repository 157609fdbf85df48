"""AVX-512 intrinsics as loops: each against its definition, and the AVX-512 backends built of them.

The definitions are Intel's (Software Developer's Manual, volume 2), in numpy.  Where the processor has the
instructions, they are held against the same definitions.  What this cannot show: what a compiler does with
the real intrinsics, and with plain loops, when it may use 512-bit registers.
"""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import kernel_builds
from gossamer.kernels import backend

try:
    from gossamer import _native
except ImportError:
    _native = None

HERE = Path(__file__).parent / "emulated"
NATIVE = Path(__file__).resolve().parents[2] / "native"
FULL = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx512bf16")
TINY = np.float32(2.0**-126)


def u(array, dtype):
    """The bits of a register as lanes."""
    return np.ascontiguousarray(array).view(dtype)


def fused(a, b, c):
    """a * b + c rounded once: the sum in float64 to odd, so that the second rounding finds what was lost."""
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    product = a * b
    total = product + c
    part = total - product
    lost = (product - (total - part)) + (c - part)
    even = u(total, np.int64) & 1 == 0
    away = np.where(lost > 0, np.inf, -np.inf)
    adjusted = np.where((lost != 0) & even & np.isfinite(total), np.nextafter(total, away), total)
    return adjusted.astype(np.float32)


def flushed(x):
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x).astype(np.float32)


def halves(x):
    return flushed(u(u(x, np.uint16).astype(np.uint32) << 16, np.float32))


def dot_of_pairs(a, b, c):
    x, y, total = halves(a), halves(b), flushed(u(c, np.float32))
    for part in (1, 0):
        total = flushed(fused(x[part::2], y[part::2], total))
    return total


def dot_of_bytes(a, b, c):
    products = u(a, np.uint8).astype(np.int64) * u(b, np.int8)
    return (products.reshape(16, 4).sum(1) + u(c, np.int32)).astype(np.uint64).astype(np.uint32)


def where_bit(n, yes, no):
    return np.where(n >> np.arange(32, dtype=np.uint64) & 1, yes, no)


F, W, D, Q, B = np.float32, np.uint16, np.uint32, np.uint64, np.uint8
DEFINITIONS = {
    "loadu_ps": lambda a, b, c, n: a,
    "storeu_ps": lambda a, b, c, n: a,
    "loadu_si512": lambda a, b, c, n: a,
    "maskz_loadu_epi16": lambda a, b, c, n: where_bit(n, u(a, W), W(0)),
    "castsi512_ps": lambda a, b, c, n: a,
    "castps_pd": lambda a, b, c, n: a,
    "castps512_ps256": lambda a, b, c, n: a[:32],
    "extractf64x4_pd": lambda a, b, c, n: a[32:],
    "setzero_ps": lambda a, b, c, n: np.zeros(64, B),
    "setzero_si512": lambda a, b, c, n: np.zeros(64, B),
    "set1_ps": lambda a, b, c, n: np.repeat(u(a, D)[0], 16),
    "set1_epi8": lambda a, b, c, n: np.repeat(a[0], 64),
    "set1_epi16": lambda a, b, c, n: np.repeat(u(a, W)[0], 32),
    "broadcast_i32x4": lambda a, b, c, n: np.tile(a[:16], 4),
    "mul_ps": lambda a, b, c, n: u(a, F) * u(b, F),
    "fmadd_ps": lambda a, b, c, n: fused(u(a, F), u(b, F), u(c, F)),
    "cvtepi32_ps": lambda a, b, c, n: u(a, np.int32).astype(F),
    "sub_epi32": lambda a, b, c, n: u(a, D) - u(b, D),
    "mask_add_epi16": lambda a, b, c, n: where_bit(n, u(a, W) + u(b, W), u(c, W)),
    "and_si512": lambda a, b, c, n: a & b,
    "xor_si512": lambda a, b, c, n: a ^ b,
    "slli_epi32": lambda a, b, c, n: u(a, D) << D(16),
    "srlv_epi64": lambda a, b, c, n: np.where(u(b, Q) < 64, u(a, Q) >> (u(b, Q) & Q(63)), Q(0)),
    "cmplt_epi32_mask": lambda a, b, c, n: np.packbits(u(a, np.int32) < u(b, np.int32), bitorder="little"),
    "cvtepu8_epi16": lambda a, b, c, n: a[:32].astype(W),
    "cvtepu16_epi32": lambda a, b, c, n: u(a, W)[:16].astype(D),
    "permutexvar_epi16": lambda a, b, c, n: u(b, W)[u(a, W) & 31],
    "permutexvar_epi32": lambda a, b, c, n: u(b, D)[u(a, D) & 15],
    "permutexvar_epi64": lambda a, b, c, n: u(b, Q)[u(a, Q) & Q(7)],
    "shuffle_epi8": lambda a, b, c, n: np.where(b & 128, B(0), a[np.arange(64) & 48 | b & 15]),
    "dpbusd_epi32": lambda a, b, c, n: dot_of_bytes(a, b, c),
    "dpbf16_ps": lambda a, b, c, n: dot_of_pairs(a, b, c),
}
FLOATS = {"mul_ps", "fmadd_ps", "dpbf16_ps"}
"""A NaN's payload is left open here: the manual ranks the operands, kernels must not depend on it."""
EDGES = np.array(
    [
        "0",
        "-0.0",
        "1",
        "-1",
        "1e-40",
        "-1e-45",
        "1.1754944e-38",
        "5.877472e-39",
        "3.4e38",
        "-3.4e38",
        "inf",
        "-inf",
        "nan",
        "1.0078125",
        "1.626303e-19",
        "1.0841e-19",
        "16777216",
        "5.9604645e-08",
    ]
).astype(F)


def processor():
    """What this processor has, whatever it is to count as for the backends."""
    return set(_native.cpu_features()) if _native is not None else set()


@pytest.fixture(scope="module", params=["emulated", "processor"])
def probe(request, tmp_path_factory):
    """The intrinsics as functions of memory."""
    compiler = os.environ.get("CXX", "g++")
    features = processor()
    if shutil.which(compiler) is None or "avx2" not in features:
        pytest.skip("needs a compiler and a processor with AVX2")
    flags = ["-march=x86-64-v3", "-DGOSSAMER_EMULATE", "-Wno-psabi"]
    if request.param == "processor":
        if not set(FULL) <= features:
            pytest.skip("this processor lacks AVX-512 with VNNI and BF16")
        flags = ["-march=x86-64-v4", "-mavx512vnni", "-mavx512bf16"]
    library = tmp_path_factory.mktemp("probe") / "probe.so"
    command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", *flags, str(HERE / "probe.cpp")]
    subprocess.run([*command, "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def registers(rng):
    """Three registers of 64 bytes: any bits, or floats and BF16 among which the awkward ones are frequent."""
    kind = rng.integers(4)
    if kind == 0:
        return [rng.integers(0, 256, 64, B) for _ in range(3)]
    if kind == 1:
        return [u(rng.choice(EDGES, 16), B) for _ in range(3)]
    if kind == 2:
        bits = [u(rng.choice(EDGES, 32), D) >> D(16) for _ in range(2)]
        return [*(u(x.astype(W), B) for x in bits), u(rng.choice(EDGES, 16), B)]
    return [u(np.ldexp(rng.standard_normal(16, F), rng.integers(-3, 3)).astype(F), B) for _ in range(3)]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_intrinsics_are_what_the_manual_says(probe, name):
    rng = np.random.default_rng(1)
    for _ in range(300):
        a, b, c = registers(rng)
        n = int(rng.integers(0, 2**32))
        out = np.full(64, 0xA5, B)
        pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
        getattr(probe, name)(*pointers, ctypes.c_uint(n), ctypes.c_void_p(out.ctypes.data))
        with np.errstate(all="ignore"):
            want = u(DEFINITIONS[name](a, b, c, np.uint64(n)), B)
        got, rest = out[: want.size], out[want.size :]
        assert (rest == 0xA5).all()
        if name in FLOATS:
            np.testing.assert_array_equal(u(got, F), u(want, F))
            number = ~np.isnan(u(want, F))
            got, want = u(got, D)[number], u(want, D)[number]
        np.testing.assert_array_equal(got, want)


def test_masked_loads_do_not_read_what_is_masked(probe):
    page = np.zeros(2, W)
    out = np.ones(64, B)
    pointer = ctypes.c_void_p(page.ctypes.data)
    probe.maskz_loadu_epi16(pointer, pointer, pointer, ctypes.c_uint(3), ctypes.c_void_p(out.ctypes.data))
    assert not out.any()


def test_every_intrinsic_of_the_sources_is_emulated_and_tested():
    used = set()
    for path in NATIVE.rglob("*.*"):
        used |= set(re.findall(r"\b_mm512_(\w+)", path.read_text()))
    given = set(re.findall(r"#define _mm512_(\w+)", (HERE / "avx512.h").read_text()))
    assert used <= given
    assert given == set(DEFINITIONS)


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """Folder of the AVX-512 backends, emulated."""
    if "avx2" not in processor() or not backend.available():
        pytest.skip("needs built kernels and a processor with AVX2")
    built = {name for name in backend.BACKENDS if name.startswith("avx512")}
    return kernel_builds.build(tmp_path_factory.mktemp("emulated"), built, GOSSAMER_EMULATE="ON")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "tests", ["tests/kernels", "tests/engine/test_native_runner.py", "tests/train/fused"]
)
def test_avx512_sources_pass_the_kernel_tests(modules, tests):
    arguments = ["-m", "pytest", "-p", "kernel_builds", "-p", "no:cacheprovider", "-rA", tests]
    features = " ".join(("avx2", "fma", *FULL))
    done = kernel_builds.python(modules, *arguments, GOSSAMER_PRETEND_CPU=features)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "avx512_bf16" in done.stdout or tests != "tests/kernels"
