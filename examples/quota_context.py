"""On whose account: a quota context is entered once, or given with a single submission.

python examples/quota_context.py
"""

import raysched
from raysched import QuotaContext


def who() -> str:
    """Where the job's GPUs are charged."""
    job = raysched.current_job()
    return f"{job.user} in share {job.share}"


if __name__ == "__main__":
    with QuotaContext(user="ana", share="vision"):
        first = raysched.submit(who, gpu=2)
        # One submission inside may still be charged to somebody else.
        second = raysched.submit(who, gpu=1, quota=QuotaContext("cy", "language"))
    print(f"{first.job} was charged to {first.result(timeout=120)}")
    print(f"{second.job} was charged to {second.result(timeout=120)}")

    for share in raysched.Client(user="ana").shares():
        print(f"share {share['share']} owns {share['owned']['gpu'] // 1000} GPUs")
