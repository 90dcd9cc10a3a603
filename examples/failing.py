"""Jobs that fail, and how it shows: an exception comes back as itself, a command with its exit code.

python examples/failing.py
"""

import raysched


class OutOfMemory(Exception):
    """An exception of the caller's own."""


def train() -> None:
    raise OutOfMemory("79.6 of 80 GiB are in use")


if __name__ == "__main__":
    try:
        raysched.submit(train, share="vision", gpu=1).result(timeout=120)
    except OutOfMemory as error:
        print(f"the function raised {error!r}")
        print(f"on the node it looked like this:\n{error.__cause__}")

    handle = raysched.submit(["sh", "-c", "echo no such dataset >&2; exit 3"], share="vision", gpu=1)
    try:
        handle.result(timeout=120)
    except raysched.JobFailed as error:
        print(f"the command failed with exit code {error.exit_code}; it said: {handle.logs()}", end="")

    try:
        raysched.submit(["true"], share="vision", gpu=9)
    except raysched.SubmitRefused as error:
        print(f"refused: {error}")
