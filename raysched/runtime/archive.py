"""Working directories arrive as ZIP archives with the files' modes in the external attributes."""

import io
import os
import zipfile
from pathlib import Path


def unpack(data: bytes, directory: Path) -> None:
    """Write the archive's files below `directory`. Names that lead out of it are kept inside (zipfile does that).

    Raises OSError, also for data that is no archive."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                path = archive.extract(member, directory)
                mode = (member.external_attr >> 16) & 0o777
                if mode and not member.is_dir():
                    os.chmod(path, mode | 0o600)
    except zipfile.BadZipFile as problem:
        raise OSError(f"the working directory's archive cannot be read: {problem}") from problem
