"""Where public traces lie. They are not part of the project: tests that need them skip, saying so, when absent."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("RAYSCHED_TRACES") or ROOT.parent / "shared" / "traces")
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason="no traces: neither RAYSCHED_TRACES nor ../shared/traces is a folder"
)
