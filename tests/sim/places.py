"""Where scenario files lie."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "scenarios").glob("*.yaml"))


def shared_scenarios() -> Path | None:
    """A folder of further scenarios, if there is one: RAYSCHED_SCENARIOS, else ../shared/scenarios."""
    given = Path(os.environ.get("RAYSCHED_SCENARIOS") or ROOT.parent / "shared" / "scenarios")
    return given if given.is_dir() else None
