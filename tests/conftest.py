"""Settings of all tests: how many examples hypothesis tries (HYPOTHESIS_PROFILE=ci, sanitized or nightly)."""

import os

from hypothesis import HealthCheck, settings

COMMON = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=2_000, **COMMON)
settings.register_profile("sanitized", max_examples=100, **COMMON)
settings.register_profile("nightly", max_examples=100_000, **COMMON | {"derandomize": False, "print_blob": True})
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
