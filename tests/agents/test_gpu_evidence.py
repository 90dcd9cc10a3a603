"""Readings → evidence: when a latch closes, how bad it is, and when it opens again. Pure: time is a number."""

from dataclasses import replace
from typing import Any

import pytest
from raysched_agent.checks import after_host, after_poll
from raysched_agent.latches import Memory, after_boot, cleared, evidence, from_plain, to_plain
from raysched_agent.readings import Disk, Gpu, HostReading, Snapshot, Xid, gpu_model, normal_bus_id
from raysched_agent.rules import BadOverride, Table, table_with

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
PCI = frozenset(f"0000:{i:02x}:00.0" for i in range(8))


def healthy(index: int, **changes: Any) -> Gpu:
    known = Gpu(index, f"GPU-{index}", "NVIDIA H100 80GB HBM3", f"0000:{index:02x}:00.0", 80, 0, 0, 40, 100, read=True)
    clean = {"recovery": 0, "ecc_dram": 0, "ecc_sram": 0, "remap_pending": 0, "remap_failed": 0}
    return replace(known, **(clean | changes))


class Story:
    """A node of eight GPUs whose memory is carried from poll to poll."""

    def __init__(self, table: Table = Table(), gpus: int = 8) -> None:
        self.memory, self.table, self.now, self.gpus = Memory("boot-1"), table, 0, gpus
        self.host_gpus = PCI

    def poll(self, *changed: Gpu, after: int = 5 * SECOND, without: int | None = None) -> "Story":
        """One good poll; `changed` replace the healthy GPU at their index."""
        by_index = {i: healthy(i) for i in range(self.gpus) if i != without} | {gpu.index: gpu for gpu in changed}
        return self.say(Snapshot("ok", tuple(by_index[i] for i in sorted(by_index))), after)

    def xid(self, number: int, index: int = 3, after: int = 5 * SECOND, recovery: int | None = 0) -> "Story":
        self.now += after
        gpus = tuple(healthy(i, recovery=recovery) for i in range(self.gpus))
        return self.say(Snapshot("ok", gpus, (Xid(number, f"GPU-{index}", index, self.now),)), 0)

    def say(self, poll: Snapshot, after: int = 5 * SECOND) -> "Story":
        self.now += after
        self.memory = after_poll(self.memory, poll, 8, self.host_gpus, self.table, self.now)
        return self

    def quiet(self, for_ms: int, **changes: Any) -> "Story":
        """Clean polls every five seconds."""
        for _ in range(for_ms // (5 * SECOND)):
            self.poll(*(healthy(i, **changes) for i in range(self.gpus) if changes))
        return self

    def restart(self, boot_id: str = "boot-1") -> "Story":
        self.memory = after_boot(from_plain(to_plain(self.memory)), boot_id)
        return self

    @property
    def open(self) -> dict[str, str]:
        return {one["signal"]: one["class"] for one in evidence(self.memory)}

    def detail(self, signal: str) -> str:
        return next(str(one["detail"]) for one in evidence(self.memory) if one["signal"] == signal)


def test_a_healthy_node_has_no_evidence() -> None:
    assert Story().quiet(HOUR // 60).open == {}


def test_a_lost_gpu_stays_lost_until_a_new_boot() -> None:
    story = Story().poll().poll(Gpu(3, lost=True, error=15, error_call="nvmlDeviceGetHandleByIndex"))
    assert story.open == {"gpu_lost": "FATAL"}
    assert "GPU 3 (GPU-3, 0000:03:00.0)" in story.detail("gpu_lost")

    assert story.quiet(HOUR).open == {"gpu_lost": "FATAL"}
    assert story.restart().quiet(MINUTE).open == {"gpu_lost": "FATAL"}
    assert story.restart("boot-2").poll().open == {}


def test_a_lost_gpu_is_well_again_when_the_operator_says_so() -> None:
    story = Story().poll().poll(healthy(3, lost=True)).poll()
    story.memory = cleared(story.memory, "gpu_lost", "GPU-3")
    assert story.poll().open == {}


def test_reset_required_opens_after_thirty_clean_seconds() -> None:
    story = Story().poll(healthy(2, reset_required=True))
    assert story.open == {"reset_required": "FATAL"}
    assert story.quiet(30 * SECOND).open == {"reset_required": "FATAL"}
    assert story.quiet(5 * SECOND).open == {}


@pytest.mark.parametrize(
    ("action", "cls"), [(1, "FATAL"), (2, "FATAL"), (3, "DEGRADED"), (5, "DEGRADED"), (7, "FATAL")]
)
def test_the_drivers_own_verdict(action: int, cls: str) -> None:
    assert Story().poll(healthy(0, recovery=action)).open == {"recovery_action": cls}


def test_a_verdict_that_comes_and_goes_keeps_its_first_time() -> None:
    story = Story().poll(healthy(0, recovery=1)).quiet(20 * SECOND).poll(healthy(0, recovery=1))
    assert [one["since_ms"] for one in evidence(story.memory)] == [5 * SECOND]


def test_a_missing_gpu_is_named_after_two_polls() -> None:
    story = Story().poll().poll(without=5)
    assert story.open == {}
    story.poll(without=5)
    assert story.open == {"gpu_count": "FATAL"}
    assert story.detail("gpu_count") == "7 GPUs visible, the node has 8; missing: GPU 5 (GPU-5, 0000:05:00.0)"
    assert story.quiet(35 * SECOND).open == {}


def test_one_short_poll_between_full_ones_is_nothing() -> None:
    assert Story().poll().poll(without=5).poll().poll(without=5).open == {}


def test_no_gpu_at_all_on_a_gpu_node_is_fatal() -> None:
    story = Story(gpus=0).poll().poll()
    assert story.open == {"gpu_count": "FATAL"}


def test_a_hang_in_the_kernel_is_fatal_at_once_and_over_with_one_full_poll() -> None:
    story = Story().poll().say(Snapshot("hung", call="nvmlDeviceGetTemperatureV", gpu=4, dead_sleep=True, hangs=1))
    assert story.open == {"nvml_hung": "FATAL"}
    assert story.detail("nvml_hung").startswith("nvmlDeviceGetTemperatureV of GPU 4 does not return, in the kernel")
    assert story.poll().open == {}


def test_a_hang_outside_the_kernel_is_unknown_first_and_fatal_the_second_time() -> None:
    story = Story().poll().say(Snapshot("hung", call="nvmlInit", hangs=1))
    assert story.open == {"nvml_hung": "UNKNOWN"}
    assert story.say(Snapshot("hung", call="nvmlInit", hangs=2)).open == {"nvml_hung": "FATAL"}


def test_while_nvml_hangs_nothing_else_is_said_to_be_over() -> None:
    story = Story().poll(healthy(0, recovery=1))
    for hang in range(1, 20):
        story.say(Snapshot("hung", call="nvmlInit", hangs=hang))
    assert story.open == {"nvml_hung": "FATAL", "recovery_action": "FATAL"}


@pytest.mark.parametrize("code", [9, 18])
def test_a_driver_that_is_not_there_is_unknown_then_fatal(code: int) -> None:
    story = Story().say(Snapshot("error", code=code, call="nvmlInit"))
    assert story.open == {"nvml_error": "UNKNOWN"}
    assert story.say(Snapshot("error", code=code, call="nvmlInit"), after=MINUTE).open == {"nvml_error": "FATAL"}


def test_an_unknown_error_is_fatal_only_when_the_host_misses_cards_too() -> None:
    error = Snapshot("error", code=999, call="nvmlInit")
    assert Story().say(error).say(error, after=10 * MINUTE).open == {"nvml_error": "UNKNOWN"}

    story = Story()
    story.host_gpus = PCI - {"0000:03:00.0"}
    assert story.say(error).say(error, after=MINUTE).open == {"nvml_error": "FATAL"}


def test_no_library_is_no_evidence_on_a_node_that_never_had_a_card() -> None:
    story, absent = Story(), Snapshot("absent", code=12, call="nvmlInit")
    story.host_gpus = frozenset()
    assert story.say(absent).open == {}


def test_a_node_without_gpus_has_no_evidence_whatever_nvml_does() -> None:
    memory = Memory("boot-1")
    for poll in (Snapshot("error", code=9, call="nvmlInit"), Snapshot("hung", call="nvmlInit", dead_sleep=True)):
        memory = after_poll(memory, poll, 0, frozenset(), Table(), SECOND)
    assert evidence(memory) == []


def test_no_library_on_a_node_whose_cards_the_bus_shows_is_no_cpu_node() -> None:
    assert Story().say(Snapshot("absent", code=12, call="nvmlInit")).open == {"nvml_error": "UNKNOWN"}


def test_dram_errors_count_from_the_first_look_of_this_boot() -> None:
    story = Story().poll(healthy(1, ecc_dram=4)).poll(healthy(1, ecc_dram=4))
    assert story.open == {}
    assert story.poll(healthy(1, ecc_dram=6)).open == {"ecc_dram": "DEGRADED"}
    assert "2 uncorrectable DRAM errors" in story.detail("ecc_dram")


def test_dram_errors_without_the_drivers_word_count_in_full() -> None:
    story = Story().poll(healthy(1, recovery=None)).poll(healthy(1, ecc_dram=1, recovery=None))
    assert story.open == {"ecc_dram": "FATAL"}


def test_sram_errors_are_fatal_until_the_counter_shows_a_reset() -> None:
    story = Story().poll().poll(healthy(1, ecc_sram=1))
    assert story.open == {"ecc_sram": "FATAL"}
    assert story.quiet(HOUR, ecc_sram=1).open == {"ecc_sram": "FATAL"}
    assert story.poll().open == {}


def test_errors_between_a_boot_and_the_first_look_are_not_lost() -> None:
    story = Story().poll().restart("boot-2").poll(healthy(1, ecc_sram=1))
    assert story.open == {"ecc_sram": "FATAL"}


def test_a_pending_remap_degrades_and_a_failed_one_is_for_the_operator() -> None:
    story = Story().poll(healthy(6, remap_pending=1, remap_failed=1))
    assert story.open == {"row_remap_failed": "FATAL", "row_remap_pending": "DEGRADED"}
    assert story.restart("boot-2").quiet(HOUR).open == {"row_remap_failed": "FATAL"}


def test_one_bad_gpu_does_not_hide_behind_another() -> None:
    story = Story().poll(healthy(1, recovery=1), healthy(2, recovery=1))
    assert [(one["gpu"], one["class"]) for one in evidence(story.memory)] == [(1, "FATAL"), (2, "FATAL")]


# ── XID events ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_off_the_bus_is_fatal_and_stays_without_the_drivers_word() -> None:
    story = Story().xid(79, recovery=None)
    assert story.open == {"xid_79": "FATAL"}
    assert story.quiet(HOUR, recovery=None).restart().quiet(MINUTE, recovery=None).open == {"xid_79": "FATAL"}
    assert story.restart("boot-2").poll().open == {}


def test_nothing_to_do_held_for_thirty_seconds_clears_an_xid() -> None:
    story = Story().xid(79)
    assert story.quiet(25 * SECOND).open == {"xid_79": "FATAL"}
    assert story.quiet(5 * SECOND).open == {}


def test_cleanup_after_another_error_never_counts() -> None:
    story = Story()
    for _ in range(100):
        story.xid(45, after=SECOND)
    assert story.open == {}


def test_a_number_nobody_knows_is_degraded_not_fatal() -> None:
    story = Story().xid(9999, recovery=None)
    assert story.open == {"xid_9999": "DEGRADED"}
    assert "not in the table" in story.detail("xid_9999")


def test_double_bit_ecc_follows_the_drivers_verdict() -> None:
    assert Story().xid(48, recovery=None).open == {"xid_48": "FATAL"}
    assert Story().xid(48, recovery=0).open == {"xid_48": "DEGRADED"}
    assert Story().xid(48, recovery=1).open["xid_48"] == "FATAL"


def test_an_application_fault_degrades_on_its_second_burst_on_one_gpu_alone() -> None:
    story = Story().xid(31, recovery=None)
    for _ in range(10):
        story.xid(31, after=SECOND, recovery=None)  # one storm counts once
    assert story.open == {"xid_31": "INFO"}
    assert story.xid(31, after=HOUR, recovery=None).open == {"xid_31": "DEGRADED"}


def test_an_application_fault_on_its_neighbours_too_is_the_application() -> None:
    story = Story().xid(31, 3, recovery=None).xid(31, 4, recovery=None).xid(31, 3, after=HOUR, recovery=None)
    assert story.open == {"xid_31": "INFO"}


def test_a_second_nvlink_error_in_a_day_is_fatal_and_one_a_day_later_is_not() -> None:
    assert Story().xid(74, recovery=None).xid(74, after=HOUR, recovery=None).open == {"xid_74": "FATAL"}
    assert Story().xid(74, recovery=None).xid(74, after=DAY + HOUR, recovery=None).open == {"xid_74": "DEGRADED"}


def test_a_mild_xid_is_forgotten_after_ten_quiet_minutes() -> None:
    story = Story().xid(63, recovery=None)
    assert story.quiet(9 * MINUTE, recovery=None).open == {"xid_63": "DEGRADED"}
    assert story.quiet(MINUTE, recovery=None).open == {}


def test_a_later_mild_event_does_not_make_a_bad_gpu_better() -> None:
    assert Story().xid(79, recovery=None).xid(43, recovery=None).open == {"xid_43": "INFO", "xid_79": "FATAL"}


def test_an_xid_while_nvml_hangs_is_not_missed() -> None:
    story = Story().poll().say(Snapshot("hung", xids=(Xid(79, "GPU-3", 3, 9 * SECOND),), call="nvmlInit", hangs=1))
    assert story.open == {"nvml_hung": "UNKNOWN", "xid_79": "FATAL"}


# ── host ──────────────────────────────────────────────────────────────────────────────────────────────────────────

GIB = 2**30


def look(memory: Memory, now: int, *, free: int = 500 * GIB, available: int = 500 * GIB, **disk: Any) -> Memory:
    disks = (Disk("/scratch", free, 1000 * GIB, **disk),)
    return after_host(memory, HostReading(0.0, 1000 * GIB, available, disks), Table(), now)


def signals(memory: Memory) -> dict[str, str]:
    return {one["signal"]: one["class"] for one in evidence(memory)}


def test_a_disk_that_fills_up_degrades_then_fails_and_is_well_again_with_a_margin() -> None:
    memory = look(Memory("b"), 0, free=19 * GIB)
    assert signals(memory) == {"disk_low": "DEGRADED"}
    memory = look(memory, 1, free=1 * GIB)
    assert signals(memory) == {"disk_full": "FATAL"}
    memory = look(memory, 2, free=5 * GIB)
    assert signals(memory) == {"disk_full": "FATAL"}
    assert signals(look(memory, 3, free=500 * GIB)) == {}


def test_a_small_share_of_a_large_disk_is_still_room() -> None:
    assert signals(look(Memory("b"), 0, free=40 * GIB)) == {}


def test_a_disk_that_became_read_only_or_does_not_answer_is_fatal() -> None:
    assert signals(look(Memory("b"), 0, readonly=True)) == {"disk_readonly": "FATAL"}
    memory = look(Memory("b"), 0, probe_ms=11_000)
    assert signals(memory) == {"disk_stuck": "FATAL"}
    assert signals(look(look(memory, 10), 31_000)) == {}


def test_short_memory_degrades_until_a_minute_of_room() -> None:
    memory = look(Memory("b"), 0, available=20 * GIB)
    assert signals(memory) == {"memory_low": "DEGRADED"}
    memory = look(memory, 1_000)
    assert signals(look(memory, 60_000)) == {"memory_low": "DEGRADED"}
    assert signals(look(memory, 61_000)) == {}


# ── the table ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_operator_can_change_a_class_a_clear_time_and_an_xid() -> None:
    table = table_with(
        {"row_remap_pending": {"class": "FATAL"}, "reset_required": {"hold_ms": 0}, "xid_79": {"class": "INFO"}}
    )

    assert Story(table).poll(healthy(0, remap_pending=1)).open == {"row_remap_pending": "FATAL"}
    assert Story(table).poll(healthy(0, reset_required=True)).poll().open == {}
    assert Story(table).xid(79, recovery=None).open == {"xid_79": "INFO"}


def test_an_ignored_signal_is_silent_also_where_it_was_latched_before() -> None:
    story = Story().poll().poll(healthy(3, lost=True))
    story.table = table_with({"gpu_lost": {"class": "IGNORE"}})
    assert story.poll().open == {}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ({"gpu_lots": {"class": "INFO"}}, "gpu_lots: no such signal .did you mean gpu_lost.."),
        ({"gpu_lost": {"class": "BAD"}}, "gpu_lost.class: 'BAD' is none of FATAL"),
        ({"gpu_lost": {"hold": 1}}, "gpu_lost.hold: no such key .did you mean hold_ms.."),
        ({"gpu_lost": {"hold_ms": -1}}, "gpu_lost.hold_ms: -1 is not a whole number"),
        ({"thresholds": {"disk_low": "x"}}, "thresholds.disk_low: 'x' is not a number"),
    ],
)
def test_a_wrong_override_says_what_is_wrong(override: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(BadOverride, match=message):
        table_with(override)


def test_one_spelling_of_bus_ids_and_short_model_names() -> None:
    assert {normal_bus_id(i) for i in ("00000000:3B:00.0", "0000:3b:00.0", "0000:3b:00")} == {"0000:3b:00.0"}
    names = [
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-80GB",
        "Tesla V100-SXM2-32GB",
        "NVIDIA GeForce RTX 4090",
    ]
    assert [gpu_model(name) for name in names] == ["H100", "A100", "V100", "RTX4090"]
