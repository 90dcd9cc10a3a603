"""How hard hypothesis tries: a short run by default, the same each time in CI, `--hypothesis-profile=long` by night."""

import os

from hypothesis import HealthCheck, settings

UNHURRIED = [HealthCheck.too_slow, HealthCheck.data_too_large]  # a simulated cluster is slow to draw, not wrong

settings.register_profile("short", deadline=None, max_examples=60, suppress_health_check=UNHURRIED)
settings.register_profile("ci", settings.get_profile("short"), derandomize=True)
settings.register_profile("long", settings.get_profile("short"), max_examples=3_000)
settings.load_profile("ci" if os.environ.get("CI") else "short")
