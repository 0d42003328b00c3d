"""The simulator: GPUs that behave, and faults that show what their rules look for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from detector.errors import ConfigError
from detector.frame import Frame, Process
from detector.metrics import METRICS
from detector.sources.simulator import FAULTS, START, Scheduled, Simulator

MIB = 1024.0 * 1024.0
GIB = 1024.0 * MIB
MISSION = ("idle_gpu", "memory_leak", "overheating", "stuck_training", "rising_double_bit_ecc", "driver_fault")


class Run:
    """Frames, and columns of them."""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames

    def between(self, start: float, end: float) -> Run:
        return Run([frame for frame in self.frames if start <= frame.at < end])

    def uuids(self) -> list[str]:
        return [device.uuid for device in self.frames[0].devices]

    def column(self, uuid: str, metric: str) -> NDArray[np.float64]:
        """A metric over the frames of the device's host, NaN where the device is not in one."""
        frames = {id(frame.devices): frame for frame in self.frames}
        rows = {same: [device.uuid for device in frame.devices].index(uuid) for same, frame in frames.items() if _has(frame, uuid)}
        k = self.frames[0].metrics.index(metric)
        return np.array([frame.values[rows[id(frame.devices)], k] if id(frame.devices) in rows else np.nan for frame in self.frames])

    def processes(self, uuid: str) -> list[tuple[Process, ...]]:
        """The process lists that were made."""
        return [frame.processes[uuid] for frame in self.frames if uuid in frame.processes]

    def job(self, reading: str, name: str) -> NDArray[np.float64]:
        return np.array([job.readings[reading] for frame in self.frames for job in frame.jobs if job.job == name])


def _has(frame: Frame, uuid: str) -> bool:
    return any(device.uuid == uuid for device in frame.devices)


def fingerprint(frame: Frame) -> tuple[object, ...]:
    """All of a frame as something that compares, NaN equal to NaN."""
    jobs = tuple((job.job, repr(sorted(job.readings.items()))) for job in frame.jobs)
    return (frame.host, frame.at, frame.devices, frame.metrics, frame.values.tobytes(), frame.processes, frame.events, frame.faults, jobs)


def fingerprints(simulator: Simulator, seconds: float) -> list[tuple[object, ...]]:
    return [fingerprint(frame) for frame in simulator.frames(seconds)]


@cache
def healthy() -> dict[str, Run]:
    """Six hours of six hosts, one of every kind, by host."""
    frames: dict[str, list[Frame]] = {}
    for frame in Simulator(gpus=8, hosts=6, seed=7, step=5.0).frames(6 * 3600):
        frames.setdefault(frame.host, []).append(frame)
    return {host: Run(of_host) for host, of_host in frames.items()}


def healthy_columns(metric: str) -> list[NDArray[np.float64]]:
    """A metric of every device that has it, over the healthy hours."""
    columns = [run.column(uuid, metric) for run in healthy().values() for uuid in run.uuids()]
    return [column for column in columns if not np.isnan(column).all()]


def test_the_same_seed_gives_the_same_frames() -> None:
    """Two simulators that were made alike cannot be told apart."""
    one, other = (fingerprints(Simulator(seed=5, hosts=2, faults="all"), 400) for _ in range(2))

    assert one == other


def test_another_seed_gives_other_frames() -> None:
    """The seed decides readings and identities."""
    one, other = (next(Simulator(seed=seed).frames()) for seed in (1, 2))

    assert one.devices != other.devices
    assert not np.array_equal(one.values, other.values, equal_nan=True)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=4))
def test_splitting_the_iteration_changes_nothing(pieces: list[int]) -> None:
    """Breaking off anywhere, in the middle of a step as well, and going on gives what one go gives."""
    simulator = Simulator(gpus=2, hosts=2, faults=["memory_leak"])
    pieced = [fingerprint(frame) for piece in pieces for frame in islice(simulator.frames(), piece)]

    whole = [fingerprint(frame) for frame in islice(Simulator(gpus=2, hosts=2, faults=["memory_leak"]).frames(), sum(pieces))]

    assert whole == pieced


def test_seconds_are_counted_from_where_the_last_call_ended() -> None:
    """`frames(seconds)` moves on by that much simulated time."""
    simulator = Simulator(gpus=1, step=2.0)
    first, second = list(simulator.frames(20)), list(simulator.frames(20))

    assert [START + 2.0 * n for n in range(20)] == [round(frame.at) for frame in (*first, *second)]


def test_every_frame_says_that_it_is_simulated() -> None:
    """Nothing simulated can be taken for real."""
    frames = list(Simulator(gpus=1, hosts=3).frames(5))

    assert {True} == {frame.simulated for frame in frames}
    assert {"sim-a", "sim-b", "sim-c"} == {frame.host for frame in frames}


def test_frames_come_a_little_late_and_never_early() -> None:
    """Sample times jitter by milliseconds, as those of a timer do."""
    late = np.array([(frame.at - START) % 1.0 for frame in islice(Simulator(gpus=1).frames(), 300)])

    assert 0.0005 < late.max() < 0.02


def test_a_frame_is_missing_now_and_then() -> None:
    """About one pass in 2,000 never comes to its end."""
    there = sum(len(run.frames) for run in healthy().values())

    assert 1 <= 6 * 6 * 720 - there <= 40


def test_every_reading_is_one_that_the_catalogue_allows() -> None:
    """No reading is outside of the range of its metric."""
    frames = list(Simulator(hosts=6, faults="all").frames(900))
    columns = [(METRICS[name], np.concatenate([frame.values[:, k] for frame in frames])) for k, name in enumerate(frames[0].metrics)]

    assert [] == [metric.name for metric, values in columns if ((values < metric.low) | (values > metric.high)).any()]


def test_every_missing_reading_has_its_reason() -> None:
    """What a board does not have is said to be not supported, and nothing else is."""
    for frame in Simulator(hosts=6).frames(1):
        for device, values in zip(frame.devices, frame.values, strict=True):
            missing = {name for name, value in zip(frame.metrics, values, strict=True) if np.isnan(value)}
            assert missing == set(frame.unavailable[device.uuid])


def test_a_partitioned_gpu_is_the_sum_of_its_instances() -> None:
    """MIG instances name their GPU; the GPU has their memory and no utilization of its own."""
    frame = next(Simulator().frames())
    instances = [device for device in frame.devices if device.kind == "mig"]
    parents = {device.parent for device in instances}
    (parent,) = parents
    assert parent is not None

    memory = [frame.reading(device.uuid, "memory_used_bytes") for device in instances]

    assert 3 == len(instances)
    assert np.isnan(frame.reading(parent, "utilization_percent"))
    assert frame.reading(parent, "memory_used_bytes") == pytest.approx(sum(memory), abs=8 * MIB)
    assert parent not in frame.processes


def test_healthy_energy_never_falls_and_follows_power() -> None:
    """The energy counter is the integral of the power readings."""
    for run in healthy().values():
        for uuid in run.uuids():
            energy, power = run.column(uuid, "energy_joules_total"), run.column(uuid, "power_watts")
            if np.isnan(energy).all():
                continue
            times = np.array([frame.at for frame in run.frames])
            assert (np.diff(energy) > 0.0).all()
            assert energy[-1] - energy[0] == pytest.approx(np.trapezoid(power, times), rel=0.02)


def test_healthy_gpus_stay_cool() -> None:
    """In six hours of work no board comes within six degrees of its slowdown temperature."""
    for run in healthy().values():
        for uuid in run.uuids():
            margin = run.column(uuid, "temperature_slowdown_celsius") - run.column(uuid, "temperature_celsius")
            assert np.isnan(margin).all() or margin.min() > 6.0


def test_healthy_gpus_get_warm_by_working() -> None:
    """Temperature follows load: every board that works spans at least eight degrees."""
    spans = [column.max() - column.min() for column in healthy_columns("temperature_celsius")]

    assert sum(span >= 8.0 for span in spans) >= 0.8 * len(spans)


def test_healthy_power_keeps_to_the_limit_and_says_so() -> None:
    """At the limit the clocks give way, with the power cap bit and no other reason."""
    seen = set()
    for run in healthy().values():
        for uuid in run.uuids():
            power, limit = run.column(uuid, "power_watts"), run.column(uuid, "power_limit_watts")
            if np.isnan(power).all():
                continue
            reasons = run.column(uuid, "clock_event_reasons")
            capped = reasons == 4.0
            clocks = run.column(uuid, "sm_clock_mhz")
            assert (power <= 1.02 * limit).all()
            assert (clocks[capped] <= run.column(uuid, "sm_clock_max_mhz")[capped]).all()
            seen |= set(reasons)
    assert {0.0, 1.0, 4.0} == seen


def test_healthy_memory_is_flat_after_its_warm_up() -> None:
    """From five minutes after a job began until it ends, its memory stays what it is."""
    for run in healthy().values():
        for uuid in run.uuids():
            by_job: dict[tuple[int, float], set[float]] = {}
            for frame in run.frames:
                for process in frame.processes.get(uuid, ()):
                    assert process.started_at is not None
                    assert process.memory_used_bytes is not None
                    if frame.at - process.started_at > 300.0:
                        by_job.setdefault((process.pid, process.started_at), set()).add(process.memory_used_bytes)
            assert all(len(levels) == 1 for levels in by_job.values())


def test_memory_warms_up_in_blocks() -> None:
    """A job that begins asks for 20 MiB or more at a time."""
    run = healthy()["sim-a"]
    rises = np.concatenate([np.diff(run.column(uuid, "memory_used_bytes")) for uuid in run.uuids()])
    rises = rises[rises > 0.0]

    assert len(rises) > 50
    assert rises.min() >= 20 * MIB - 1.0


def test_jobs_end_and_others_follow() -> None:
    """In six hours most places see more than one process, each with a start of its own, and free memory between them."""
    pids = [{process.pid for listed in run.processes(uuid) for process in listed} for run in healthy().values() for uuid in run.uuids()]

    assert sum(len(of_device) >= 2 for of_device in pids) >= len(pids) / 4


def test_a_healthy_notebook_pauses_for_less_than_ten_minutes() -> None:
    """Somebody thinks, but not for so long that it would be idle."""
    (tesla,) = [device.uuid for device in healthy()["sim-a"].frames[0].devices if device.name == "Tesla T4"]
    busy = np.flatnonzero(healthy()["sim-a"].column(tesla, "utilization_percent") >= 5.0)

    assert 60.0 < 5.0 * np.diff(busy).max() < 600.0


def test_training_writes_checkpoints() -> None:
    """A training GPU works at 95 % or more, with pauses of 20 to 90 seconds in which next to nothing happens."""
    run = healthy()["sim-b"]
    utilization = run.column(run.uuids()[0], "utilization_percent")
    quiet = np.diff(np.flatnonzero(np.concatenate([[True], utilization > 5.0, [True]]))) - 1

    assert np.mean(utilization >= 95.0) > 0.75
    assert 12 <= np.sum((quiet >= 3) & (quiet <= 18)) <= 36


def test_steps_grow_and_loss_falls_as_a_job_goes_on() -> None:
    """A job reports whole steps that never fall, and a loss that ends lower than it began."""
    run = healthy()["sim-b"]
    names = list(dict.fromkeys(job.job for frame in run.frames for job in frame.jobs))
    for name in names:
        steps = run.job("job_step_total", name)
        assert (np.diff(steps) >= 0.0).all()
        assert (steps == np.floor(steps)).all()
    longest = max(names, key=lambda name: len(run.job("job_loss", name)))
    loss = run.job("job_loss", longest)

    assert loss[-20:].mean() < loss[:20].mean()


def test_healthy_hosts_have_no_events_and_no_faults() -> None:
    """Background noise is a corrected error or a PCIe replay now and then, never an event."""
    frames = [frame for run in healthy().values() for frame in run.frames]
    corrected = [column[-1] - column[0] for column in healthy_columns("ecc_corrected_volatile_total")]
    replays = [column[-1] - column[0] for column in healthy_columns("pcie_replay_total")]

    assert 0 == sum(len(frame.events) + len(frame.faults) for frame in frames)
    assert 0 < sum(corrected) < len(corrected)
    assert 0 < sum(replays) < len(replays)


def test_the_link_of_a_resting_card_falls_to_generation_one() -> None:
    """A GeForce saves power at rest, and the H100 beside it keeps its link."""
    run = healthy()["sim-a"]
    by_name = {device.name: device.uuid for device in run.frames[0].devices}

    assert {1.0, 4.0} == set(run.column(by_name["NVIDIA GeForce RTX 4090"], "pcie_link_generation"))
    assert {5.0} == set(run.column(by_name["NVIDIA H100 80GB HBM3"], "pcie_link_generation"))


def test_processes_are_listed_every_five_seconds() -> None:
    """Between two lists nothing is known, which is not the same as nothing running."""
    frames = list(islice(Simulator(gpus=2).frames(), 12))
    listed = [bool(frame.processes) for frame in frames]

    assert [n % 5 == 0 for n in range(12)] == listed
    assert listed == [not np.isnan(frame.reading(frame.devices[0].uuid, "process_count")) for frame in frames]


@pytest.mark.parametrize(
    ("workload", "command"),
    [("training", "python train.py"), ("inference", "python -m serve"), ("notebook", "python -m ipykernel_launcher")],
)
def test_a_workload_can_be_given_to_all(workload: str, command: str) -> None:
    """Every process is of the kind that was asked for."""
    frame = next(Simulator(workload=workload).frames())
    commands = [process.command for listed in frame.processes.values() for process in listed]

    assert 10 == len(commands)
    assert all(told is not None and told.startswith(command) for told in commands)


def test_no_workload_leaves_all_gpus_at_rest() -> None:
    """GPUs without a job draw what they draw at rest and hold nothing."""
    frame = list(Simulator(workload="none").frames(60))[-1]

    assert 0 == sum(len(listed) for listed in frame.processes.values())
    assert frame.values[:, frame.metrics.index("memory_used_bytes")].max() < 32 * MIB
    assert np.nanmax(frame.values[:, frame.metrics.index("power_watts")]) < 75.0


# -- faults -----------------------------------------------------------------------------------------------------------------------


def _all(condition: NDArray[np.bool_]) -> bool:
    return bool(len(condition)) and bool(condition.all())


def _reasons(run: Run, uuid: str, bits: int) -> NDArray[np.bool_]:
    held: NDArray[np.bool_] = (run.column(uuid, "clock_event_reasons").astype(int) & bits) == bits
    return held


def _rise(run: Run, uuid: str, metric: str) -> float:
    column = run.column(uuid, metric)
    return float(column[-1] - column[0])


def _without_process(run: Run, uuid: str) -> bool:
    return all(listed == () for listed in run.processes(uuid))


def _steps_stand_still(run: Run) -> bool:
    steps: dict[str, set[float]] = {}
    for frame in run.frames:
        for job in frame.jobs:
            steps.setdefault(job.job, set()).add(job.readings["job_step_total"])
    return any(len(seen) == 1 for seen in steps.values())


def _frozen(run: Run, uuid: str) -> bool:
    columns = [run.column(uuid, name) for name in run.frames[0].metrics if name != "process_count"]
    return all(np.array_equal(column, np.full(len(column), column[0]), equal_nan=True) for column in columns)


SIGNS: dict[str, Callable[[Run, str], bool]] = {
    "idle_gpu": lambda run, gpu: (
        _all(run.column(gpu, "utilization_percent") == 0.0)
        and _all(run.column(gpu, "memory_used_bytes") > GIB)
        and _all(run.column(gpu, "power_watts") < 0.5 * run.column(gpu, "power_limit_watts"))
    ),
    "memory_leak": lambda run, gpu: (
        _rise(run, gpu, "memory_used_bytes") > 8 * GIB and _all(np.diff(run.column(gpu, "memory_used_bytes")) >= 0.0)
    ),
    "overheating": lambda run, gpu: (
        _all(run.column(gpu, "temperature_celsius")[-12:] >= run.column(gpu, "temperature_slowdown_celsius")[-12:] - 5.0)
        and bool(_reasons(run, gpu, 0x48).any())
    ),
    "stuck_training": lambda run, gpu: (
        _all(run.column(gpu, "utilization_percent") == 100.0)
        and _all(run.column(gpu, "memory_utilization_percent") == 0.0)
        and _all(run.column(gpu, "power_watts") < 0.25 * run.column(gpu, "power_limit_watts"))
        and _steps_stand_still(run)
    ),
    "rising_double_bit_ecc": lambda run, gpu: (
        _rise(run, gpu, "ecc_uncorrected_volatile_total") >= 2.0
        and any(event.kind == "double_bit_ecc" and event.uuid == gpu for frame in run.frames for event in frame.events)
    ),
    "driver_fault": lambda run, gpu: (
        _all(run.column(gpu, "utilization_percent") == 100.0)
        and _all(run.column(gpu, "memory_used_bytes") < 16 * MIB)
        and _without_process(run, gpu)
    ),
    "xid": lambda run, gpu: [31] == [event.code for frame in run.frames for event in frame.events if event.uuid == gpu],
    "gpu_lost": lambda run, gpu: (
        _all(np.isnan(run.column(gpu, "temperature_celsius")))
        and all([gpu] == [fault.uuid for fault in frame.faults if fault.kind == "gpu_lost"] for frame in run.frames)
        and [79] == [event.code for frame in run.frames for event in frame.events]
    ),
    "thermal_throttling": lambda run, gpu: (
        _all(_reasons(run, gpu, 0x48))
        and _rise(run, gpu, "hw_thermal_seconds_total") > 200.0
        and _all(run.column(gpu, "utilization_percent") > 90.0)
    ),
    "power_brake": lambda run, gpu: _all(_reasons(run, gpu, 0x80)) and _rise(run, gpu, "hw_power_brake_seconds_total") > 200.0,
    "corrected_ecc_rate": lambda run, gpu: _rise(run, gpu, "ecc_corrected_volatile_total") > run.frames[-1].at - run.frames[0].at,
    "row_remap_pending": lambda run, gpu: _all(run.column(gpu, "remapped_rows_pending") == 1.0),
    "pcie_degraded": lambda run, gpu: (
        _all(run.column(gpu, "pcie_link_width") < run.column(gpu, "pcie_link_width_max"))
        and _all(run.column(gpu, "utilization_percent") > 90.0)
    ),
    "nvlink_degraded": lambda run, gpu: (
        _all(run.column(gpu, "nvlink_links_active") < run.column(gpu, "nvlink_links_total"))
        and _rise(run, gpu, "nvlink_errors_total") > 100.0
    ),
    "orphan_memory": lambda run, gpu: _all(run.column(gpu, "memory_used_bytes") > GIB) and _without_process(run, gpu),
    "straggler": lambda run, gpu: (
        _all(run.column(gpu, "sm_clock_mhz") < 0.7 * np.median([run.column(uuid, "sm_clock_mhz") for uuid in run.uuids()[:4]], axis=0))
        and _all(run.column(gpu, "utilization_percent") > 90.0)
    ),
    "telemetry_frozen": _frozen,
    "training_diverged": lambda run, gpu: any(np.isnan(job.readings["job_loss"]) for frame in run.frames for job in frame.jobs),
    "fan_failure": lambda run, gpu: (
        _all(run.column(gpu, "fan_speed_rpm") == 0.0) and _all(run.column(gpu, "temperature_celsius")[-12:] >= 70.0)
    ),
}
"""What each fault looks like from outside, over a stretch of frames, on one of its GPUs."""


def test_every_fault_has_its_sign_here() -> None:
    """A fault that is added is added to this file as well."""
    assert set(FAULTS) == set(SIGNS)


@cache
def episode(name: str) -> tuple[Scheduled, Run]:
    """One fault alone, from the start of the simulation to 20 minutes after its end."""
    simulator = Simulator(faults=[name], step=5.0)
    (fault,) = simulator.schedule
    return fault, Run(list(simulator.frames(fault.ends_at - START + 1200.0)))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows_while_it_lasts_and_not_before(name: str) -> None:
    """Its sign stands from its beginning to its end, and was not there before."""
    fault, run = episode(name)
    # Power takes a second to settle; what happens at the very beginning must not be cut off.
    settled = fault.starts_at if name in ("xid", "gpu_lost", "rising_double_bit_ecc") else fault.starts_at + 4.0

    for gpu in fault.devices:
        assert SIGNS[name](run.between(settled, fault.ends_at), gpu)
        assert not SIGNS[name](run.between(START, fault.starts_at), gpu)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_over_when_it_ends(name: str) -> None:
    """Five minutes later the GPU works again, and nothing of the sign is left."""
    fault, run = episode(name)
    after = run.between(fault.ends_at + 300.0, fault.ends_at + 1200.0)

    for gpu in fault.devices:
        assert not SIGNS[name](after, gpu)
        assert np.isfinite(after.column(gpu, "temperature_celsius")).all()


def test_the_faults_of_the_mission_begin_in_ten_minutes_on_gpus_of_their_own() -> None:
    """With eight GPUs, six faults begin early, and no GPU has two at a time."""
    schedule = Simulator(faults="all").schedule
    mission = [fault for fault in schedule if fault.rule in MISSION]

    assert set(MISSION) == {fault.rule for fault in mission}
    assert max(fault.starts_at for fault in mission) <= START + 600.0
    assert [] == [(one.rule, other.rule) for one in schedule for other in schedule if one is not other and _collide(one, other)]


def _collide(one: Scheduled, other: Scheduled) -> bool:
    return bool(set(one.devices) & set(other.devices)) and one.starts_at < other.ends_at and other.starts_at < one.ends_at


def test_a_fault_leaves_other_gpus_alone() -> None:
    """Whatever does not belong to the job that a fault befalls reads the same to the last digit as without it."""
    faulty, calm = Simulator(faults=["driver_fault", "overheating"]), Simulator()
    concerned = {uuid for fault in faulty.schedule for uuid in fault.devices}

    for one, other in zip(faulty.frames(900), calm.frames(900), strict=True):
        rows = [row for row, device in enumerate(one.devices) if device.uuid not in concerned]
        assert np.array_equal(one.values[rows], other.values[rows], equal_nan=True)


def test_faults_queue_where_there_are_few_gpus() -> None:
    """One GPU has one fault after the other, as far as it can show them."""
    simulator = Simulator(gpus=1, faults="all")
    schedule = sorted(simulator.schedule, key=lambda fault: fault.starts_at)

    assert {"fan_failure", "straggler"} == set(FAULTS) - {fault.rule for fault in schedule}
    assert all(one.ends_at < other.starts_at for one, other in pairwise(schedule))
    assert simulator.cycle > schedule[-1].ends_at - START


def test_the_programme_begins_again() -> None:
    """A demonstration that runs for hours shows each fault once a cycle."""
    simulator = Simulator(gpus=7, step=20.0, faults=["overheating"])
    (fault,) = simulator.schedule
    run = Run(list(simulator.frames(fault.ends_at - START + simulator.cycle)))
    hot = run.column(fault.devices[0], "temperature_celsius") >= 91.0
    times = np.array([frame.at for frame in run.frames])[hot]

    first = times < START + simulator.cycle
    assert fault.starts_at < times[first].min() < times[first].max() < fault.ends_at + 60.0
    assert fault.starts_at + simulator.cycle < times[~first].min()


@pytest.mark.parametrize("step", [0.5, 1.0, 5.0, 60.0])
def test_a_hot_card_slows_down_and_does_not_reach_its_shutdown(step: float) -> None:
    """The card saves itself at any step: hot, but below the temperature at which it would switch off."""
    simulator = Simulator(gpus=7, step=step, faults=["overheating"])
    (fault,) = simulator.schedule
    run = Run(list(simulator.frames(fault.ends_at - START))).between(fault.starts_at + 150.0, fault.ends_at)
    temperature = run.column(fault.devices[0], "temperature_celsius")

    assert 91.0 <= temperature.min()
    assert temperature.max() < run.column(fault.devices[0], "temperature_shutdown_celsius")[-1]


def test_a_lost_gpu_comes_back_with_its_counters_at_zero() -> None:
    """After the reset it is there again, and volatile counters start anew."""
    simulator = Simulator(faults=["gpu_lost"])
    (fault,) = simulator.schedule
    run = Run(list(simulator.frames(fault.ends_at - START + 60.0)))
    energy = run.column(fault.devices[0], "energy_joules_total")

    assert energy[0] > 1e6
    assert energy[-1] < 1e5


def test_the_job_of_a_gpu_at_fault_does_not_end_meanwhile() -> None:
    """A leak lives in one process from ten minutes before it to its end, and the process dies of it."""
    simulator = Simulator(seed=11, faults=["memory_leak"], step=5.0)
    (fault,) = simulator.schedule
    run = Run(list(simulator.frames(fault.ends_at - START + 300.0)))

    def pids(start: float, end: float) -> set[int]:
        return {process.pid for listed in run.between(start, end).processes(fault.devices[0]) for process in listed}

    during, after = pids(START, fault.ends_at), pids(fault.ends_at, fault.ends_at + 300.0)
    assert 1 == len(during)
    assert 1 == len(after - during)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"faults": ["overheat"]}, "no fault 'overheat'; it has all, none, memory_leak"),
        ({"faults": "fan_failure", "gpus": 2}, "can show 'fan_failure'; gpus = 8"),
        ({"workload": "mining"}, "no workload 'mining'; it has training"),
        ({"gpus": 0}, "at least one GPU"),
        ({"hosts": 0}, "at least one GPU and one host"),
        ({"step": 0.0}, "a step above 0"),
        ({"seed": -1}, "a seed of 0 or more"),
    ],
)
def test_a_wrong_argument_is_said_with_the_way_out(arguments: dict[str, object], words: str) -> None:
    """The message names the value and what there is instead."""
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        Simulator(**arguments)  # type: ignore[arg-type]


def test_a_large_fleet_is_one_step_like_another() -> None:
    """A thousand hosts of eight GPUs have devices of their own, and all but a few get their frame."""
    frames = list(Simulator(hosts=1000).frames(1))
    uuids = [device.uuid for frame in frames for device in frame.devices]

    assert {"sim-b", "sim-z", "sim-aa", "sim-all"} <= {frame.host for frame in frames}
    assert sum(len(frame.devices) for frame in frames) == len(set(uuids))
    assert 7900 < len(uuids) <= 8003
