"""What every test shares: hypothesis profiles and printed seeds."""

import os

from hypothesis import HealthCheck, settings

# Counts grow with the tier; the deadline is off because speed lives in benchmarks, not in tests.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=_QUIET, print_blob=True)
settings.register_profile("slow", max_examples=400, deadline=None, suppress_health_check=_QUIET, print_blob=True)
settings.register_profile("proof", max_examples=4000, deadline=None, suppress_health_check=_QUIET, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
