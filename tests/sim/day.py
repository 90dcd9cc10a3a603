"""A simulated day of a busy cluster: 10,000 jobs of 200 users in 8 shares, with limits, loans, reservations, overrides,
failing nodes and administrators at work. One seed is one day."""

from random import Random
from typing import Any

import msgspec

from raysched.config import job_from_keys, parse_config
from raysched.core.model import JobId, NodeId
from raysched.sim.simulation import Runtime, Simulation

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
SHARES, USERS, NODES = 8, 200, 40
STRATEGIES = ("lend_and_borrow", "lend", "borrow", "reserve")
POLICIES = ("fifo_within_priority", "any_fit", "strict_fifo")


def day(jobs: int = 10_000, seed: int = 1) -> Simulation:
    """The day, played to its end."""
    rng = Random(seed)
    sim = Simulation(parse_config(_config(rng)), START_MS)
    for number in range(NODES):
        pool = "main" if number < NODES - 8 else "side"
        sim.add_node(f"n{number}", pool, sim.config.node_specs["h8"])
    sim.settle()
    for at_ms, what, number in _timetable(rng, jobs):
        sim.run_until(START_MS + at_ms)
        if what == "job":
            _submit(sim, rng, number)
        else:
            _act(sim, rng, number)
    sim.run_until(START_MS + DAY_MS)
    return sim


def _timetable(rng: Random, jobs: int) -> list[tuple[int, str, int]]:
    """When jobs come (most by day) and administrators act: (ms, what, number), in order of time."""
    hours = [rng.choices(range(24), [1] * 8 + [4] * 10 + [2] * 6)[0] for _ in range(jobs)]
    found = [(hour * 3_600_000 + rng.randrange(3_600_000), "job", number) for number, hour in enumerate(hours)]
    acts = max(20, jobs // 50)
    return sorted([*found, *((rng.randrange(DAY_MS), "act", number) for number in range(acts))])


def _config(rng: Random) -> dict[str, Any]:
    shares = {}
    for number in range(SHARES):
        nominal: dict[str, Any] = {"main": {"gpu": 32, "cpu": 512}}
        if number % 3 == 0:
            nominal["side"] = {"gpu": 16}
        rules: list[dict[str, Any]] = [
            {"user": f"u{rng.randrange(USERS)}", "gpu": rng.randint(4, 24)} for _ in range(4)
        ]
        rules.append({"group": "team", "gpu": 40, "mode": "total"})
        shares[f"s{number}"] = {
            "nominal": nominal,
            "weight": 10 + number,
            "sharing": {"strategy": STRATEGIES[number % 4], "borrow_limit": ("50%", -1)[number % 2]},
            "queue": {"policy": POLICIES[number % 3]},
            "limits": {"enabled": number % 2 == 0, "default": {"gpu": 12}, "rules": rules, "on_exceed": "confirm"},
            "reclaim": {"policy": "wait"},
        }
    return {
        "version": 1,
        "node_specs": {"h8": {"gpu": 8, "gpu_model": "H100", "cpu": 128, "memory": "1Ti"}},
        "pools": {"main": {"match": {"pool": "main"}}, "side": {"match": {"pool": "side"}}},
        "groups": {"team": [f"u{number}" for number in range(0, USERS, 10)]},
        "shares": shares,
    }


def _submit(sim: Simulation, rng: Random, number: int) -> None:
    job = JobId(f"j{number}")
    runtime_ms = int(min(4 * 3_600_000, rng.lognormvariate(12.7, 1.1)))
    user = f"u{rng.randrange(USERS)}"
    keys: dict[str, Any] = {
        "job": job,
        "user": user,
        "share": f"s{rng.randrange(SHARES)}",
        "bundles": [{"gpu": rng.choice((1, 1, 1, 2, 2, 4, 8, 0.5)), "cpu": rng.choice((4, 8)), "memory": "16Gi"}],
        "count": rng.choice((1, 1, 1, 1, 2, 4)),
        "priority": rng.choice(("P3", "P5", "P5", "P7")),
        "cross_pool": rng.random() < 0.1,
        "confirm": rng.random() < 0.02,
    }
    if rng.random() < 0.7:
        keys["max_runtime"] = f"{runtime_ms // 1_000 * 2 + 60}s"
    sim.runtimes[job] = Runtime(runtime_ms)
    sim.service.submit(msgspec.to_builtins(job_from_keys(keys)), user)


def _act(sim: Simulation, rng: Random, number: int) -> None:
    """An administrator, or a node, does something."""
    service, share = sim.service, f"s{rng.randrange(SHARES)}"
    gpu = {"gpu": rng.randint(1, 8)}
    at_s = (sim.clock.at_ms - START_MS) // 1_000
    match number % 8:
        case 0:
            window = {"start": f"{at_s + rng.randint(0, 3_600)}s", "expiry": f"{at_s + 7_200}s"}
            keys = {"name": f"r{number}", "owner": {"share": share}, "pool": "main", "amounts": gpu, **window}
            service.admin("reserve", keys, "root")
        case 1:
            scope = {"share": share} if rng.random() < 0.5 else {"user": f"u{rng.randrange(USERS)}"}
            keys = {**scope, "amounts": gpu, "for": "2h", "reason": "a deadline"}
            service.admin("override", keys | ({"authority": "cto"} if rng.random() < 0.8 else {}), "root")
        case 2:
            service.admin("set_limits", {"name": share, "default": {"gpu": rng.randint(6, 16)}}, "root")
        case 3:
            nominal = {"main": {"gpu": rng.randint(24, 40), "cpu": 512}}
            service.admin("set_share", {"name": share, "nominal": nominal}, "root")
        case 4:
            waiting = [job.job for job in service.state.jobs.values() if job.state == "queued"]
            if waiting:
                service.set_priority(rng.choice(waiting), rng.randint(2, 8), "root")
        case 5:
            running = sorted(service.state.active)
            if running:
                service.move(rng.choice(running), share, "root")
        case 6:
            sim.cluster.fail(NodeId(f"n{rng.randrange(NODES)}"), rng.choice(("gpu_lost", "xid_79")))
        case _:
            for name, node in sim.cluster.nodes.items():
                if node.signals:
                    sim.cluster.recover(name, True)
