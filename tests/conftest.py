"""What every test shares: hypothesis profiles, printed seeds and poisoned memory."""

import functools
import os
import random
import sys
import zlib

import pytest
from hypothesis import HealthCheck, settings

# Counts grow with the tier; the deadline is off because speed lives in benchmarks, not in tests.
# The autouse fixtures below hold for a whole test, all of its examples included.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile(
    "quick", max_examples=40, deadline=None, suppress_health_check=_QUIET, print_blob=True
)
settings.register_profile(
    "slow", max_examples=150, deadline=None, suppress_health_check=_QUIET, print_blob=True
)
settings.register_profile(
    "proof", max_examples=4000, deadline=None, suppress_health_check=_QUIET, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(autouse=True)
def seeded(request):
    """A seed of its own for every test, printed; GOSSAMER_TEST_SEED sets another one for all."""
    seed = int(os.environ.get("GOSSAMER_TEST_SEED", zlib.crc32(request.node.nodeid.encode())))
    print(f"seed {seed}")
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    return seed


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    """Fresh torch memory holds NaN (or the least integer), so an output that nobody wrote cannot pass."""
    torch = sys.modules.get("torch")
    if torch is None:
        return

    def poison(make):
        @functools.wraps(make)
        def fresh(*args, **kwargs):
            tensor = make(*args, **kwargs)
            if tensor.is_meta:
                return tensor
            with torch.no_grad():
                if tensor.is_floating_point() or tensor.is_complex():
                    return tensor.fill_(float("nan"))
                return tensor if tensor.dtype == torch.bool else tensor.fill_(torch.iinfo(tensor.dtype).min)

        return fresh

    monkeypatch.setattr(torch, "empty", poison(torch.empty))
    monkeypatch.setattr(torch, "empty_like", poison(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", poison(torch.Tensor.new_empty))
