"""Jobs, reservations and overrides from the keys people write."""

from datetime import UTC, datetime

import pytest

from raysched.config import (
    ConfigError,
    bundles_from_keys,
    job_from_keys,
    override_from_keys,
    reservation_from_keys,
    time_ms,
)
from raysched.core.model import Bundle, JobSpec, Override, Reservation

GI = 2**30
EIGHT = [{"gpu": 8}]


def fault(keys: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as error:
        job_from_keys({"job": "j", "user": "ana", "share": "nlp", "bundles": EIGHT} | keys)
    return str(error.value)


def test_a_job_with_every_key() -> None:
    keys: dict[str, object] = {
        "job": "j1",
        "user": "ana",
        "share": "nlp",
        "bundles": [
            {"gpu": 8, "cpu": "500m", "memory": "64Gi", "disks": 2, "attach": {"fs_mounts": 1}},
            {"cpu": 4, "count": 3},
        ],
        "count": 2,
        "workload": "service",
        "workspace": "research",
        "priority": "P3",
        "tags": {"kind": "speech"},
        "model": "H100",
        "pool": "train",
        "cross_pool": True,
        "confirm": True,
        "max_runtime": "2h",
        "checkpoint_every": "10m",
        "reservation": "ra",
        "retries": 2,
        "grace": "5s",
        "topology": "required",
        "submitted_by": "bo",
    }
    assert job_from_keys(keys) == JobSpec(
        job="j1",
        user="ana",
        share="nlp",
        bundles=(Bundle(8_000, 500, 64 * GI, {"disks": 2, "fs_mounts": 1}, 2), Bundle(cpu_milli=4_000, count=6)),
        workload="service",
        workspace="research",
        priority=3,
        tags={"kind": "speech"},
        model="H100",
        pool="train",
        cross_pool=True,
        confirm=True,
        max_runtime_ms=7_200_000,
        checkpoint_every_ms=600_000,
        reservation="ra",
        retries=2,
        grace_ms=5_000,
        topology="required",
        submitted_by="bo",
    )


def test_what_a_job_leaves_out_is_that_of_the_core() -> None:
    spec = job_from_keys({"user": "ana", "share": "nlp", "bundles": EIGHT}, job="ana-1")
    assert spec == JobSpec("ana-1", "ana", "nlp", (Bundle(8_000),))


@pytest.mark.parametrize(("given", "priority"), [("P0", 0), ("p9", 9), (3, 3), (None, None)])
def test_priorities(given: object, priority: int | None) -> None:
    keys = {"job": "j", "user": "ana", "share": "nlp", "bundles": EIGHT, "priority": given}
    assert job_from_keys(keys).priority == priority


@pytest.mark.parametrize(("gpu", "milli"), [(1, 1_000), (0.5, 500), ("250m", 250), ("2000m", 2_000), ("0.001", 1)])
def test_gpus_are_whole_or_below_one(gpu: object, milli: int) -> None:
    assert bundles_from_keys([{"gpu": gpu}]) == (Bundle(milli),)


@pytest.mark.parametrize(
    ("bundles", "reason"),
    [
        ([{"gpu": 1.5}], "job: bundles[0].gpu: must be a whole number or below 1, got 1.5"),
        ([{"gpu": "1001m"}], "job: bundles[0].gpu: must be a whole number or below 1, got '1001m'"),
        ([{"gpu": 1}, {"cpu": "x", "memory": "1Zi"}], "job: bundles[1].cpu: 'x' is not a quantity"),
        ([{"gpu": 1}, {"cpu": "x", "memory": "1Zi"}], "job: bundles[1].memory: unit 'Zi' of '1Zi' is unknown"),
        ([{"gpu": 0}], "job: bundles[0]: asks for nothing"),
        ([{}], "job: bundles[0]: asks for nothing"),
        ([], "job: bundles: must name at least one bundle"),
        ({"gpu": 1}, "job: bundles: must be a list of bundles, got a mapping"),
        ([8], "job: bundles[0]: must be a mapping such as {gpu: 8, cpu: 96, memory: 512Gi}, got 8"),
        ([{"gpus": 8}], "job: bundles[0].gpus: is no resource kind (did you mean gpu?)"),
        ([{"mem": "8Gi"}], "job: bundles[0].mem: is no resource kind (did you mean memory?)"),
        ([{"gpu:H100": 8}], "job: bundles[0].gpu:H100: a bundle asks for `gpu`; the job names the `model`"),
        ([{"gpu": 1, "count": 0}], "job: bundles[0].count: must be a whole number from 1 to 1000000, got 0"),
        ([{"gpu": 1, "count": True}], "job: bundles[0].count: must be a whole number from 1 to 1000000, got True"),
        ([{"gpu": 1, "attach": 3}], "job: bundles[0].attach: must be a mapping of attachables, got 3"),
        ([{"gpu": 1, "attach": {"cpu": 3}}], "job: bundles[0].attach.cpu: is a key of its own, not an attachable"),
        ([{"gpu": 1, "attach": {"disks": -3}}], "job: bundles[0].attach.disks: -3 is not a quantity"),
        ([{"gpu": 1, 7: 1}], "job: bundles[0].7: the key must be text"),
        ([{"gpu": 1, "count": 600_000}, {"gpu": 1, "count": 600_000}], "job: bundles: are more than 1000000 in all"),
        ([{"memory": "4000Pi", "count": 1_000}], "job: bundles: ask for too much memory in all"),
    ],
)
def test_bundles_that_are_none(bundles: object, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        bundles_from_keys(bundles)
    assert any(str(problem).startswith(reason) for problem in error.value.problems)


def test_resources_that_only_look_like_a_gpu_are_attachables() -> None:
    assert bundles_from_keys([{"NPU": 4, "tpu": 2}]) == (Bundle(attach={"NPU": 4, "tpu": 2}),)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"user": None}, "job: user: must be text (numbers in quotes), got nothing"),
        ({"job": "a/b"}, "job: job: 'a/b' may not contain '/'"),
        ({"workload": "gaming"}, "job: workload: must be 'notebook'"),
        ({"priority": "P11"}, "job: priority: must be P0 (highest) to P9, got 'P11'"),
        ({"max_runtime": "0s"}, "job: max_runtime: must be longer than 0"),
        ({"count": 0}, "job: count: must be at least 1, got 0"),
        ({"topology": "near"}, "job: topology: must be 'preferred' or 'required', got 'near'"),
        ({"runtime": "1h"}, "job: runtime: unknown key (did you mean max_runtime?)"),
        ({"count": 1_000_000, "bundles": [{"gpu": 1, "count": 2}]}, "job: bundles: are more than 1000000 in all"),
    ],
)
def test_jobs_that_are_none(keys: dict[str, object], reason: str) -> None:
    assert fault(keys).startswith(reason)


def test_all_that_is_wrong_with_a_job_comes_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        job_from_keys({"bundles": [{"gpu": 1.5}], "retires": 3})
    assert {problem.path for problem in error.value.problems} == {"user", "share", "bundles[0].gpu", "retires"}


def test_a_job_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="job: job: is required"):
        job_from_keys({"user": "ana", "share": "nlp", "bundles": EIGHT})


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ("2h", 1_000 + 7_200_000),
        ("0s", 1_000),
        ("1970-01-01T00:00:05Z", 5_000),
        ("1970-01-01T08:00:05.250+08:00", 5_250),
        (datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC), 7_000),
    ],
)
def test_times(given: object, ms: int) -> None:
    assert time_ms(given, origin_ms=1_000) == ms


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("2026-01-01T00:00:00", "must name a zone"),
        ("2026-01-01", "must name a zone"),
        (datetime(2026, 1, 1), "must name a zone"),
        ("1969-12-31T00:00:00Z", "must not be before 1970"),
        ("tomorrow", "must be a time such as"),
        ("", "must be a time such as"),
        (1_700_000_000_000, "must be a time with a zone or an offset"),
        (True, "must be a time with a zone or an offset"),
        ([], "must be a time with a zone or an offset"),
    ],
)
def test_times_that_are_none(given: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        time_ms(given, 0)


def test_a_reservation() -> None:
    keys: dict[str, object] = {
        "name": "ra",
        "owner": {"share": "a"},
        "pool": "p",
        "amounts": {"gpu": 4},
        "start": "1970-01-01T00:00:10Z",
        "expiry": "1h",
        "bundles": [{"gpu": 4}],
        "reason": "launch",
    }
    assert reservation_from_keys(keys, origin_ms=5_000) == Reservation(
        "ra", "p", {"gpu": 4_000}, 10_000, share="a", expiry_ms=3_605_000, bundles=(Bundle(4_000),), reason="launch"
    )


def test_a_reservation_without_an_end_is_allowed() -> None:
    keys: dict[str, object] = {"name": "rb", "owner": {"user": "ana"}, "pool": "p", "amounts": {"gpu": 1}}
    assert reservation_from_keys(keys, 5_000) == Reservation("rb", "p", {"gpu": 1_000}, 5_000, user="ana")
    assert reservation_from_keys(keys, 5_000, now_ms=9_000).start_ms == 9_000
    keys["release_condition"] = "training done"
    assert reservation_from_keys(keys, 5_000).release_condition == "training done"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"owner": {}}, "reservation: owner: must name either a share or a user"),
        ({"owner": {"share": "a", "user": "b"}}, "reservation: owner: must name either a share or a user"),
        ({"owner": "a"}, "reservation: owner: must be a mapping, got 'a'"),
        ({"amounts": {"gpu": 0}}, "reservation: amounts: must be more than 0"),
        ({"amounts": {}}, "reservation: amounts: names no resource kind"),
        ({"expiry": "0s"}, "reservation: expiry: must be later than the start"),
        ({"expiry": "2026-01-01"}, "reservation: expiry: must name a zone"),
        ({"start": 7}, "reservation: start: must be a time with a zone"),
        ({"until": "1h"}, "reservation: until: unknown key"),
        ({"bundles": [{"gpu": 1.5}]}, "reservation: bundles[0].gpu: must be a whole number or below 1"),
    ],
)
def test_reservations_that_are_none(keys: dict[str, object], reason: str) -> None:
    good: dict[str, object] = {"name": "r", "owner": {"share": "a"}, "pool": "p", "amounts": {"gpu": 4}}
    with pytest.raises(ConfigError) as error:
        reservation_from_keys(good | keys, 0)
    assert str(error.value).startswith(reason)


OVERRIDE: dict[str, object] = {
    "share": "c",
    "pool": "p",
    "amounts": {"gpu": 2},
    "until": "2h",
    "reason": "launch",
    "authority": "head-of-compute",
}


def test_an_override() -> None:
    assert override_from_keys(OVERRIDE, origin_ms=1_000, now_ms=2_000, name="o1") == Override(
        "o1", {"gpu": 2_000}, 2_000, 7_201_000, "launch", "head-of-compute", share="c", pool="p"
    )


def test_an_override_that_lasts_so_long_from_its_start() -> None:
    keys = OVERRIDE | {"until": None, "start": "1h", "for": "30m"}
    override = override_from_keys(keys, origin_ms=1_000, now_ms=2_000, name="o1")
    assert (override.start_ms, override.until_ms) == (3_601_000, 5_401_000)


def test_an_override_without_authority_is_recorded() -> None:
    keys: dict[str, object] = {
        "name": "mine",
        "user": "ana",
        "amounts": {"gpu": 1},
        "until": "1h",
        "reason": "x",
        "authority": None,
    }
    override = override_from_keys(keys, 0)
    assert (override.override, override.user, override.pool, override.authority) == ("mine", "ana", None, None)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"user": "ana"}, "override: must name either a share or a user"),
        ({"share": None}, "override: must name either a share or a user"),
        ({"reason": ""}, "override: reason: must have at least 1, has 0"),
        ({"until": "0s"}, "override: until: must be later than the start"),
        ({"until": None}, "override: until: is required, or `for`"),
        ({"for": "1h"}, "override: for: and until cannot both be given"),
        ({"until": None, "for": "0s"}, "override: for: must be longer than 0"),
        (
            {"authority": "head-of-comptue"},
            "override: authority: head-of-comptue is no authority here (did you mean head-of-compute?)",
        ),
        ({"amounts": {"gpu": "0"}}, "override: amounts: must be more than 0"),
    ],
)
def test_overrides_that_are_none(keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        override_from_keys(OVERRIDE | keys, 0, name="o", authorities=("head-of-compute",))
    assert str(error.value).startswith(reason)
