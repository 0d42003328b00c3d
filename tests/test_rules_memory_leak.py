"""Memory that grows and will not stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, sin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import GIB, START, Value, changes, final, gpu, told, trace
from workloads import RESTS, WORKS

from detector.frame import Device, Process
from rules.memory_leak import MemoryLeak

RULES = {"memory_leak": MemoryLeak()}
MIB = 1024.0**2

Level = Callable[[float], float]


def leak(per_hour: float, start: float = 20 * GIB) -> Level:
    """Memory that rises by so many bytes an hour."""
    return lambda second: min(80 * GIB, start + second / 3600 * per_hour)


def running(*levels: Level, work: Mapping[str, Value] = WORKS, told_by_processes: bool = True) -> dict[str, object]:
    """A GPU with a process for each of the *levels*."""

    def processes(n: int, second: float) -> tuple[Process, ...]:
        held = [level(second) if told_by_processes else None for level in levels]
        return tuple(Process(4711 + k, memory, command=f"python train_{k}.py") for k, memory in enumerate(held))

    return {**work, "memory_used_bytes": lambda second: sum(level(second) for level in levels), "processes": processes}


def found(level: Level, *, hours: float = 3, step: float = 30, **more: object) -> list[str]:
    """What was told of a process with that memory."""
    return told(changes(RULES, trace(seconds=hours * 3600, step=step, **{**running(level), **more})))  # type: ignore[arg-type]


def test_flat_memory_is_no_leak() -> None:
    """92 % for a day is allocated in advance by design (vllm#31853)."""
    assert [] == found(lambda second: 74 * GIB, hours=24, step=60)


@pytest.mark.parametrize("step", [1, 10, 60, 300])
def test_steady_growth_is_a_warning_after_warm_up_and_half_an_hour(step: float) -> None:
    """Loss tensors kept for plots (SpareNet#12), at any sampling: nothing before the evidence is complete, and then soon."""
    (incident,) = final(RULES, trace(seconds=3300, step=step, **running(leak(3 * GIB))))  # type: ignore[arg-type]

    assert ("warning", 4711) == (incident.severity, incident.workload and incident.workload.pid)
    assert 2100 <= (incident.fired_at or 0.0) - START <= 2100 + 60 + step


def test_it_is_critical_once_the_memory_is_full_within_half_an_hour() -> None:
    """6 GiB an hour from 70 GiB: full after 100 minutes, critical after 70."""
    happened = found(leak(6 * GIB, start=70 * GIB), hours=1.5)

    assert ["2100 fired memory_leak warning", "4200 updated memory_leak critical"] == happened


def test_it_ends_with_its_process() -> None:
    """The process dies of it, or is stopped: its memory is free again."""
    until = lambda n, second: running(leak(3 * GIB))["processes"](n, second) if second < 5400 else ()  # type: ignore[operator] # noqa: E731
    happened = found(leak(3 * GIB), processes=until)

    assert ["fired", "resolved"] == [line.split()[1] for line in happened]
    assert 5400 <= float(happened[1].split()[0]) <= 5460


def test_it_ends_when_the_memory_has_stopped_to_rise() -> None:
    """It stays open while what it rose is within sight, and ten minutes longer."""
    (fired, resolved) = found(lambda second: leak(3 * GIB)(min(second, 5400)), hours=4)

    assert "2100 fired memory_leak warning" == fired
    assert 5400 + 600 <= float(resolved.split()[0]) <= 5400 + 2400


@pytest.mark.parametrize(("mib_in_26_minutes", "expected"), [(780, 0), (880, 1)])
def test_a_hundredth_of_the_memory_is_too_little_to_tell(mib_in_26_minutes: float, expected: int) -> None:
    """1 % of 80 GiB is 819 MiB."""
    assert expected == len(found(leak(mib_in_26_minutes * MIB * 60 / 26, start=50 * GIB), hours=1))


def test_what_takes_more_than_a_day_to_fill_the_memory_is_not_told() -> None:
    """2 GiB an hour into 70 GiB of room."""
    assert [] == found(leak(2 * GIB, start=10 * GIB))


def stairs(rise: float, every: float) -> Level:
    """Memory that rises at once, now and then."""
    return lambda second: 20 * GIB + second // every * rise


ORDINARY: Mapping[str, Level] = {
    "a saw: a graph kept inside an epoch and freed at its end (labelmodels#4)": lambda s: (2 + s % 480 / 480 * 7) * GIB,
    "a slow saw": lambda s: (2 + s % 1200 / 1200 * 20) * GIB,
    "one step (MinkowskiEngine#359)": lambda s: (20 if s < 3600 else 20.9) * GIB,
    "a caching allocator: a ramp, then flat (returnn#1478)": lambda s: min(s / 180, 1.0) * 60 * GIB,
    "a long ramp, then flat": lambda s: min(s / 1500, 1.0) * 60 * GIB,
    "validation takes memory for a minute and gives it back (SRGAN#43)": lambda s: (6 if s % 600 < 540 else 10) * GIB,
    "validation of ten minutes": lambda s: (6 if s % 3600 < 3000 else 30) * GIB,
    "an epoch's step, hourly": stairs(2 * GIB, 3600),
    "a staircase of three steps": lambda s: (20 + min(s // 1800, 3) * 4) * GIB,
    "a cache that fills": lambda s: (20 + 40 * (1 - exp(-s / 900))) * GIB,
    "a cache that fills slowly": lambda s: (20 + 20 * (1 - exp(-s / 1500))) * GIB,
    "a service whose load breathes and grows": lambda s: (20 + s / 600 + 3 * abs(s % 1040 - 520) / 520) * GIB,
    "a job that ends bit by bit": lambda s: max(0.0, 70 - s / 100) * GIB,
    "up and down": lambda s: (30 + 10 * abs(s % 3600 - 1800) / 1800) * GIB,
}


@pytest.mark.parametrize("level", ORDINARY.values(), ids=ORDINARY)
def test_what_ordinary_programs_do_is_no_leak(level: Level) -> None:
    """Growth that stops, slows down or is given back."""
    assert [] == found(level, step=20)


@pytest.mark.parametrize("offset", range(0, 480, 60))
def test_a_saw_is_no_leak_whenever_one_looks(offset: float) -> None:
    """A recording may begin anywhere in an epoch."""
    assert [] == found(lambda second: (10 + (second + offset) % 2000 / 2000 * 30) * GIB, step=30)


GROWTH: Mapping[str, Level] = {
    "in blocks": lambda s: leak(3 * GIB)(s // 240 * 240),
    "with validations on top": lambda s: leak(3 * GIB)(s) + (8 * GIB if s % 600 >= 540 else 0),
    "with a little noise": lambda s: leak(3 * GIB)(s) + (s * 7919 % 97) * MIB,
    "by fits and starts": lambda s: leak(3 * GIB)(s + 220 * sin(s / 270)),
    "faster and faster": lambda s: 20 * GIB + (s / 3600) ** 2 * 4 * GIB,
}


@pytest.mark.parametrize("level", GROWTH.values(), ids=GROWTH)
def test_a_leak_need_not_be_a_straight_line(level: Level) -> None:
    """It is one incident from when it is seen to the end."""
    assert ["fired"] == [line.split()[1] for line in found(level)]


@settings(max_examples=25)
@given(st.lists(st.integers(20, 60), min_size=60, max_size=60))
def test_memory_that_comes_and_goes_at_random_is_no_leak(levels: list[int]) -> None:
    """A service whose batches change every two minutes."""
    assert [] == found(lambda second: levels[int(second // 120) % 60] * GIB, hours=2, step=60)


def test_a_model_that_is_being_loaded_is_no_leak() -> None:
    """Memory that fills for an hour while nothing computes."""
    level = lambda second: (1 + second / 60) * GIB  # noqa: E731

    assert [] == found(level, hours=1, **{k: v for k, v in RESTS.items() if k != "memory_used_bytes"})


def test_one_process_that_leaks_is_told_however_the_sum_looks() -> None:
    """Another process on the GPU gives back what this one takes."""
    found_here = final(RULES, trace(seconds=4800, step=20, **running(leak(5 * GIB), lambda s: 40 * GIB - s / 3600 * 5 * GIB)))  # type: ignore[arg-type]

    assert ["GPU-0/4711"] == [incident.subject for incident in found_here]


def test_processes_that_come_and_go_are_no_leak_of_the_gpu() -> None:
    """Memory that each new process adds is that process's: where they say what they hold, the sum is not judged (dcgm-exporter#340)."""
    processes = lambda n, second: tuple(Process(100 + k, 2 * GIB) for k in range(1 + int(second // 600)))  # noqa: E731
    frames = trace(seconds=7200, step=30, processes=processes, **{**WORKS, "memory_used_bytes": lambda s: (1 + s // 600) * 2 * GIB})

    assert [] == changes(RULES, frames)


@pytest.mark.parametrize("hide", [{"processes": None}, running(leak(3 * GIB), told_by_processes=False)])
def test_the_gpu_is_judged_where_its_processes_do_not_say(hide: Mapping[str, object]) -> None:
    """Windows and containers do not show what a process holds; a recording may have no list of them at all."""
    frames = trace(seconds=3600, step=30, **{**running(leak(3 * GIB)), **hide})  # type: ignore[arg-type]

    assert ["GPU-0"] == [incident.subject for incident in final(RULES, frames)]


def test_a_gpu_that_had_no_process_and_then_one_that_does_not_say_is_judged() -> None:
    """An empty list is known to hold nothing; a process of unknown size is not."""
    processes = lambda n, second: () if second < 600 else (Process(4711, None),)  # noqa: E731
    frames = trace(seconds=7200, step=30, **{**running(leak(3 * GIB)), "processes": processes})  # type: ignore[arg-type]

    assert ["GPU-0"] == [incident.subject for incident in final(RULES, frames)]


def test_of_a_partitioned_gpu_the_instance_is_judged() -> None:
    """The whole only shows the same once more."""
    parts = [gpu(0), Device("MIG-0", parent="GPU-0")]
    frames = trace(seconds=3600, step=30, devices=parts, **{**WORKS, "memory_used_bytes": leak(3 * GIB)})

    assert [["MIG-0"]] == [[device.uuid for device in incident.devices] for incident in final(RULES, frames)]


def test_memory_that_is_not_read_tells_nothing() -> None:
    """Unified memory has neither used nor total."""
    assert [] == changes(RULES, trace(seconds=7200, step=30, **{**WORKS, "memory_used_bytes": None, "memory_total_bytes": None}))


def test_without_a_total_growth_is_told_and_when_it_is_full_is_not() -> None:
    """Half a GiB in half an hour is then enough, and it is never critical."""
    (incident,) = final(RULES, trace(seconds=5400, step=30, **{**running(leak(2 * GIB)), "memory_total_bytes": None}))  # type: ignore[arg-type]

    assert "warning" == incident.severity
    assert "full" not in incident.summary


def test_a_reading_that_falls_silent_resolves_nothing() -> None:
    """For 25 minutes the process is listed without its memory: the leak may well go on."""

    def processes(n: int, second: float) -> tuple[Process, ...]:
        return (Process(4711, None if 3600 <= second < 5100 else leak(3 * GIB)(second)),)

    assert ["2100 fired memory_leak warning"] == found(leak(3 * GIB), processes=processes)


def test_only_the_gpu_that_leaks_is_named() -> None:
    """Its neighbours are not concerned."""
    frames = trace(seconds=3600, step=30, devices=4, each=lambda n: {**WORKS, "memory_used_bytes": leak(3 * GIB) if n == 2 else 60 * GIB})

    assert [["GPU-2"]] == [[device.uuid for device in incident.devices] for incident in final(RULES, frames)]


def test_the_incident_says_what_a_person_needs() -> None:
    """Whose memory, how much in what time, how fast, and when it is full."""
    (incident,) = final(RULES, trace(seconds=2400, step=30, **running(leak(3 * GIB))))  # type: ignore[arg-type]

    grown = "memory of process 4711 (python train_0.py) rose by 1,331 MiB in 26 minutes without a plateau (3,072 MiB/h)"
    assert f"{grown}; full in about 19.4 h at this pace" == incident.summary
    assert "bytes" == incident.unit
    assert (incident.threshold or 0.0) <= (incident.value or 0.0)
    assert "Checkpoint" in incident.action
    assert ["process_memory_used_bytes", "memory_used_bytes"] == [series.metric for series in incident.evidence]
