"""The NVML child and its parent, with the real bindings over the fake library."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fake_node import QUICK, FakeNode, Watched, until

Read = Callable[..., Watched]


def test_eight_gpus_are_read_with_their_figures(node: FakeNode, read: Read) -> None:
    node.gpu(2, mem_used=40_000_000_000, util=97, temperature=63, power=512_000, bus_id="00000000:3B:00.0")

    poll = read().until(lambda one: one.status == "ok")

    assert [(gpu.index, gpu.uuid, gpu.name) for gpu in poll.gpus] == [
        (i, f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(8)
    ]
    busy, idle = poll.gpus[2], poll.gpus[3]
    assert (busy.memory_total, busy.memory_used, busy.util) == (85_520_809_984, 40_000_000_000, 97)
    assert (busy.temperature, busy.power_mw, busy.bus_id) == (63, 512_000, "0000:3b:00.0")
    assert (idle.memory_used, idle.util, idle.recovery, idle.ecc_dram, idle.remap_failed) == (0, 0, 0, 0, 0)


def test_a_lost_gpu_is_told_and_not_asked_anything_more(node: FakeNode, read: Read) -> None:
    reader = read()
    reader.until(lambda one: one.status == "ok")
    node.gpu(3, lost=True)

    poll = reader.until(lambda one: any(gpu.lost for gpu in one.gpus))
    before = len(node.calls())
    reader.until(lambda one: one.status == "ok")

    assert [gpu.index for gpu in poll.gpus if gpu.lost] == [3]
    assert {call for call, gpu in node.calls()[before:] if gpu == 3} <= {
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetSupportedEventTypes",
    }


def test_a_torn_state_of_one_gpu_leaves_the_others_readable(node: FakeNode, read: Read) -> None:
    node.gpu(0, errors={"*": 999})

    poll = read().until(lambda one: one.status == "ok")

    assert (poll.gpus[0].error, poll.gpus[0].readable) == (999, False)
    assert all(gpu.readable for gpu in poll.gpus[1:])


def test_reset_required_and_the_recovery_action(node: FakeNode, read: Read) -> None:
    node.gpu(1, errors={"nvmlDeviceGetPowerUsage": 16})
    node.gpu(4, recovery_action=2)

    poll = read().until(lambda one: one.status == "ok")

    assert [gpu.index for gpu in poll.gpus if gpu.reset_required] == [1]
    assert [gpu.recovery for gpu in poll.gpus] == [0, 0, 0, 0, 2, 0, 0, 0]


def test_what_a_card_does_not_have_is_none_and_is_asked_once(node: FakeNode, read: Read) -> None:
    node.set(defaults={"recovery_action": None, "mem_total": None, "util": None})
    node.gpu(0, errors={"nvmlDeviceGetTemperatureV": 13})
    reader = read()

    poll = reader.until(lambda one: one.status == "ok")
    reader.until(lambda one: one.status == "ok")
    reader.until(lambda one: one.status == "ok")

    first = poll.gpus[0]
    assert (first.recovery, first.memory_total, first.util, first.error) == (None, None, None, None)
    assert first.temperature == 41  # by the older call
    calls = node.calls()
    assert calls.count(("nvmlDeviceGetTemperatureV", 0)) == 1
    assert calls.count(("nvmlDeviceGetMemoryInfo", 5)) == 1
    assert calls.count(("nvmlDeviceGetTemperature", 0)) > 1


def test_indices_move_when_the_driver_enumerates_anew(node: FakeNode, read: Read) -> None:
    reader = read()
    reader.until(lambda one: one.status == "ok")
    node.gpu(5, absent=True)

    poll = reader.until(lambda one: len(one.gpus) == 7)

    assert [gpu.uuid for gpu in poll.gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-6", "GPU-7"]


def test_an_xid_event_comes_with_the_very_next_poll(node: FakeNode, read: Read) -> None:
    reader = read(replace(QUICK, interval=3600.0))  # only the event can cause another poll
    reader.until(lambda one: one.status == "ok")
    until(lambda: node.calls().count(("nvmlDeviceRegisterEvents", 7)), "the registration")
    until(lambda: ("nvmlEventSetWait_v2", -1) in node.calls(), "the wait for events")
    node.xid(6, 79)

    poll = reader.until(lambda one: one.xids)

    assert [(xid.xid, xid.uuid, xid.index) for xid in poll.xids] == [(79, "GPU-6", 6)]


def test_events_go_on_without_the_gpu_that_ends_every_wait(node: FakeNode, read: Read) -> None:
    reader = read()
    until(lambda: ("nvmlEventSetWait_v2", -1) in node.calls(), "the wait for events")
    node.gpu(3, lost=True, lost_on_wait=True)
    sets = node.calls().count(("nvmlEventSetCreate", -1))
    until(lambda: node.calls().count(("nvmlEventSetCreate", -1)) > sets, "a new set")
    waits = node.calls().count(("nvmlEventSetWait_v2", -1))
    until(lambda: node.calls().count(("nvmlEventSetWait_v2", -1)) > waits, "a wait on the new set")
    node.xid(1, 48)

    assert reader.until(lambda one: one.xids).xids[0].uuid == "GPU-1"


def test_a_hung_call_is_named_and_a_new_child_goes_on(node: FakeNode, read: Read) -> None:
    reader = read()
    reader.until(lambda one: one.status == "ok")
    node.gpu(4, hang={"nvmlDeviceGetTemperatureV": 600})

    hung = reader.until(lambda one: one.status == "hung")
    again = reader.until(lambda one: one.status == "hung")
    node.gpu(4, hang={})
    well = reader.until(lambda one: one.status == "ok")

    assert (hung.call, hung.gpu, hung.dead_sleep, hung.hangs) == ("nvmlDeviceGetTemperatureV", 4, False, 1)
    assert again.hangs == 2
    assert len(well.gpus) == 8


def test_a_call_stuck_in_the_kernel_is_known_by_its_state(node: FakeNode, read: Read) -> None:
    node.gpu(2, hang={"nvmlDeviceGetMemoryInfo": 600}, hang_dstate=True)

    hung = read(replace(QUICK, first=3.0)).until(lambda one: one.status == "hung")

    assert (hung.call, hung.gpu, hung.dead_sleep) == ("nvmlDeviceGetMemoryInfo", 2, True)


def test_a_library_that_exits_in_a_call_we_can_do_without_is_not_asked_it_again(node: FakeNode, read: Read) -> None:
    node.gpu(1, exit={"nvmlDeviceGetUtilizationRates": 3})
    reader = read()

    died = reader.until(lambda one: one.status == "error")
    well = reader.until(lambda one: one.status == "ok")

    assert (died.call, died.gpu) == ("nvmlDeviceGetUtilizationRates", 1)
    assert "status 3" in died.text
    assert well.gpus[1].util is None and well.gpus[1].temperature == 41


def test_no_library_is_absent(read: Read, tmp_path: Path) -> None:
    poll = read(env={"LD_LIBRARY_PATH": str(tmp_path)}).until(lambda one: True)

    assert (poll.status, poll.code, poll.gpus) == ("absent", 12, ())


def test_init_errors_keep_their_code_and_clear_by_themselves(node: FakeNode, read: Read) -> None:
    reader = read()
    reader.until(lambda one: one.status == "ok")
    for code in (9, 18, 999):
        node.set(init_error=code)
        other = read()
        failed = other.until(lambda one: True)
        assert (failed.status, failed.code, failed.call) == ("error", code, "nvmlInit")
        other.reader.stop()
    last = read()
    last.until(lambda one: one.status == "error")
    node.set(init_error=0)

    assert len(last.until(lambda one: one.status == "ok").gpus) == 8


def test_stopping_leaves_no_child(node: FakeNode, read: Read) -> None:
    reader = read()
    reader.until(lambda one: one.status == "ok")
    assert len(reader.reader.children()) == 1

    reader.reader.stop()

    assert reader.reader.children() == []
