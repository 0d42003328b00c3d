"""A GPU that slows itself down for heat."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from traces import START, Value, changes, final, told, trace

from detector.frame import Device
from rules.thermal_throttling import ThermalThrottling

RULES = {"thermal_throttling": ThermalThrottling()}

IDLE, APPLICATION_CLOCKS, POWER_CAP, HW_SLOWDOWN, SYNC_BOOST = 0x1, 0x2, 0x4, 0x8, 0x10
SOFTWARE, HARDWARE, BRAKE = 0x20, 0x40, 0x80

BUSY = {"utilization_percent": 97.0}


def bits(mask: int, since: float = 600.0, until: float = float("inf")) -> Value:
    """Clock event reasons: *mask* from *since* until just before *until*, else none."""
    return lambda second: float(mask) if since <= second < until else 0.0


@pytest.mark.parametrize("mask", [0, POWER_CAP, APPLICATION_CLOCKS, SYNC_BOOST, BRAKE, HW_SLOWDOWN | BRAKE, HW_SLOWDOWN])
def test_reasons_other_than_heat_are_none_of_its_business(mask: int) -> None:
    """A power cap is normal at full load; brake and P-state changes have rules of their own."""
    assert [] == changes(RULES, trace(seconds=7200, step=30, clock_event_reasons=float(mask), **BUSY))


def test_a_gpu_at_rest_has_the_idle_bit() -> None:
    """Clocks are low because there is nothing to do."""
    assert [] == changes(RULES, trace(seconds=3600, clock_event_reasons=float(IDLE), utilization_percent=0.0))


@pytest.mark.parametrize(("step", "fired"), [(1, 690), (10, 690), (60, 660)])
def test_hardware_that_slows_down_is_critical_after_a_minute(step: float, fired: float) -> None:
    """Most samples of a minute, for a minute; the sampling rate makes little difference."""
    frames = trace(seconds=1200, step=step, clock_event_reasons=bits(HARDWARE | HW_SLOWDOWN), **BUSY)

    assert [f"{fired} fired thermal_throttling critical"] == told(changes(RULES, frames))


@pytest.mark.parametrize("step", [1, 10, 60])
def test_software_that_slows_down_is_a_warning_after_ten_minutes(step: float) -> None:
    """It is the driver's way to keep the temperature where it should be: patience, and no more than a warning."""
    (incident,) = final(RULES, trace(seconds=3600, step=step, clock_event_reasons=bits(SOFTWARE, since=1200), **BUSY))

    assert "warning" == incident.severity
    assert 1200 + 600 <= (incident.fired_at or 0.0) - START <= 1200 + 690


def test_eight_minutes_of_software_are_not_ten() -> None:
    """A spell at the start of a job, until the fans have caught up."""
    assert [] == told(changes(RULES, trace(seconds=3600, clock_event_reasons=bits(SOFTWARE, until=1080), **BUSY)))


def test_software_on_and_off_counts_if_it_goes_on() -> None:
    """A GB10 whose bit is set in every third sample is slowed down all the time (open-gpu-kernel-modules#1358)."""
    flickers = lambda second: float(SOFTWARE) if second % 15 == 0 else 0.0  # noqa: E731
    rare = lambda second: float(SOFTWARE) if second % 40 == 0 else 0.0  # noqa: E731

    assert ["warning"] == [i.severity for i in final(RULES, trace(seconds=3600, step=5, clock_event_reasons=flickers, **BUSY))]
    assert [] == final(RULES, trace(seconds=3600, step=5, clock_event_reasons=rare, **BUSY))


@pytest.mark.parametrize(("share", "expected"), [(0.4, 0), (0.6, 1)])
def test_half_of_the_samples_decide_for_hardware(share: float, expected: int) -> None:
    """Four of ten samples are not most of them, six are."""
    frames = trace(seconds=1800, step=1, clock_event_reasons=lambda s: float(HARDWARE) if s % 10 < share * 10 else 0.0, **BUSY)

    assert expected == len(final(RULES, frames))


@pytest.mark.parametrize("mask", [HARDWARE, SOFTWARE])
def test_at_rest_it_does_not_matter(mask: int) -> None:
    """Nobody waits for a GPU that has nothing to do."""
    assert [] == changes(RULES, trace(seconds=3600, clock_event_reasons=float(mask), utilization_percent=5.0))


def counted(per_second: float, since: float = 600.0) -> Value:
    """The driver's counter of seconds, which the samples of the bit missed."""
    return lambda second: 3.0 + max(0.0, second - since) * per_second


@pytest.mark.parametrize("step", [1, 10, 60])
@pytest.mark.parametrize(("per_second", "expected"), [(0.4, 0), (0.7, 1)])
def test_what_falls_between_the_samples_is_in_the_drivers_count(step: float, per_second: float, expected: int) -> None:
    """Slowed down 40 s of each minute and never in a sample: the counter knows."""
    frames = trace(seconds=2400, step=step, clock_event_reasons=0.0, hw_thermal_seconds_total=counted(per_second), **BUSY)

    assert ["critical"] * expected == [incident.severity for incident in final(RULES, frames)]


@pytest.mark.parametrize("step", [1, 10, 60])
def test_a_leap_of_the_count_is_no_throttling_now(step: float) -> None:
    """Twenty milliseconds in two hours (DCGM#242), or an hour of heat while nobody recorded."""
    for leap in (0.02, 3600.0):
        count = lambda second, leap=leap: 3.1 + (leap if second >= 1800 else 0.0)  # noqa: E731

        assert [] == told(changes(RULES, trace(seconds=3600, step=step, clock_event_reasons=0.0, hw_thermal_seconds_total=count, **BUSY)))


def test_it_resolves_two_minutes_after_the_minute_is_mostly_free_of_it() -> None:
    """Thirty seconds until most of the minute is free, then the patience."""
    frames = trace(seconds=2400, clock_event_reasons=bits(HARDWARE, until=1200), **BUSY)

    assert ["690 fired thermal_throttling critical", "1350 resolved thermal_throttling critical"] == told(changes(RULES, frames))


@pytest.mark.parametrize(("mask", "since"), [(HARDWARE, 690), (SOFTWARE, 1230), (HARDWARE | SOFTWARE, 690)])
def test_bits_that_fall_silent_resolve_nothing(mask: int, since: float) -> None:
    """Neither the minute of hardware nor the ten of software empty themselves into a recovery."""
    severity = "critical" if mask & HARDWARE else "warning"
    frames = trace(seconds=7200, clock_event_reasons=lambda s: 0.0 if s < 600 else float(mask) if s < 2400 else None, **BUSY)

    assert [f"{since} fired thermal_throttling {severity}"] == told(changes(RULES, frames))


@pytest.mark.parametrize("mask", [HARDWARE, SOFTWARE])
def test_a_gap_in_the_bits_resolves_nothing(mask: int) -> None:
    """Five minutes without them, and they are as before."""
    frames = trace(seconds=4800, clock_event_reasons=lambda s: None if 2400 <= s < 2700 else float(mask) if s >= 600 else 0.0, **BUSY)

    assert ["fired"] == [c.transition for c in changes(RULES, frames) if c.transition != "opened"]


def test_nothing_is_told_of_bits_that_were_never_read() -> None:
    """Not supported is not healthy, and not sick either."""
    assert [] == changes(RULES, trace(seconds=3600, temperature_celsius=92.0, **BUSY))


def test_a_card_of_unknown_utilisation_counts_as_busy() -> None:
    """Clocks are not slowed for heat on a GPU at rest."""
    assert 1 == len(final(RULES, trace(seconds=1200, clock_event_reasons=bits(HARDWARE))))


def only(n: int) -> Callable[[int], dict[str, Value]]:
    """The bits for one GPU of several."""
    return lambda k: {"clock_event_reasons": bits(HARDWARE) if k == n else 0.0}


def test_one_gpu_of_eight_is_named() -> None:
    """Its neighbours are not concerned."""
    found = final(RULES, trace(seconds=1200, devices=8, each=only(6), **BUSY))

    assert [["GPU-6"]] == [[device.uuid for device in incident.devices] for incident in found]


def test_the_instances_of_one_board_are_one_incident() -> None:
    """Some readers give every MIG instance the bits of its board."""
    parts = [Device("GPU-0", index=0), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(3))]

    assert 1 == len(final(RULES, trace(seconds=1200, devices=parts, clock_event_reasons=bits(HARDWARE), **BUSY)))


def test_it_grows_worse_with_hardware() -> None:
    """Software first, then hardware: one incident."""
    frames = trace(seconds=3600, clock_event_reasons=lambda s: float(SOFTWARE if s < 2400 else SOFTWARE | HARDWARE), **BUSY)

    assert ["fired warning", "updated critical"] == [
        f"{c.transition} {c.incident.severity}" for c in changes(RULES, frames) if c.transition != "opened"
    ]


def test_the_incident_says_what_a_person_needs() -> None:
    """Who slows it down, how much of the time, how hot, and what is left of the clock."""
    frames = trace(seconds=1200, clock_event_reasons=bits(HARDWARE), temperature_celsius=91.0, sm_clock_mhz=1005.0, **BUSY)
    (incident,) = final(RULES, frames)

    assert "Hardware slows the GPU down for heat, 100% of the last 1 min, at 91 degC; SM clock 1005 of 1410 MHz" == incident.summary
    assert (1.0, 0.5, "share") == (incident.value, incident.threshold, incident.unit)
    assert "cooling" in incident.action
    assert {"temperature_celsius", "sm_clock_mhz", "hw_thermal_active", "sw_thermal_active"} == {s.metric for s in incident.evidence}


def test_what_is_not_known_is_not_said() -> None:
    """Without clock and temperature the sentence is shorter, not full of gaps."""
    (incident,) = final(RULES, trace(seconds=1200, clock_event_reasons=bits(HARDWARE), **BUSY))

    assert "Hardware slows the GPU down for heat, 100% of the last 1 min" == incident.summary
