"""The one GPU of a job that all others wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from traces import START, Value, changes, final, gpu, told, trace

from detector.frame import Device, Process
from rules.clock_stuck_low import ClockStuckLow
from rules.straggler import Straggler

RULES = {"straggler": Straggler()}
Each = Callable[[int], Mapping[str, Value]]
PEER: Mapping[str, Value] = {"utilization_percent": 98.0, "sm_clock_mhz": 1380.0, "power_watts": 350.0}


def slow(clock: float = 840.0, watts: float = 210.0, since: float = 600.0, until: float = float("inf"), **more: Value) -> Each:
    """Eight alike, and number 5 at *clock* and *watts* from *since* until just before *until*."""
    late = {
        "sm_clock_mhz": lambda s: clock if since <= s < until else 1380.0,
        "power_watts": lambda s: watts if since <= s < until else 350.0,
        **more,
    }
    return lambda n: {**PEER, **late} if n == 5 else PEER


def ranks(job: str | None = "llm-7b", pod: str | None = None) -> Callable[[int, float], tuple[Process, ...]]:
    return lambda n, second: (Process(100 + n, memory_used_bytes=1e9, job=job, pod=pod),)


def test_ranks_that_keep_step_are_fine() -> None:
    """A few percent between chips are what their makers guarantee."""
    each: Each = lambda n: {**PEER, "sm_clock_mhz": 1380.0 - 20.0 * n, "power_watts": 398.0 - n}  # noqa: E731

    assert [] == changes(RULES, trace(seconds=3600, devices=8, processes=ranks(), each=each))


@pytest.mark.parametrize("step", [10, 30, 60])
def test_one_slow_rank_is_told_after_ten_minutes(step: float) -> None:
    """It alone is named, with the cause that is to be seen."""
    each = slow(pcie_link_width=4.0, pcie_link_width_max=16.0)
    (incident,) = final(RULES, trace(seconds=3600, step=step, devices=8, processes=ranks(), each=each))

    assert "warning" == incident.severity
    assert 600 + 600 <= (incident.fired_at or 0.0) - START <= 600 + 960
    assert ["GPU-5"] == [device.uuid for device in incident.devices]
    assert ("GPU-5", "its PCIe link has 4 of 16 lanes") == ((incident.suspect.uuid, incident.suspect.reason) if incident.suspect else None)
    assert incident.summary.startswith("GPU holds job llm-7b up: SM clock 840 MHz, median of its peers 1380; ")


@pytest.mark.parametrize(("clock", "expected"), [(1120.0, 0), (1080.0, 1)])
def test_four_fifths_of_the_median_decide(clock: float, expected: int) -> None:
    """1104 MHz here."""
    assert expected == len(final(RULES, trace(seconds=3600, step=30, devices=8, processes=ranks(), each=slow(clock))))


def test_eight_minutes_are_not_ten() -> None:
    """A spell of heat."""
    assert [] == told(changes(RULES, trace(seconds=3600, devices=8, processes=ranks(), each=slow(until=600 + 480))))


def test_who_does_the_heaviest_part_runs_slowest_at_its_power_limit() -> None:
    """A pipeline stage that draws more than its peers at a lower clock holds nobody up that it could help."""
    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=8, processes=ranks(), each=slow(1000.0, watts=399.0))))


def test_stages_that_differ_in_power_and_load_are_a_pipeline() -> None:
    """Clocks are equal, the rest is by design."""
    each: Each = lambda n: {**PEER, "utilization_percent": 60.0 + 5.0 * n, "power_watts": 180.0 + 25.0 * n}  # noqa: E731

    assert [] == changes(RULES, trace(seconds=3600, step=30, devices=8, processes=ranks(), each=each))


@pytest.mark.parametrize("more", [{"utilization_percent": 30.0}, {"utilization_percent": None}, {"sm_clock_mhz": None}])
def test_a_card_at_rest_or_unread_is_not_compared(more: dict[str, Value]) -> None:
    """Low clocks are what rest looks like."""
    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=8, processes=ranks(), each=slow(since=0.0, **more))))


def test_two_are_no_team() -> None:
    """Which of them is the odd one?"""
    each: Each = lambda n: slow()(5 if n else 0)  # noqa: E731

    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=2, processes=ranks(), each=each)))


def test_other_jobs_and_other_models_are_no_peers() -> None:
    """Eight jobs on eight GPUs; an old card among new ones."""
    alone = lambda n, second: (Process(100 + n, job=f"job-{n}"),)  # noqa: E731
    mixed = [gpu(n) if n != 5 else Device("GPU-5", index=5, name="Tesla T4") for n in range(8)]

    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=8, processes=alone, each=slow())))
    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=mixed, processes=ranks(), each=slow())))
    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=8, each=slow())))


def test_a_pod_makes_a_team_as_well_as_a_job() -> None:
    """Where nobody tells the job's name."""
    (incident,) = final(RULES, trace(seconds=3600, step=30, devices=8, processes=ranks(job=None, pod="train-0"), each=slow()))

    assert incident.summary.startswith("GPU holds its job up")


def test_all_slow_together_is_nobodys_fault() -> None:
    """A job that is light, or a limit for all."""
    assert [] == told(changes(RULES, trace(seconds=3600, step=30, devices=8, processes=ranks(), **{**PEER, "sm_clock_mhz": 700.0})))


def test_it_resolves_when_the_rank_keeps_step_again() -> None:
    """Once the mean is back, and a minute."""
    happened = changes(RULES, trace(seconds=5400, step=30, devices=8, processes=ranks(), each=slow(until=2400)))
    fired, resolved = [c for c in happened if c.transition in ("fired", "resolved")]

    assert ("fired", "resolved") == (fired.transition, resolved.transition)
    assert 2400 + 150 <= resolved.at - START <= 2400 + 400


def test_silence_resolves_nothing() -> None:
    """Nor do peers that end before it: there is nobody left to compare with."""
    silent = slow(sm_clock_mhz=lambda s: 840.0 if 600 <= s < 2400 else None if s >= 2400 else 1380.0)
    ended: Each = lambda n: slow()(5) if n == 5 else {**PEER, "utilization_percent": lambda s: 98.0 if s < 2400 else 0.0}  # noqa: E731

    for each in (silent, ended):
        assert ["firing"] == [i.state for i in final(RULES, trace(seconds=5400, step=30, devices=8, processes=ranks(), each=each))]


def test_a_clock_that_is_stuck_is_the_cause() -> None:
    """One root cause, one alarm."""
    rules = {**RULES, "clock_stuck_low": ClockStuckLow()}
    found = {i.rule: i for i in final(rules, trace(seconds=3600, step=30, devices=8, processes=ranks(), each=slow()))}

    assert found["clock_stuck_low"].id == found["straggler"].cause
