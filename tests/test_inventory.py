"""Who is there: identities that are joined, devices and processes that come and go, and what follows from a frame's readings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import GIB, START, gpu, trace

from detector.frame import Device, Fault, Frame, Job, Process, pack
from detector.inventory import FORGET_DEVICE_SECONDS, Host, Inventory
from detector.window import Subject

DAY = 86_400.0
BUS = "00000000:3B:00.0"
PCI = f"PCI-{BUS}"


def taken(frames: Iterable[Frame]) -> Inventory:
    inventory = Inventory(("power_watts",))
    for frame in frames:
        inventory.take(frame)
    return inventory


def host_of(inventory: Inventory) -> Host:
    (host,) = inventory.hosts.values()
    return host


def uuids(inventory: Inventory) -> list[str]:
    return sorted(host_of(inventory).devices)


def subject(inventory: Inventory, uuid: str = "GPU-0") -> Subject:
    return inventory.subject("device", host_of(inventory).devices[uuid])


def newest(inventory: Inventory, metric: str, uuid: str = "GPU-0") -> float:
    """The newest reading of a device, NaN where there never was one."""
    return float(inventory.devices.newest[inventory.devices.column(metric), host_of(inventory).devices[uuid]])


def frame_of(at: float, *devices: Device, **readings: float) -> Frame:
    """A frame that says the same of each device."""
    metrics, values = pack([readings] * len(devices))
    return Frame("node-a", START + at, devices, metrics, values)


# -- identities ---------------------------------------------------------------------------------------------------------------

FULL = Device("GPU-a", index=0, pci_bus_id=BUS)
BY_BUS = Device(PCI, index=0, pci_bus_id=BUS)
BY_INDEX = Device("INDEX-0", index=0)
UNKNOWN = Device("DEVICE-0")


@pytest.mark.parametrize(
    ("seen", "uuid"),
    [
        ([BY_INDEX, FULL], "GPU-a"),
        ([BY_BUS, FULL], "GPU-a"),
        ([Device(PCI, pci_bus_id=BUS), FULL], "GPU-a"),
        ([BY_INDEX, BY_BUS], PCI),
        ([BY_INDEX, BY_BUS, FULL], "GPU-a"),
        ([BY_INDEX, BY_BUS, FULL, BY_INDEX], "GPU-a"),
        ([BY_INDEX, Device(PCI, pci_bus_id=BUS), FULL], "GPU-a"),
        ([BY_INDEX, FULL, BY_INDEX, FULL], "GPU-a"),
        ([FULL, BY_BUS], "GPU-a"),
        ([FULL, BY_INDEX], "GPU-a"),
        ([BY_BUS, BY_INDEX], PCI),
        ([UNKNOWN, FULL], "GPU-a"),
    ],
    ids=lambda seen: " ".join(device.uuid for device in seen) if isinstance(seen, list) else seen,
)
def test_a_device_has_one_identity_the_best_that_is_known(seen: Sequence[Device], uuid: str) -> None:
    """Whoever names it first, by whatever name, it is one device with one history."""
    inventory = taken(frame_of(n, device, power_watts=100.0 + n) for n, device in enumerate(seen))

    assert [uuid] == uuids(inventory)
    assert 100.0 + len(seen) - 1 == newest(inventory, "power_watts", uuid)
    assert [uuid] * len(seen) == [inventory.resolve(host_of(inventory), device.uuid) for device in seen]


def test_a_joined_device_keeps_its_row_and_learns() -> None:
    """What was known under the weaker name is kept, what is new is added."""
    inventory = taken([frame_of(0, Device("INDEX-0", index=0, name="A100"), power_watts=100.0), frame_of(1, FULL)])

    assert Device("GPU-a", index=0, name="A100", pci_bus_id=BUS) == subject(inventory, "GPU-a").device
    assert 100.0 == newest(inventory, "power_watts", "GPU-a")
    assert 1 == len(inventory.devices.rows("node-a"))


def test_an_index_that_moves_is_no_identity() -> None:
    """GPU 0 is lost, its neighbour takes its number: they stay two devices."""
    a, b = Device("GPU-a", index=0), Device("GPU-b", index=1)
    inventory = taken([frame_of(0, a, b, power_watts=1.0), frame_of(1, replace(b, index=0), power_watts=1.0)])

    assert ["GPU-a", "GPU-b"] == uuids(inventory)
    assert subject(inventory, "GPU-b").device == replace(b, index=0)


def test_gpus_on_other_buses_are_other_gpus() -> None:
    """Each is joined with its own bus address."""
    bus = ["00000000:3B:00.0", "00000000:5E:00.0"]
    first = frame_of(0, *(Device(f"PCI-{b}", pci_bus_id=b) for b in bus))
    second = frame_of(1, *(Device(f"GPU-{n}", index=n, pci_bus_id=b) for n, b in enumerate(bus)))

    assert ["GPU-0", "GPU-1"] == uuids(taken([first, second]))


def test_a_slot_is_the_board_that_is_in_it_now() -> None:
    """The board was replaced: what names the bus or the index means the new one."""
    old, new = FULL, replace(FULL, uuid="GPU-new")
    inventory = taken([frame_of(0, old, power_watts=1.0), frame_of(5, new, power_watts=2.0)])

    assert ["GPU-new", "GPU-new"] == [inventory.resolve(host_of(inventory), uuid) for uuid in (PCI, "INDEX-0")]


def test_a_mig_instance_is_not_its_gpu() -> None:
    """It has the index and the bus of its parent, and is another device."""
    inventory = taken([frame_of(0, FULL, Device("MIG-1", index=0, pci_bus_id=BUS, parent="GPU-a"))])

    assert ["GPU-a", "MIG-1"] == uuids(inventory)


def test_hosts_do_not_share_devices() -> None:
    """The same uuid on two hosts (a moved disk image, a mistake) is two devices."""
    inventory = Inventory(())
    for host in ("node-a", "node-b"):
        inventory.take(replace(frame_of(0, FULL), host=host))

    assert [["GPU-a"], ["GPU-a"]] == [list(host.devices) for host in inventory.hosts.values()]
    assert 1 == len(inventory.devices.rows("node-a")) == len(inventory.devices.rows("node-b"))


def test_facts_that_are_left_out_are_kept() -> None:
    """Static facts may stand in the first frame only; what is new goes over what was."""
    inventory = taken([frame_of(0, replace(FULL, power_state="suspended", name="A100")), frame_of(1, Device("GPU-a"))])
    assert replace(FULL, power_state="suspended", name="A100") == subject(inventory, "GPU-a").device

    inventory.take(frame_of(2, Device("GPU-a", power_state="active")))
    assert replace(FULL, power_state="active", name="A100") == subject(inventory, "GPU-a").device


# -- coming and going -----------------------------------------------------------------------------------------------------------


def test_a_device_is_visible_while_frames_list_it() -> None:
    """Not listed beside others: not visible. A frame that lists none, or no frame at all, says nothing."""
    inventory = taken([frame_of(0, gpu(0), gpu(1), power_watts=1.0)])
    assert (1.0, 1.0) == (newest(inventory, "device_visible"), newest(inventory, "device_visible", "GPU-1"))

    inventory.take(frame_of(1, gpu(0), power_watts=1.0))
    assert (1.0, 0.0) == (newest(inventory, "device_visible"), newest(inventory, "device_visible", "GPU-1"))

    inventory.take(Frame("node-a", START + 2, faults=(Fault("hung"),)))
    assert (1.0, 0.0) == (newest(inventory, "device_visible"), newest(inventory, "device_visible", "GPU-1"))

    inventory.take(frame_of(3, gpu(1), gpu(0), power_watts=1.0))
    assert (1.0, 1.0) == (newest(inventory, "device_visible"), newest(inventory, "device_visible", "GPU-1"))


def test_that_a_device_comes_or_goes_is_news() -> None:
    """So is a fault; another order, another name or the same again is not."""
    inventory = Inventory(())
    a, b = gpu(0), gpu(1)
    lists = [(a, b), (a, b), (b, a), (b, replace(a, name="H100")), (b,), (b,), (a, b), (a, b), (a, b)]
    frames = [frame_of(n, *devices, power_watts=1.0) for n, devices in enumerate(lists)]
    frames[7] = replace(frames[7], faults=(Fault("gpu_lost", "GPU-1"),))

    assert [True, False, False, False, True, False, True, True, True] == [inventory.take(frame)[1] for frame in frames]


@pytest.mark.parametrize(("seconds", "known"), [(FORGET_DEVICE_SECONDS - 600, 2), (FORGET_DEVICE_SECONDS + 1_800, 1)])
def test_a_device_is_forgotten_after_a_day(seconds: float, known: int) -> None:
    """In which frames list others and not it."""
    frames = trace(seconds=seconds, step=600, devices=2, listed=lambda n, s: n == 0 or s == 0)

    assert known == len(uuids(taken(frames)))


@pytest.mark.parametrize("readings", [{}, {"power_watts": math.nan}], ids=["no metric", "no reading"])
def test_a_device_without_readings_is_not_forgotten_sooner(readings: dict[str, float]) -> None:
    """A sleeping laptop GPU has none, and is there."""
    inventory = taken([frame_of(0, gpu(0), gpu(1), **readings), frame_of(1, gpu(0), power_watts=1.0)])

    assert ["GPU-0", "GPU-1"] == uuids(inventory)


def test_a_device_that_only_a_fault_tells_of_is_there() -> None:
    """Lost before anybody could list it: it has a row, and its fault is said until the fault is gone."""
    lost = Fault("gpu_lost", "GPU-1")
    inventory = taken(replace(frame_of(n, gpu(0), power_watts=1.0), faults=(lost,)) for n in range(3))

    assert ["GPU-0", "GPU-1"] == uuids(inventory)
    assert (lost,) == subject(inventory, "GPU-1").faults


def test_a_forgotten_device_leaves_nothing() -> None:
    """No row, no alias, no subject, no reason, no process; and when it returns it is new."""
    old = replace(FULL, uuid="GPU-old", index=7)
    first = replace(frame_of(0, gpu(), old, power_watts=1.0), unavailable={"GPU-old": {"ecc_mode": "not_supported"}},
                    processes={"GPU-old": (Process(1),)})  # fmt: skip
    inventory = taken([first, *(replace(frame_of(600 * n, gpu()), processes={"GPU-0": ()}) for n in range(1, 150))])
    host = host_of(inventory)

    assert {"GPU-0"} == set(host.devices)
    assert "GPU-old" not in {*host.aliases.values(), *host.unavailable}
    assert {} == host.processes
    assert [1, 0] == [len(inventory.devices.rows("node-a")), len(inventory.processes.rows("node-a"))]
    inventory.take(frame_of(600 * 150, gpu(), old))
    assert math.isnan(newest(inventory, "power_watts", "GPU-old"))


def test_a_device_whose_job_goes_on_elsewhere_is_forgotten_too() -> None:
    """The job's steps are no sign of life of a GPU that nobody lists."""
    first = replace(frame_of(0, gpu(0), gpu(1)), processes={f"GPU-{n}": (Process(n, job="a"),) for n in range(2)})
    frames = (replace(frame_of(600 * n, gpu(0)), jobs=(Job("a", {"job_step_total": n}),)) for n in range(1, 150))

    assert ["GPU-0"] == uuids(taken([first, *frames]))


# -- what follows from a frame --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mask", "active"),
    [
        (0x0, set()),
        (0x1, {"gpu_idle_active"}),
        (0x4, {"sw_power_cap_active"}),
        (0x8 | 0x40, {"hw_slowdown_active", "hw_thermal_active"}),
        (0x8 | 0x80, {"hw_slowdown_active", "power_brake_active"}),
        (0x20, {"sw_thermal_active"}),
        (0x2 | 0x10 | 0x100, set()),
        (math.nan, None),
    ],
)
def test_reasons_are_told_bit_by_bit(mask: float, active: set[str] | None) -> None:
    """A mask that could not be read says nothing of any bit."""
    inventory = taken([frame_of(0, gpu(), clock_event_reasons=mask)])
    flags = ("gpu_idle_active", "sw_power_cap_active", "hw_slowdown_active", "sw_thermal_active", "hw_thermal_active", "power_brake_active")

    if active is None:
        assert all(math.isnan(newest(inventory, flag)) for flag in flags)
    else:
        assert {flag: float(flag in active) for flag in flags} == {flag: newest(inventory, flag) for flag in flags}


def test_what_a_frame_says_itself_is_not_derived() -> None:
    """A source that knows the count of processes or a single bit is believed."""
    brought = {"clock_event_reasons": 0x40, "hw_thermal_active": 0.0, "process_count": 5.0}
    inventory = taken([replace(frame_of(0, gpu(), **brought), processes={"GPU-0": (Process(1),)})])

    assert (0.0, 5.0) == (newest(inventory, "hw_thermal_active"), newest(inventory, "process_count"))


@pytest.mark.parametrize(
    ("processes", "count", "memory"),
    [
        ((), 0.0, 0.0),
        ((Process(1, 2 * GIB), Process(2, 3 * GIB)), 2.0, 5 * GIB),
        ((Process(1, 2 * GIB), Process(2, None)), 2.0, math.nan),
        (None, math.nan, math.nan),
    ],
)
def test_processes_are_counted_and_summed_where_they_are_known(processes: tuple[Process, ...] | None, count: float, memory: float) -> None:
    """Not known is not none, and a sum with a hidden share is no sum."""
    inventory = taken([replace(frame_of(0, gpu(), gpu(1)), processes={"GPU-1": ()} | ({} if processes is None else {"GPU-0": processes}))])

    np.testing.assert_equal([newest(inventory, "process_count"), newest(inventory, "process_memory_known_bytes")], [count, memory])
    assert processes == subject(inventory).processes


def test_processes_named_by_a_weaker_identity_are_found() -> None:
    """The list of processes may call the device by its bus."""
    inventory = taken([frame_of(0, FULL), replace(frame_of(1, FULL), processes={PCI: (Process(7, GIB),)})])

    assert (Process(7, GIB),) == subject(inventory, "GPU-a").processes
    assert [("GPU-a", 7)] == list(host_of(inventory).processes)


@pytest.mark.parametrize("weaker", [BY_BUS, BY_INDEX])
def test_a_process_keeps_its_row_when_its_device_gets_a_better_name(weaker: Device) -> None:
    """Its history goes on."""
    devices = [weaker, weaker, FULL, FULL]
    inventory = taken(replace(frame_of(n, d), processes={d.uuid: (Process(7, n * GIB),)}) for n, d in enumerate(devices))

    assert [("GPU-a", 7)] == list(host_of(inventory).processes)
    assert START == inventory.processes.first_at[host_of(inventory).processes["GPU-a", 7]]


def test_the_steps_of_a_job_are_told_to_its_devices() -> None:
    """To those on which it runs, and to no other."""
    frame = replace(
        frame_of(0, gpu(0), gpu(1), gpu(2)),
        processes={"GPU-0": (Process(1, job="a"),), "GPU-1": (Process(2, job="b"), Process(3, job="a")), "GPU-2": (Process(4, job="b"),)},
        jobs=(Job("a", {"job_step_total": 700, "job_loss": 2.5}),),
    )
    inventory = taken([frame])

    np.testing.assert_equal([newest(inventory, "device_job_step_total", f"GPU-{n}") for n in range(3)], [700.0, 700.0, math.nan])


@pytest.mark.parametrize(("loss", "finite"), [(2.5, 1.0), (math.nan, 0.0), (math.inf, 0.0), (-math.inf, 0.0)])
def test_a_loss_that_is_not_a_number_is_said_so(loss: float, finite: float) -> None:
    """It is a value of the loss, not a missing reading."""
    inventory = taken([replace(frame_of(0, gpu()), jobs=(Job("a", {"job_loss": loss}),))])
    row, ring = host_of(inventory).jobs["a"], inventory.jobs

    assert finite == ring.newest[ring.column("job_loss_finite"), row]
    np.testing.assert_equal(ring.newest[ring.column("job_loss"), row], loss if finite else math.nan)


def test_a_job_may_say_nothing_that_is_known() -> None:
    """Or nothing at all."""
    inventory = taken([replace(frame_of(0, gpu()), jobs=(Job("a", {}), Job("b", {"accuracy": 0.9})))])

    assert {"a", "b"} == set(host_of(inventory).jobs)


# -- processes ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([1.0, 5.0, 20.0]), st.sets(st.integers(1, 5))), min_size=1, max_size=30))
def test_processes_come_and_go(steps: list[tuple[float, set[int]]]) -> None:
    """Those of the newest list are there; others at most as long as lists race."""
    inventory, at = Inventory(()), 0.0
    seen: dict[int, float] = {}
    for seconds, pids in steps:
        at += seconds
        inventory.take(replace(frame_of(at, gpu()), processes={"GPU-0": tuple(Process(pid, GIB) for pid in pids)}))
        seen |= dict.fromkeys(pids, at)
        known = {pid for _, pid in host_of(inventory).processes}
        assert pids <= known
        assert known == {pid for pid, last in seen.items() if at - last <= 30.0}
        assert len(known) == len(inventory.processes.rows("node-a")) == len(inventory.subjects["process"])


def test_processes_of_a_device_that_is_not_listed_are_left_out() -> None:
    """A name that nobody knows makes no row."""
    inventory = taken([replace(frame_of(0, gpu()), processes={"GPU-9": (Process(1),)})])

    assert {} == host_of(inventory).processes


# -- many hosts at once ---------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 3), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=8))
def test_frames_taken_together_are_as_frames_taken_one_by_one(rounds: list[list[tuple[int, float, bool]]]) -> None:
    """Of different hosts, with more or fewer devices and metrics, at the same second or not."""
    together, apart = Inventory(("power_watts",)), Inventory(("power_watts",))
    for n, three in enumerate(rounds):
        frames = []
        for host, (count, late, rich) in zip("abc", three, strict=True):
            readings = {"power_watts": 100.0 * n + count, "clock_event_reasons": 4.0} | ({"temperature_celsius": 50.0} if rich else {})
            frame = frame_of(10 * n + late, *(gpu(k) for k in range(count)), **readings)
            processes: dict[str, tuple[Process, ...]] = {"GPU-0": (Process(n, GIB),)} if rich else {}
            frames.append(replace(frame, host=host, processes=processes))
        news = [told for _, told in together.take_all(frames)]
        assert news == [apart.take(frame)[1] for frame in frames]

    for host in "abc":
        one, other = together.hosts[host], apart.hosts[host]
        assert list(one.devices) == list(other.devices)
        for uuid in one.devices:
            a, b = one.devices[uuid], other.devices[uuid]
            np.testing.assert_array_equal(together.devices.newest[:, a], apart.devices.newest[:, b])
            np.testing.assert_array_equal(together.devices.newest_at[:, a], apart.devices.newest_at[:, b])
