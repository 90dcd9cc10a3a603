"""A command with its directory as a job, and its output while it runs.

    python examples/entrypoint/submit.py

The same from the command line:

    raysched submit --share vision --gpu 2 --env LR=0.1 --working-dir examples/entrypoint --wait -- python train.py
"""

from pathlib import Path

import raysched

handle = raysched.submit(
    ["python", "train.py"],
    share="vision",
    gpu=2,
    env={"LR": "0.1"},
    working_dir=Path(__file__).parent,
    max_runtime="10m",
)
for piece in handle.logs(follow=True):
    print(piece, end="")
print(f"{handle.job} ended with exit code {handle.wait()['exit_code']}")
