"""What travels as bytes: archives of working directories, and how large they may be."""

import io
import os
import zipfile
from pathlib import Path

import pytest

from raysched.client import BadSpec
from raysched.client.payload import MAX_BLOB_BYTES, pack_directory


def names(data: bytes) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def test_a_directory_is_packed_without_what_nobody_needs(tmp_path: Path) -> None:
    for name in (".git/config", "pkg/__pycache__/a.pyc", "pkg/a.py", "train.py", ".env", "données/ü.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    data = pack_directory(tmp_path)
    assert sorted(names(data)) == sorted([".env", "données/ü.txt", "pkg/a.py", "train.py"])
    assert zipfile.ZipFile(io.BytesIO(data)).read("données/ü.txt").decode() == "données/ü.txt"


def test_equal_contents_give_equal_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").write_text("print(1)")
    os.utime(tmp_path / "two" / "train.py", (1, 1))
    assert pack_directory(tmp_path / "one") == pack_directory(tmp_path / "two")


def test_a_script_stays_executable(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (entry,) = zipfile.ZipFile(io.BytesIO(pack_directory(tmp_path))).infolist()
    assert entry.external_attr >> 16 == 0o755


def test_a_linked_file_is_packed_and_a_linked_directory_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "data.txt").write_text("data")
    (inside / "link.txt").symlink_to(tmp_path / "data.txt")
    assert names(pack_directory(inside)) == ["link.txt"]
    (inside / "folder").symlink_to(tmp_path)
    with pytest.raises(BadSpec, match="folder is a link to a directory"):
        pack_directory(inside)


def test_an_archive_that_is_too_large_is_refused_with_the_limit(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(os.urandom(MAX_BLOB_BYTES + 2**20))
    with pytest.raises(BadSpec, match="at most 64 MiB") as caught:
        pack_directory(tmp_path)
    assert caught.value.code == "TOO_LARGE"


def test_only_directories_are_packed(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="is not a directory"):
        pack_directory(tmp_path / "none")
