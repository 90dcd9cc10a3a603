"""The disk fills up: the batch fails as a whole with the cause, and the store goes on when there is room again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FULL = "database or disk is full"
TOO_LARGE = "disk I/O error"


def what_happened(folder: Path, how: str, *prefix: str) -> dict[str, Any]:
    """Run the filler; its report."""
    command = [*prefix, sys.executable, "-m", "tests.store.filler", str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check(report: dict[str, Any], cause: str) -> None:
    """Nothing of a failed batch was kept, everything acknowledged was, and numbers went on without a gap."""
    (events, journal_why), (entries, ledger_why), (blob_kept, blob_why) = report["failures"]
    for why in (journal_why, ledger_why, blob_why):
        assert cause in why
        assert "nothing was kept" in why
    assert blob_kept == 0
    assert events > 0 and entries > 0
    assert report["kept"] == [events, entries]
    assert report["told"] == report["stored"] == [events + 1, entries + 1]
    assert report["chain"] == []


def test_a_full_disk(tmp_path: Path) -> None:
    in_own_mounts = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    mount = f"mount -t tmpfs -o size=4m tmpfs {tmp_path}"
    try:
        allowed = subprocess.run([*in_own_mounts, "sh", "-c", mount], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("a small disk cannot be mounted here; the test with a file size limit stands for it")
    check(what_happened(tmp_path, "tmpfs", *in_own_mounts, "sh", "-c", f'{mount} && exec "$@"', "sh"), FULL)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    check(what_happened(tmp_path, "file_size"), TOO_LARGE)
