"""The best build that runs here is taken; asking for one that is unknown, unfit or absent is an error."""

import pytest

from gossamer.kernels import backend
from gossamer.kernels.backend import BackendError

FULL = {"avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx512bf16"}


@pytest.fixture
def machine(monkeypatch):
    """Set what the processor can do and which builds exist."""

    def make(features, built):
        monkeypatch.setattr(backend, "_features", lambda: frozenset(features))
        monkeypatch.setattr(backend, "_module", lambda name: f"<{name}>" if name in built else None)

    return make


def test_every_build_here_is_a_module_with_the_training_kernels():
    for name in backend.available():
        assert backend.load(name).train.sgemm


def test_the_best_that_runs_is_taken(machine):
    machine(FULL, {"portable", "avx2", "avx512", "avx512_bf16"})
    assert backend.available() == ["avx512_bf16", "avx512", "avx2", "portable"]
    assert backend.load() == "<avx512_bf16>"
    machine(FULL - {"avx512bf16"}, {"portable", "avx2", "avx512", "avx512_bf16"})
    assert backend.load() == "<avx512>"
    machine(FULL - {"avx512vl"}, {"portable", "avx2", "avx512", "avx512_bf16"})
    assert backend.load() == "<avx2>"
    machine({"avx2", "fma"}, {"portable", "avx2", "avx512"})
    assert backend.load() == "<avx2>"
    machine(set(), {"portable", "avx2"})
    assert backend.load() == "<portable>"


def test_what_is_not_there_is_an_error(machine):
    machine({"avx2", "fma"}, {"portable"})
    with pytest.raises(BackendError, match="'avx2' is not built"):
        backend.load("avx2")
    with pytest.raises(BackendError, match="'avx512' needs avx512f, avx512bw, avx512vl, avx512dq, which"):
        backend.load("avx512")
    with pytest.raises(BackendError, match="'sse' is unknown; there are avx512_bf16, avx512, avx2, portable"):
        backend.load("sse")
    machine({"avx2", "fma"}, set())
    with pytest.raises(BackendError, match=r"not built; install g\+\+ and cmake"):
        backend.load()
