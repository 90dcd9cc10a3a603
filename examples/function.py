"""A Python function as a job: its arguments travel with it, and what it returns comes back.

    python examples/function.py

Needs a running cluster: `raysched up -c configs/local-demo.yaml --local-nodes`, or RAYSCHED_ADDRESS."""

import raysched


@raysched.job(share="vision", gpu=1, cpu=1)
def estimate_pi(samples: int) -> float:
    """Runs on a node, with one GPU and one core of its own."""
    import random

    job = raysched.current_job()
    print(f"{job.job} of {job.user} on {job.nodes[0]}, GPU {', '.join(job.devices)}")
    inside = sum(random.random() ** 2 + random.random() ** 2 < 1 for _ in range(samples))
    return 4 * inside / samples


if __name__ == "__main__":
    handle = estimate_pi.submit(samples=200_000)
    print(f"submitted {handle.job}")
    print(f"pi is about {handle.result(timeout=120):.2f}")
    print(f"the job said: {handle.logs()}", end="")
