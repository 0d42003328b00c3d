"""A job that holds its GPUs and gets nowhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from traces import GIB, START, Value, changes, final, gpu, told, trace
from workloads import FREE, RESTS, SPINS, WORKS, Readings, doing, every, ranks

from detector.frame import Device, Job, Process
from detector.incident import Incident, Suspect
from rules.stuck_training import StuckTraining

RULES = {"stuck_training": StuckTraining()}

HANG = doing((0, WORKS), (1800, SPINS))


def but(state: Readings, **readings: float | None) -> Readings:
    """A state with a few readings changed."""
    return {**state, **readings}


def uuids(incident: Incident) -> list[str]:
    return [device.uuid for device in incident.devices]


def steps(rate: float = 1.0, until: float = float("inf"), job: str = "llm") -> Callable[[float], tuple[Job, ...]]:
    """A job that counts its steps, and stands still from *until* on."""
    return lambda second: (Job(job, {"job_step_total": min(second, until) * rate}),)


def split(*states: Mapping[str, Value]) -> Callable[[int], Mapping[str, Value]]:
    """What each GPU does, the last of them all further ones."""
    return lambda n: states[min(n, len(states) - 1)]


# -- a collective that waits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 10, 60, 60.05])
def test_eight_gpus_that_spin_are_one_hang(step: float) -> None:
    """100 % at 75 W where 380 W is usual (nccl#968): a warning after five minutes, critical after twenty, at any sampling."""
    (incident,) = final(RULES, trace(seconds=3600, step=step, devices=8, processes=ranks("llm"), **HANG))

    assert ("critical", 8) == (incident.severity, len(incident.devices))
    assert 1800 + 240 <= (incident.fired_at or 0.0) - START <= 1800 + 420


def test_it_warns_after_five_minutes_and_is_critical_fifteen_minutes_later() -> None:
    """And it is over when the job works again, two minutes without a relapse."""
    frames = trace(seconds=5400, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, SPINS), (4500, WORKS)))

    assert [
        "2100 fired stuck_training warning",
        "3040 updated stuck_training critical",
        "4620 resolved stuck_training critical",
    ] == told(changes(RULES, frames))


@pytest.mark.parametrize("minutes", [1, 4])
def test_a_wait_of_a_few_minutes_is_none(minutes: float) -> None:
    """A slow rank, a checkpoint written by one of them."""
    frames = trace(seconds=5400, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, SPINS), (1800 + minutes * 60, WORKS)))

    assert [] == changes(RULES, frames)


@pytest.mark.parametrize(
    "almost",
    [{"power_watts": 153.0}, {"memory_utilization_percent": 3.0}, {"utilization_percent": 98.0}],
    ids=["two fifths of the working power", "memory traffic", "not fully busy"],
)
def test_just_below_it_is_work(almost: Mapping[str, float]) -> None:
    """Small kernels and decoding are busy at low power, but not that low, not without memory, or not all the time."""
    frames = trace(seconds=5400, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, but(SPINS, **almost))))

    assert [] == changes(RULES, frames)


def test_decoding_at_low_power_is_work() -> None:
    """Two L4 that serve a model: 100 % at 65 % of the limit, memory at 80 % (soperator#796)."""
    prefill = but(WORKS, power_watts=70.0, memory_used_bytes=19 * GIB)
    decode = but(SPINS, power_watts=46.0, memory_utilization_percent=85.0, memory_used_bytes=19 * GIB)
    frames = trace(seconds=7200, devices=2, processes=ranks(None), power_limit_watts=72.0, **doing((0, prefill), (1800, decode)))

    assert [] == changes(RULES, frames)


@pytest.mark.parametrize(("power", "expected"), [(75.0, 1), (150.0, 0)])
def test_where_memory_traffic_is_not_read_power_must_speak_louder(power: float, expected: int) -> None:
    """Decoding may draw 40 % of what prefill does; spinning draws a fifth."""
    blind = {"memory_utilization_percent": None}
    works, spins = but(WORKS, **blind), but(SPINS, **blind, power_watts=power)
    frames = trace(seconds=4200, devices=2, processes=ranks(None), **doing((0, works), (1800, spins)))

    assert expected == len(final(RULES, frames))


def test_small_boards_spin_at_half_of_their_working_power() -> None:
    """A T4 works at 64 W, rests at 28 and spins at 32."""
    work, spin = but(WORKS, power_watts=64.0, memory_used_bytes=12 * GIB), but(SPINS, power_watts=32.5, memory_used_bytes=12 * GIB)
    frames = trace(seconds=3600, devices=2, processes=ranks("llm"), power_limit_watts=70.0, **doing((0, work), (1800, spin)))

    assert 1 == len(final(RULES, frames))


def test_a_card_without_a_power_limit_has_its_own_working_level() -> None:
    """The limit is not asked for."""
    assert 1 == len(final(RULES, trace(seconds=3600, devices=2, processes=ranks("llm"), **{**HANG, "power_limit_watts": None})))


@pytest.mark.parametrize("state", [SPINS, WORKS, but(SPINS, power_watts=110.0)], ids=["spins", "works", "tiny kernels"])
def test_a_gpu_that_only_ever_did_one_thing_tells_nothing(state: Readings) -> None:
    """100 % at low power may be tiny kernels: without a working level of its own to compare with, nothing is said."""
    assert [] == changes(RULES, trace(seconds=14_400, step=30, devices=4, processes=ranks("llm"), **doing((0, FREE), (600, state))))


def test_one_gpu_alone_does_not_wait_for_a_peer() -> None:
    """Nothing but its power says so; a training on one GPU has phases of small kernels."""
    assert [] == changes(RULES, trace(seconds=5400, processes=ranks("llm"), **HANG))


def test_one_gpu_whose_steps_stand_still_hangs() -> None:
    """Busy at low power, and its step counter does not move."""
    (incident,) = final(RULES, trace(seconds=4200, processes=ranks("llm"), jobs=steps(until=1800), **HANG))

    assert "critical" == incident.severity
    assert "its step counter stands still" in incident.summary


def test_a_counter_that_is_no_longer_told_stands_still_too() -> None:
    """The job's own reporting hangs with it."""
    silent = lambda second: steps()(second) if second < 1800 else ()  # noqa: E731

    assert 1 == len(final(RULES, trace(seconds=3600, processes=ranks("llm"), jobs=silent, **HANG)))


def test_steps_that_go_on_are_work_however_it_looks() -> None:
    """Whoever counts steps gets somewhere."""
    assert [] == changes(RULES, trace(seconds=5400, devices=4, processes=ranks("llm"), jobs=steps(), **HANG))


# -- who waits for whom ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("works", [WORKS, but(WORKS, utilization_percent=12.0, power_watts=90.0, memory_utilization_percent=4.0)])
def test_an_evaluation_on_one_rank_is_no_hang(works: Readings) -> None:
    """Seven ranks wait at a barrier for the one that evaluates, at full or at low load, for twenty minutes."""
    waits = doing((0, WORKS), (1800, SPINS), (3000, WORKS))
    frames = trace(seconds=5400, devices=8, processes=ranks("llm"), each=split(doing((0, WORKS), (1800, works), (3000, WORKS)), waits))

    assert [] == changes(RULES, frames)


def test_an_evaluation_is_known_by_its_power_where_memory_traffic_is_not_read() -> None:
    """The rank that evaluates draws as much as ever."""
    works, spins = but(WORKS, memory_utilization_percent=None, utilization_percent=100.0), but(SPINS, memory_utilization_percent=None)
    waits = doing((0, works), (1800, spins), (3000, works))
    frames = trace(seconds=5400, devices=4, processes=ranks("llm"), each=split(doing((0, works)), waits))

    assert [] == changes(RULES, frames)


def test_one_rank_that_works_is_not_waited_for_for_ever() -> None:
    """After half an hour it is told, as a warning, and that rank is the suspect: an endless kernel, or an evaluation that is too long."""
    frames = trace(seconds=5400, step=20, devices=8, processes=ranks("llm"), each=lambda n: doing((0, WORKS)) if n == 5 else HANG)
    (incident,) = final(RULES, frames)

    assert ("warning", 8) == (incident.severity, len(incident.devices))
    assert Suspect("GPU-5", "98 % busy at 380 W while the others spin") == incident.suspect
    assert 1800 + 1800 <= (incident.fired_at or 0.0) - START <= 1800 + 2100


def test_several_ranks_at_work_are_another_matter() -> None:
    """Half of a job that waits for the other half, for hours, is how it was built, or two jobs without a name."""
    frames = trace(seconds=9000, step=20, devices=4, processes=ranks(None), each=lambda n: HANG if n < 2 else doing((0, WORKS)))

    assert [] == changes(RULES, frames)


def test_the_rank_that_does_nothing_is_the_suspect() -> None:
    """Seven spin and one is at rest: one incident about eight, and where to look first."""
    dead = doing((0, WORKS), (1800, RESTS))
    frames = trace(seconds=3600, devices=8, processes=ranks("llm"), each=lambda n: dead if n == 3 else HANG)
    (incident,) = final(RULES, frames)

    assert 8 == len(incident.devices)
    assert Suspect("GPU-3", "0 % busy at 66 W while the others spin") == incident.suspect
    assert "GPU-3" == (incident.device and incident.device.uuid)


def test_of_two_jobs_one_hangs() -> None:
    """The other works on: the incident is about the four GPUs of the one."""
    frames = trace(
        seconds=3600,
        devices=8,
        processes=lambda n, second: ranks("a" if n < 4 else "b")(n, second),
        each=lambda n: HANG if n < 4 else doing((0, WORKS)),
    )
    (incident,) = final(RULES, frames)

    assert ["GPU-0", "GPU-1", "GPU-2", "GPU-3"] == uuids(incident)
    assert "a" == (incident.workload and incident.workload.job)


@pytest.mark.parametrize("processes", [None, ranks(None)], ids=["not seen", "without a name"])
def test_gpus_that_nobody_holds_do_not_hide_a_hang(processes: Callable[[int, float], tuple[Process, ...]] | None) -> None:
    """Two GPUs of a host hang, six are free; nothing says what the job is called."""
    frames = trace(seconds=3600, devices=8, processes=processes, each=lambda n: HANG if n < 2 else doing((0, FREE)))

    assert [["GPU-0", "GPU-1"]] == [uuids(incident) for incident in final(RULES, frames)]


def test_a_pod_is_a_team() -> None:
    """Without a job's name the pod says which GPUs work together, whatever the others of the host do."""
    pod = lambda name: lambda n: (Process(100 + n, 60 * GIB, namespace="team", pod=name),)  # noqa: E731
    frames = trace(
        seconds=3600,
        devices=4,
        processes=lambda n, second: pod("train-0" if n < 2 else "serve-1")(n),
        each=lambda n: HANG if n < 2 else doing((0, WORKS)),
    )

    assert [["GPU-0", "GPU-1"]] == [uuids(incident) for incident in final(RULES, frames)]


def test_a_rank_that_was_not_seen_at_work_hangs_with_the_others() -> None:
    """Its GPU was listed late, so it has no working level of its own."""
    frames = trace(seconds=3600, devices=4, processes=ranks("llm"), listed=lambda n, second: n != 3 or second >= 1800, **HANG)

    assert [4] == [len(incident.devices) for incident in final(RULES, frames)]


def test_hosts_are_judged_apart() -> None:
    """Half of a job hangs on one host: the other host's GPUs are not named."""
    hangs = trace(seconds=3600, devices=2, processes=ranks("llm"), **HANG)
    works = trace(seconds=3600, devices=[gpu(7), gpu(8)], host="node-b", processes=ranks("llm"), **doing((0, WORKS)))
    both = [frame for pair in zip(hangs, works, strict=True) for frame in pair]

    assert [("node-a", ["GPU-0", "GPU-1"])] == [(incident.host, uuids(incident)) for incident in final(RULES, both)]


# -- the beginning ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "expected"), [(15, []), (40, ["warning"])])
def test_a_job_that_has_not_worked_yet_gets_longer(minutes: float, expected: list[str]) -> None:
    """Its ranks may wait at a barrier while one builds the dataset (dlrover#1730): told after twenty minutes, and never critical."""
    begins = [(0.0, WORKS), (1800.0, FREE), (2400.0, SPINS), (2400.0 + minutes * 60, WORKS)]
    processes = lambda n, second: ranks("a" if second < 2400 else "b")(n, second)  # noqa: E731

    assert expected == [i.severity for i in final(RULES, trace(seconds=6000, devices=4, processes=processes, **doing(*begins)))]


def test_a_job_that_prepares_at_rest_is_not_stuck() -> None:
    """Half an hour of compiling and tokenising with memory held: what the GPU did before was another job's work."""
    frames = trace(seconds=6000, devices=4, processes=ranks("b"), **doing((0, WORKS), (1800, FREE), (2400, RESTS), (4200, WORKS)))

    assert [] == changes(RULES, frames)


# -- at rest ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 10, 60])
def test_a_job_at_rest_after_work_is_told_after_ten_minutes(step: float) -> None:
    """The main process died and its ranks hold on: a warning, and no more, because it may be a pause."""
    (incident,) = final(RULES, trace(seconds=5400, step=step, devices=7, processes=ranks("xlm"), **doing((0, WORKS), (1200, RESTS))))

    assert ("warning", 7) == (incident.severity, len(incident.devices))
    assert 1200 + 540 <= (incident.fired_at or 0.0) - START <= 1200 + 720
    assert "job xlm stands still on 7 GPUs: 0 % busy with memory held, after it had been at work" == incident.summary


def test_steps_that_stand_still_make_it_critical() -> None:
    """The same with a step counter is no pause: critical fifteen minutes later."""
    frames = trace(seconds=4800, devices=2, processes=ranks("llm"), jobs=steps(until=1800), **doing((0, WORKS), (1800, RESTS)))
    happened = [c for c in changes(RULES, frames) if c.transition in ("fired", "updated")]

    assert [("fired", "warning"), ("updated", "critical")] == [(c.transition, c.incident.severity) for c in happened]
    assert 1800 + 1500 <= happened[1].at - START <= 1800 + 1680
    assert "its step counter stands still" in happened[1].incident.summary


ORDINARY: Mapping[str, Mapping[str, Value]] = {
    "a checkpoint of seven minutes an hour (FlagScale#1267)": every(3720, (0, WORKS), (3300, but(RESTS, utilization_percent=2.0))),
    "a starving loader (open_clip#703)": every(120, (0, WORKS), (90, RESTS)),
    "nine minutes between epochs": every(3600, (0, WORKS), (3060, RESTS)),
    "a validation at 8-20 %": every(1500, (0, WORKS), (1200, but(RESTS, utilization_percent=12.0, power_watts=90.0))),
    "full load for hours": doing((0, WORKS)),
    "nothing at all": doing((0, RESTS)),
    "free": doing((0, FREE)),
    "samples of 0 % between busy ones": every(60, (0, WORKS), (50, RESTS)),
}


@pytest.mark.parametrize("series", ORDINARY.values(), ids=ORDINARY)
@pytest.mark.parametrize("job", ["llm", None])
def test_ordinary_training_is_left_alone(series: Mapping[str, Value], job: str | None) -> None:
    """What every job does now and then."""
    assert [] == changes(RULES, trace(seconds=11_000, step=20, devices=2, processes=ranks(job), **series))


@pytest.mark.parametrize("job", [None, "notebook"])
def test_work_without_a_jobs_name_that_rests_is_idle_and_not_stuck(job: str | None) -> None:
    """A loaded model that nobody asks (llama.cpp#3717) is idle_gpu's; under a scheduler's name it is a warning that never gets worse."""
    found = final(RULES, trace(seconds=9000, step=20, processes=ranks(job), **doing((0, WORKS), (1200, RESTS))))

    assert ([] if job is None else ["warning"]) == [incident.severity for incident in found]


def test_a_job_that_ended_is_not_stuck() -> None:
    """Its memory is free."""
    frames = trace(seconds=5400, devices=2, processes=ranks("llm", until=1800), **doing((0, WORKS), (1800, FREE)))

    assert [] == changes(RULES, frames)


# -- what cannot be told ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [SPINS, RESTS], ids=["spins", "rests"])
def test_a_job_that_hangs_all_night_stays_told(state: Readings) -> None:
    """Hours after the last work nothing is left to compare with; that is no recovery."""
    frames = trace(seconds=36_000, step=60, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, state)))

    assert "resolved" not in [change.transition for change in changes(RULES, frames)]


@pytest.mark.parametrize("work", [WORKS, but(WORKS, power_watts=200.0)], ids=["as before", "at lower power"])
@pytest.mark.parametrize("hours", [1, 5])
def test_it_is_over_when_work_goes_on(work: Readings, hours: float) -> None:
    """However long it hung, and if it goes on more slowly."""
    resumed = 1800 + hours * 3600
    frames = trace(seconds=resumed + 1800, step=30, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, SPINS), (resumed, work)))
    happened = changes(RULES, frames)

    assert "resolved" == happened[-1].transition
    assert resumed + 120 <= happened[-1].at - START <= resumed + 300


@pytest.mark.parametrize("sensor", ["utilization_percent", "power_watts", "memory_used_bytes"])
@pytest.mark.parametrize("state", [SPINS, RESTS], ids=["spins", "rests"])
@pytest.mark.parametrize("until", [3120, 6000], ids=["for two minutes", "for good"])
def test_a_sensor_that_falls_silent_resolves_nothing(sensor: str, state: Readings, until: float) -> None:
    """The incident stays, also when the readings come back."""
    silent = but(state, **{sensor: None})
    frames = trace(seconds=6000, devices=4, processes=ranks("llm"), **doing((0, WORKS), (1800, state), (3000, silent), (until, state)))

    assert "resolved" not in [change.transition for change in changes(RULES, frames)]


@pytest.mark.parametrize("sensor", ["utilization_percent", "power_watts"])
def test_without_utilisation_or_power_nothing_is_told(sensor: str) -> None:
    """A recording of power alone, or of utilisation alone."""
    frames = trace(seconds=5400, devices=4, **doing((0, but(WORKS, **{sensor: None})), (1800, but(SPINS, **{sensor: None}))))

    assert [] == changes(RULES, frames)


def test_a_lost_gpu_leaves_the_incident_open() -> None:
    """One of the ranks is gone from the list; the others go on spinning."""
    frames = trace(seconds=5400, devices=4, processes=ranks("llm"), listed=lambda n, second: n != 2 or second < 3000, **HANG)

    assert ["fired", "updated"] == [c.transition for c in changes(RULES, frames) if c.transition != "opened"]


def test_few_samples_prove_nothing() -> None:
    """One look in five minutes cannot tell a hang from five samples of the same moment of a step."""
    assert [] == changes(RULES, trace(seconds=14_400, step=300, devices=4, processes=ranks("llm"), **HANG))


# -- words --------------------------------------------------------------------------------------------------------------------------


def test_the_incident_says_what_a_person_needs() -> None:
    """Which job, how many GPUs, how little power where how much is usual, what to do; and the readings."""
    (incident,) = final(RULES, trace(seconds=3600, devices=2, processes=ranks("llm"), **HANG))

    assert "job llm hangs on 2 GPUs: 100 % busy at 75 W where 380 W is usual, no memory traffic" == incident.summary
    assert (75.0, 152.0, "watts") == (incident.value, incident.threshold, incident.unit)
    assert "py-spy dump" in incident.action
    shown = {series.metric for series in incident.evidence}
    assert {"utilization_percent", "power_watts", "memory_utilization_percent"} == shown
    assert 2 * 1500 == pytest.approx(incident.wasted_gpu_seconds, abs=60)


def test_what_is_not_known_is_not_said() -> None:
    """No memory traffic was read, and no job has a name."""
    blind = {"memory_utilization_percent": None}
    (incident,) = final(RULES, trace(seconds=3600, devices=2, **doing((0, but(WORKS, **blind)), (1800, but(SPINS, **blind)))))

    assert "work hangs on 2 GPUs: 100 % busy at 75 W where 380 W is usual" == incident.summary


def test_patience_is_the_operators_choice() -> None:
    """Half an hour of waiting is allowed here, and another before it is critical."""
    rules = {"stuck_training": replace(StuckTraining(), lookback=1800.0, critical_seconds=1800.0)}
    frames = trace(seconds=7200, step=30, devices=4, processes=ranks("llm"), **HANG)
    happened = [c for c in changes(rules, frames) if c.transition in ("fired", "updated")]

    assert ["warning", "critical"] == [c.incident.severity for c in happened]
    assert [1800 + 1800, 1800 + 3600] == pytest.approx([c.at - START for c in happened], abs=240)


def test_an_instance_may_hang_as_well() -> None:
    """A job on the instances of a partitioned GPU, where they have readings of their own."""
    parts = [Device(f"MIG-{n}", parent="GPU-0") for n in range(2)]

    assert 1 == len(final(RULES, trace(seconds=3600, devices=parts, processes=ranks("llm"), **HANG)))
