"""A process that archives until it is killed, and says each step.

Usage: python -m tests.store.archiver URL FILE VERSION"""

import sys
from pathlib import Path

from raysched.store.archiving import archive


def tell(text: str) -> None:
    """To the parent."""
    print(text, flush=True)


if __name__ == "__main__":
    archive(sys.argv[1], Path(sys.argv[2]), version=int(sys.argv[3]), tell=tell)
