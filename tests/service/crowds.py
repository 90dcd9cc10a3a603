"""Small clusters by seed in which jobs wait, each for its own reason."""

from random import Random
from typing import Any

from tests.service.house import HEAD, House


def crowded(seed: int) -> House:
    """A cluster of a seed in which jobs wait, each for its own reason."""
    rng = Random(seed)
    head = HEAD.replace("[ana, bo]}", "[ana, bo]}\nauthorities: [cto]")
    if rng.random() < 0.3:
        total = rng.randint(2, 8)
        head = head.replace(
            "{pool: p}}", f"{{pool: p}}, limits: {{enabled: true, rules: [{{group: ml, gpu: {total}, mode: total}}]}}}}"
        )
    shares = "".join(share_of(rng, name) for name in ("s", "t", "u")[: rng.randint(2, 3)])
    house = House(shares, head, p=rng.randint(1, 3), q=rng.randint(0, 1))
    for number in range(rng.randint(3, 8)):
        some_job(house, rng, number)
        if rng.random() < 0.3:
            some_act(house, rng, number)
        house.wait(rng.choice((0, 0, 500, 5_000)))
    house.wait(5_000)
    return house


def share_of(rng: Random, name: str) -> str:
    gpu = rng.randint(name == "s", 8)
    nominal = f"p: {{gpu: {gpu}}}"
    if rng.random() < 0.4:
        nominal += f", q: {{gpu: {rng.randint(0, 4)}, cpu: {rng.choice((8, 40))}}}"
    strategy = rng.choice(("reserve", "lend", "borrow", "lend_and_borrow"))
    borrow = rng.choice(("-1", "50%", "{gpu: 2}"))
    rules = rng.choice(("{user: ana, gpu: 3}", "{group: ml, gpu: 4, cpu: 12}", "{group: ml, gpu: 5, mode: total}"))
    limits = (
        f", limits: {{enabled: {str(gpu > 0 and rng.random() < 0.5).lower()}, on_exceed: confirm, rules: [{rules}]}}"
    )
    policy = rng.choice(("strict_fifo", "fifo_within_priority", "any_fit"))
    return (
        f"  {name}: {{nominal: {{{nominal}}}, sharing: {{strategy: {strategy}, borrow_limit: {borrow}}}, "
        f"queue: {{policy: {policy}}}{limits}}}\n"
    )


def some_job(house: House, rng: Random, number: int) -> None:
    house.submit(
        f"j{number}",
        rng.choice((1, 2, 3, 4, 0.5)),
        rng.choice(sorted(house.service.ledger.shares)),
        rng.choice(("ana", "bo", "cem")),
        count=rng.randint(1, 3),
        cpu=rng.choice((1, 4, 9)),
        confirm=True,
        cross_pool=rng.random() < 0.2,
        priority=rng.choice(("P0", "P3", "P5")),
        topology=rng.choice(("preferred", "preferred", "required")),
        **({"max_runtime": "1h"} if rng.random() < 0.3 else {}),
        **({"reservation": "r1"} if rng.random() < 0.1 else {}),
    )


def some_act(house: House, rng: Random, number: int) -> None:
    owner: dict[str, Any] = rng.choice(({"share": "s"}, {"share": "t"}, {"user": "bo"}))
    gpu = {"gpu": rng.randint(1, 4)}
    ends: dict[str, Any] = rng.choice(({"expiry": "9h"}, {"expiry": "9h", "start": "1h"}, {}))
    authority = {"authority": "cto"} if rng.random() < 0.3 else {}
    match rng.randint(0, 9):
        case 0 | 1 | 2 | 3 | 4:
            house.admin("reserve", name=f"r{number}", owner=owner, pool="p", amounts=gpu, **ends)
        case 5 | 6:
            house.admin("override", **owner, amounts=gpu, until="9h", reason="a deadline", **authority)
        case 7 | 8:
            house.admin("cordon", node=rng.choice(sorted(house.sim.cluster.nodes)))
        case _:
            house.admin("report_reserved", pool="p", amounts={"gpu": rng.randint(0, 2)})


def waiting(house: House) -> list[str]:
    jobs = house.service.state.jobs.values()
    return [job.job for job in jobs if job.state == "queued"]
