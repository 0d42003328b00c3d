"""A GPU that somebody holds and nobody uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from traces import GIB, START, Value, changes, final, gpu, told, trace
from workloads import FREE, RESTS, SPINS, WORKS, doing, every, ranks

from detector.frame import Device, Process
from rules.idle_gpu import IdleGpu

RULES = {"idle_gpu": IdleGpu()}
MIB = 1024.0**2

T4 = {"memory_total_bytes": 15 * GIB, "power_limit_watts": 70.0}
"""It rests at 0.4 of its limit."""


def holds(memory: float | None) -> Callable[[int, float], tuple[Process, ...]]:
    """One process on each GPU, and the memory that it says it holds."""
    return lambda n, second: (Process(4711 + n, memory_used_bytes=memory),)


@pytest.mark.parametrize("state", [FREE, WORKS, SPINS])
def test_a_gpu_that_is_free_or_works_is_not_wasted(state: Mapping[str, Value]) -> None:
    """Nobody holds it, or somebody uses it."""
    assert [] == told(changes(RULES, trace(seconds=7200, step=30, **state)))


@pytest.mark.parametrize("step", [1, 10, 60, 300])
def test_held_and_unused_for_twenty_minutes_is_a_warning(step: float) -> None:
    """It takes twenty minutes of nothing, at any sampling, and a minute or so to see that the last work is over."""
    (incident,) = final(RULES, trace(seconds=4500, step=step, **doing((0, WORKS), (1800, RESTS))))

    assert "warning" == incident.severity
    assert 3000 <= (incident.fired_at or 0.0) - START <= 3000 + 60 + step


def test_it_resolves_a_minute_after_work_goes_on() -> None:
    """One busy sample is use; the look a minute later agrees."""
    frames = trace(seconds=4800, **doing((0, RESTS), (3600, WORKS)))

    assert ["1200 fired idle_gpu warning", "3660 resolved idle_gpu warning"] == told(changes(RULES, frames))


@pytest.mark.parametrize(("percent", "expected"), [(2.0, 1), (3.0, 0)])
def test_three_percent_are_activity(percent: float, expected: int) -> None:
    """A monitor or a desktop makes 1 or 2."""
    assert expected == len(final(RULES, trace(seconds=2400, **{**RESTS, "utilization_percent": percent})))


@pytest.mark.parametrize("engine", ["memory_utilization_percent", "encoder_utilization_percent", "decoder_utilization_percent"])
def test_any_engine_is_activity(engine: str) -> None:
    """A GPU that encodes video may show 0 % of its compute engine."""
    assert [] == told(changes(RULES, trace(seconds=3600, **{**RESTS, engine: 7.0})))


@pytest.mark.parametrize("period", [300, 1100])
def test_bursts_of_inference_are_use(period: float) -> None:
    """A service that answers once in a quarter of an hour is at work: the maximum decides, not the mean."""
    assert [] == told(changes(RULES, trace(seconds=7200, **every(period, (0, WORKS), (10, RESTS)))))


def test_a_server_at_night_is_told_once_and_resolves_in_the_morning() -> None:
    """It holds its cache and answers nobody; an operator declares his servers by an override."""
    frames = trace(seconds=20_000, step=30, **doing((0, RESTS), (14_400, WORKS)))

    assert ["fired", "resolved"] == [c.transition for c in changes(RULES, frames) if c.transition != "opened"]


@pytest.mark.parametrize(("power", "expected"), [(180.0, 1), (250.0, 0)])
def test_a_counter_that_lies_is_no_idle_gpu(power: float, expected: int) -> None:
    """0 % at more than half of the power limit: somebody works, and the counter does not say so."""
    assert expected == len(final(RULES, trace(seconds=3600, **{**RESTS, "power_watts": power})))


def test_a_small_board_rests_at_a_large_share_of_its_limit() -> None:
    """A T4 that holds a model draws 28 of its 70 W (odh-manifests#265)."""
    frames = trace(seconds=3600, **{**RESTS, **T4, "power_watts": 28.0, "memory_used_bytes": 9.6 * GIB})

    assert 1 == len(final(RULES, frames))


@pytest.mark.parametrize("missing", ["power_watts", "power_limit_watts", "memory_utilization_percent"])
def test_what_a_card_never_had_is_not_asked_for(missing: str) -> None:
    """Without a power limit or meter the utilisation is believed."""
    assert 1 == len(final(RULES, trace(seconds=3600, **{**RESTS, missing: None})))


def test_without_utilisation_nothing_is_told() -> None:
    """[N/A] is not 0 % (a partitioned GPU, a recording of power alone)."""
    assert [] == changes(RULES, trace(seconds=7200, step=30, **{**RESTS, "utilization_percent": None}))


@pytest.mark.parametrize("stand_in", ["graphics_engine_active_percent", "sm_active_percent"])
def test_other_counters_stand_in_for_utilisation(stand_in: str) -> None:
    """A MIG instance has the share of time its engine was active."""
    rests = {**RESTS, "utilization_percent": None, stand_in: 0.0}
    works = {**RESTS, "utilization_percent": None, stand_in: 40.0}

    assert 1 == len(final(RULES, trace(seconds=3600, **rests)))
    assert [] == final(RULES, trace(seconds=3600, **works))


@pytest.mark.parametrize(("memory", "expected"), [(1023 * MIB, 0), (1024 * MIB, 1)])
def test_a_gibibyte_is_held_where_processes_are_not_seen(memory: float, expected: int) -> None:
    """Less is a display or the driver's own."""
    assert expected == len(final(RULES, trace(seconds=3600, **{**RESTS, "memory_used_bytes": memory})))


@pytest.mark.parametrize(("memory", "expected"), [(9 * MIB, 0), (300 * MIB, 1), (None, 1)])
def test_a_process_holds_the_gpu_unless_it_takes_next_to_nothing(memory: float | None, expected: int) -> None:
    """A bare CUDA context is a reservation; the 4 MiB of an X server on a headless node are not."""
    frames = trace(seconds=3600, processes=holds(memory), **{**RESTS, "memory_used_bytes": memory})

    assert expected == len(final(RULES, frames))


def test_a_model_that_is_being_loaded_is_use() -> None:
    """Half an hour of reading from a slow disk: memory fills while nothing computes. After that, patience starts anew."""
    fills = lambda second: min(70.0, 0.5 + second / 1800 * 70) * GIB  # noqa: E731
    (incident,) = final(RULES, trace(seconds=4200, **{**RESTS, "memory_used_bytes": fills}))

    assert 1800 + 1200 <= (incident.fired_at or 0.0) - START <= 1800 + 1320


def test_a_suspended_laptop_is_not_idle() -> None:
    """Nobody keeps it from sleeping."""
    asleep = Device("GPU-0", index=0, power_state="suspended")

    assert [] == changes(RULES, trace(seconds=7200, step=30, devices=[asleep], **RESTS))


@pytest.mark.parametrize("sensor", ["utilization_percent", "memory_used_bytes", "power_watts"])
def test_a_sensor_that_falls_silent_neither_fires_nor_resolves(sensor: str) -> None:
    """What is missing leaves everything as it was."""
    silent = {**RESTS, sensor: None}
    before = trace(seconds=7200, step=30, **doing((0, RESTS), (900, silent)))
    after = trace(seconds=7200, step=30, **doing((0, RESTS), (1800, silent), (5400, WORKS)))

    assert [] == told(changes(RULES, before))
    assert ["1200 fired idle_gpu warning", "5460 resolved idle_gpu warning"] == told(changes(RULES, after))


def test_one_of_two_gpus_of_a_job_is_never_used() -> None:
    """A framework that takes all GPUs and works on one: the one that pauses for a few minutes is not among the idle."""
    frames = trace(
        seconds=9000,
        step=20,
        devices=2,
        processes=ranks("tf"),
        each=lambda n: doing((0, RESTS)) if n == 1 else every(600, (0, WORKS), (360, RESTS)),
    )

    assert [["GPU-1"]] == [[device.uuid for device in incident.devices] for incident in final(RULES, frames)]


def test_the_gpus_of_one_owner_are_one_incident() -> None:
    """Eight GPUs of one job are one question to one person; the other job's are another."""
    frames = trace(seconds=3600, devices=8, processes=lambda n, s: ranks("a" if n < 6 else "b")(n, s), **doing((0, WORKS), (600, RESTS)))

    assert [6, 2] == [len(incident.devices) for incident in final(RULES, frames)]


def test_gpus_that_follow_join_the_incident_of_their_owner() -> None:
    """Once the second GPU has rested as long as the first, the incident is about both."""
    frames = trace(
        seconds=6000, step=30, devices=2, processes=ranks("a"), each=lambda n: doing((0, WORKS), (600 if n == 0 else 2400, RESTS))
    )
    happened = [c for c in changes(RULES, frames) if c.transition in ("fired", "updated")]

    assert [("fired", 1), ("updated", 2)] == [(c.transition, len(c.incident.devices)) for c in happened]
    assert 2400 + 1080 <= happened[1].at - START <= 2400 + 1260


def test_gpus_without_a_known_owner_are_an_incident_each() -> None:
    """Nothing says that they belong together."""
    assert [1, 1] == [len(incident.devices) for incident in final(RULES, trace(seconds=2400, devices=2, **RESTS))]


def partitioned(power: float, *activity: float | None) -> dict[str, object]:
    """A GPU in two MIG instances: its own power, and how active each of them is."""
    parts = [gpu(0), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(len(activity)))]
    whole: dict[str, Value] = {"utilization_percent": None, "power_watts": power, "memory_used_bytes": 30 * GIB}
    part: dict[str, Value] = {"utilization_percent": None, "power_limit_watts": None, "memory_used_bytes": 5 * GIB}
    each = lambda n: whole if n == 0 else {**part, "sm_active_percent": activity[n - 1]}  # noqa: E731
    return {"devices": parts, "each": each}


@pytest.mark.parametrize(
    ("power", "activity", "idle"),
    [
        (230.0, (90.0, 0.0), ["MIG-1"]),  # dcgm-exporter#105: one works, one rests
        (80.0, (0.0, 0.0), ["MIG-0", "MIG-1"]),
        (300.0, (0.0, 0.0), []),  # dcgm-exporter#662: the counter says 0 for want of permission
        (300.0, (None, None), []),
    ],
)
def test_the_instances_of_a_gpu_are_judged_and_not_the_whole(power: float, activity: tuple[float | None, ...], idle: list[str]) -> None:
    """An instance has no power of its own: that of the board must be somebody's."""
    found = final(RULES, trace(seconds=3600, **partitioned(power, *activity)))  # type: ignore[arg-type]

    assert idle == sorted(device.uuid for incident in found for device in incident.devices)


@pytest.mark.parametrize("how", [{"mig_mode": 1.0}, {}])
def test_a_partitioned_gpu_as_a_whole_is_never_idle(how: Mapping[str, Value]) -> None:
    """Even where its driver says 0 % instead of nothing."""
    parts = [gpu(0), Device("MIG-0", parent="GPU-0")] if not how else 1
    found = final(RULES, trace(seconds=3600, devices=parts, **{**RESTS, **how}))

    assert "GPU-0" not in [device.uuid for incident in found for device in incident.devices]


def test_the_waste_is_counted() -> None:
    """GPU seconds since it began to rest, for all GPUs concerned."""
    (incident,) = final(RULES, trace(seconds=3600, devices=2, processes=ranks("a"), **RESTS))

    assert 2 * 3600 == pytest.approx(incident.wasted_gpu_seconds, abs=240)


def test_the_incident_says_what_a_person_needs() -> None:
    """How much is held by whom, how idle for how long, at what power, and whom to ask."""
    processes = lambda n, second: (Process(4411, 9.6 * GIB, command="python -m ipykernel_launcher", user="maria"),)  # noqa: E731
    frames = trace(seconds=3600, processes=processes, **{**RESTS, **T4, "power_watts": 27.0, "memory_used_bytes": 9.6 * GIB})
    (incident,) = final(RULES, frames)

    assert "GPU held (9.6 GiB) but not used: at most 0 % busy for 20 minutes, drawing 27 W" == incident.summary
    assert (4411, "maria") == (incident.workload and incident.workload.pid, incident.workload and incident.workload.user)
    assert (0.0, 2.0, "percent") == (incident.value, incident.threshold, incident.unit)
    assert "Ask the owner" in incident.action
    assert ["utilization_percent", "memory_used_bytes", "power_watts"] == [series.metric for series in incident.evidence]


def test_what_is_not_known_is_not_said() -> None:
    """Unified memory: a process is there, how much it holds is not known, and there is no power meter."""
    frames = trace(seconds=3600, processes=holds(None), utilization_percent=0.0, memory_total_bytes=None)
    (incident,) = final(RULES, frames)

    assert "GPU held (1 process) but not used: at most 0 % busy for 20 minutes" == incident.summary


def test_patience_is_the_operators_choice() -> None:
    """`hold` alone is how long it takes."""
    rules = {"idle_gpu": IdleGpu(hold=7200.0, severity="info")}

    assert ["7200 fired idle_gpu info"] == told(changes(rules, trace(seconds=9000, step=30, **RESTS)))
