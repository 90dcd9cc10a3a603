"""Pending jobs in lines of equal asks: nobody is lost, the order is the queue's, and who sleeps is woken in time."""

from random import Random

import msgspec
import pytest

from raysched.core.lines import Alike, OrderKey, Queues
from raysched.core.model import Bundle, GroupId, JobId, JobSpec, LimitRule, Limits, PoolId, ShareId, UserId
from raysched.core.plan import plan
from raysched.core.queue import Walk
from tests.core.language import Story, cluster, job

SHARE = ShareId("s")
USERS = tuple(UserId(name) for name in ("ann", "bob", "cem"))
OPTION = (PoolId("main"), "H100")


def spec(rng: Random, number: int) -> JobSpec:
    bundles = (Bundle(rng.choice((500, 1_000, 8_000)), attach=rng.choice(({}, {"disks": 1}))),)
    return JobSpec(JobId(f"j{number}"), rng.choice(USERS), SHARE, bundles, max_runtime_ms=rng.choice((None, 1_000)))


def order(rng: Random, number: int) -> OrderKey:
    return (rng.randrange(3), rng.randrange(2), rng.randrange(5), number, JobId(f"j{number}"))


def filled(rng: Random, count: int) -> tuple[Queues, dict[JobId, tuple[JobSpec, OrderKey]]]:
    queues, plain = Queues(), dict[JobId, tuple[JobSpec, OrderKey]]()
    for number in range(count):
        one, key = spec(rng, number), order(rng, number)
        queues.add(SHARE, one, one.bundles, one.cross_pool, key)
        plain[one.job] = (one, key)
    return queues, plain


def walk(queues: Queues) -> Walk:
    groups = list(queues.shares.get(SHARE, {}).values())
    return Walk(groups, "any_fit", {group.choice: [OPTION] for group in groups}, {})


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_on_which_everybody_passes_is_the_queue_in_order(seed: int) -> None:
    rng = Random(seed)
    queues, plain = filled(rng, 60)
    for name in rng.sample(sorted(plain), 20):
        one, key = plain.pop(name)
        queues.remove(one.user, key)
    going, seen = walk(queues), list[OrderKey]()
    while (found := going.next()) is not None:
        seen.append(plain[found[0]][1])
        going.passed(starts=rng.random() < 0.5)
    assert seen == sorted(key for _, key in plain.values()) == sorted(queues.orders(SHARE))


@pytest.mark.parametrize("seed", range(20))
def test_of_a_line_that_is_refused_nobody_else_is_looked_at(seed: int) -> None:
    rng = Random(seed)
    queues, plain = filled(rng, 60)
    going, seen = walk(queues), list[tuple[Alike, UserId]]()
    while (found := going.next()) is not None:
        _, group, user, _ = found
        seen.append((group, user))
        going.refused("USER_LIMIT")
    assert len(seen) == len(set(seen)) == sum(len(group.lines) for group in queues.shares[SHARE].values())
    assert {group.shape for group, _ in seen} == {queues.where[name].shape for name in plain}


def test_of_a_group_that_is_closed_nobody_else_is_looked_at() -> None:
    queues, _ = filled(Random(1), 60)
    going, count = walk(queues), 0
    while going.next() is not None:
        count += 1
        going.closed()
    assert count == len(queues.shares[SHARE])


@pytest.mark.parametrize("seed", range(20))
def test_heads_are_the_first_of_lines_that_are_awake(seed: int) -> None:
    rng = Random(seed)
    queues, plain = filled(rng, 30)
    eased: dict[UserId, int] = {}
    slept: dict[tuple[Alike, UserId], int] = {}
    for serial in range(1, 200):
        act = rng.randrange(4)
        group = rng.choice(list(queues.shares[SHARE].values()))
        user = rng.choice(list(group.lines))
        if act == 0 and user not in group.asleep:
            queues.sleep(group, user, serial)
            slept[group, user] = serial
        elif act == 1:
            one, key = plain.pop(rng.choice(sorted(plain)))
            queues.remove(one.user, key)
            number = 1_000 + serial
            one, key = spec(rng, number), order(rng, number)
            queues.add(SHARE, one, one.bundles, one.cross_pool, key)
            plain[one.job] = (one, key)
        elif act == 2:
            eased[user] = serial
        else:
            queues.rouse("the same", eased)
            asleep = [(each, name) for each in queues.shares[SHARE].values() for name in each.asleep]
            assert all(eased.get(name, 0) <= slept[each, name] for each, name in asleep), "something was given back"
        for each in queues.shares[SHARE].values():
            awake = [(line[0], name) for name, line in each.lines.items() if name not in each.asleep]
            assert each.heads == sorted(awake)
            assert each.asleep <= set(each.lines)
            assert each.first() == min(line[0] for line in each.lines.values())
    queues.rouse("something else", {})
    assert not any(group.asleep for group in queues.shares[SHARE].values())


# ── what it is for ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_thousand_equal_jobs_behind_a_full_share_are_one_decision() -> None:
    c = cluster(nodes=1).share("a", nominal=8).started(job("first", gpus=8))
    before = c.sim.quota.ledger.version
    for number in range(50):
        c.submit(job(f"sweep{number}", gpus=8))
    assert c.sim.quota.ledger.version == before + 1, "the head is told why it waits; the others wait for the same"
    assert {c.reason(f"sweep{number}") for number in (0, 1, 49)} == {"SHARE_QUOTA"}
    c.finish("first")
    assert (c.state("sweep0"), c.state("sweep1"), c.reason("sweep1")) == ("claimed", "queued", "SHARE_QUOTA")


def test_a_users_line_that_a_limit_holds_sleeps_and_holds_nobody_back() -> None:
    c = cluster(nodes=2).share("a", nominal=16).limit("a", each=2)
    c.submit(job("one", gpus=2), job("two", gpus=2), job("three", gpus=2), job("theirs", gpus=2, user="bob"))
    groups = c.sim.service.state.pending.shares[ShareId("a")].values()
    assert [c.state(name) for name in ("one", "two", "three", "theirs")] == ["claimed", "queued", "queued", "claimed"]
    c.run(1)
    assert [group.asleep for group in groups] == [{"ann"}]
    c.finish("one")
    assert (c.state("two"), c.reason("three")) == ("claimed", "USER_LIMIT")


def wakes_to_the_same(c: Story) -> bool:
    """Law 10: whoever looks at everybody plans the same."""
    service = c.sim.service
    made = plan(service.state, service.ledger, c.sim.clock.at_ms)
    service.state.pending.wake_all()
    return plan(service.state, service.ledger, c.sim.clock.at_ms) == made


def test_a_line_refused_only_in_the_places_that_are_open_does_not_sleep() -> None:
    """ann may have 1 GPU in the pool side; main is closed by a head, and opens when a job of somebody else ends."""
    limits = Limits(True, rules=(LimitRule(gpu=1_000, user=UserId("ann")),))
    c = cluster(nodes=1).pool("side", 1).share("a", nominal={"main": 8, "side": 8}, queue="strict_fifo")
    c._pools[1] = msgspec.structs.replace(c._pools[1], limits=limits)
    c.started(job("run", gpus=8, user="bob", pool="main"))
    c.submit(job("head", gpus=4, user="bob", pool="main"))
    c.submit(job("annj", gpus=2, user="ann", confirm=True))
    c.run(1)
    assert wakes_to_the_same(c)
    c.finish("run")
    c.run(1)
    assert c.state("annj") == "running"


def test_the_reason_follows_when_a_users_own_limit_comes_before_the_groups() -> None:
    rules = (LimitRule(gpu=4_000, user=UserId("ann")), LimitRule(gpu=6_000, group=GroupId("ml"), mode="total"))
    c = cluster(nodes=2).share("a", nominal=16).group("ml", "ann", "bob")
    c._shares[0] = msgspec.structs.replace(c._shares[0], limits=Limits(True, rules=rules))
    c.started(job("b", gpus=3, user="bob"), job("a1", gpus=2))
    c.submit(job("a2", gpus=2))
    c.run(1)
    assert c.reason("a2") == "GROUP_LIMIT"
    c.started(job("a3", gpus=1))
    assert c.record("a2").reason == "USER_LIMIT"
    assert wakes_to_the_same(c)


def test_a_head_in_its_retry_is_looked_at_when_that_is_over() -> None:
    c = cluster(nodes=2).share("a", nominal=16).limit("a", each=1)
    c.submit(job("j1"), job("j2"), job("j3"))
    c.sim.cluster._never((JobId("j1"), 1), "no group")
    c.settle()
    c.run(0.3)
    assert wakes_to_the_same(c)
    c.run(30)
    assert (c.state("j1"), c.reason("j1")) == ("queued", "USER_LIMIT")
