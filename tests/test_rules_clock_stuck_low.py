"""A GPU at full load whose clocks stay low."""

from __future__ import annotations

import pytest
from traces import START, Value, changes, final, told, trace

from rules.clock_stuck_low import ClockStuckLow

RULES = {"clock_stuck_low": ClockStuckLow()}
BUSY = {"utilization_percent": 98.0, "power_watts": 180.0}
FULL = 1380.0


def drops(to: float, since: float = 1800.0, until: float = float("inf")) -> Value:
    """An SM clock of full load that is *to* from *since* until just before *until*."""
    return lambda second: to if since <= second < until else FULL


def test_a_gpu_at_its_usual_clock_is_fine() -> None:
    """Two hours of work."""
    assert [] == changes(RULES, trace(seconds=7200, sm_clock_mhz=FULL, **BUSY))


@pytest.mark.parametrize("step", [1, 10, 60])
def test_it_fires_after_five_minutes_at_a_low_clock(step: float) -> None:
    """Its own clock at load before is what it is measured by."""
    (incident,) = final(RULES, trace(seconds=3600, step=step, sm_clock_mhz=drops(840.0), **BUSY))

    assert "warning" == incident.severity
    assert 1800 + 300 <= (incident.fired_at or 0.0) - START <= 1800 + 360
    assert "SM clock stays at 840 MHz at full load, where 1380 MHz were usual at load; the driver gives no reason" == incident.summary
    assert (840.0, 897.0, "mhz") == (incident.value, incident.threshold, incident.unit)


@pytest.mark.parametrize("clock", [900.0, 1100.0])
def test_two_thirds_of_the_usual_clock_are_not_stuck(clock: float) -> None:
    """A heavier kernel, a warmer day."""
    assert [] == told(changes(RULES, trace(seconds=7200, sm_clock_mhz=drops(clock), **BUSY)))


def test_one_sample_at_full_clock_clears_it() -> None:
    """Clocks that go up and down are throttled, not stuck."""
    assert [] == told(changes(RULES, trace(seconds=7200, sm_clock_mhz=lambda s: FULL if s % 200 == 0 else 600.0, **BUSY)))


def test_a_low_clock_from_the_start_needs_to_be_very_low() -> None:
    """Half of what the board can do: 345 MHz after a bad reset, but not the base clock of an old board (K80) or a locked one."""
    assert 1 == len(final(RULES, trace(seconds=3600, sm_clock_mhz=345.0, **BUSY)))
    assert [] == final(RULES, trace(seconds=3600, sm_clock_mhz=562.0, **{**BUSY, "sm_clock_max_mhz": 875.0}))
    assert [] == final(RULES, trace(seconds=3600, sm_clock_mhz=780.0, **BUSY))


def test_a_clock_that_an_admin_chose_is_not_stuck() -> None:
    """The application clock is what to expect, not the maximum."""
    chosen = {"sm_clock_application_mhz": lambda s: 1410.0 if s < 1800 else 615.0}

    assert [] == told(changes(RULES, trace(seconds=7200, sm_clock_mhz=drops(615.0), **BUSY, **chosen)))


@pytest.mark.parametrize("more", [{"power_watts": 395.0}, {"power_watts": None, "clock_event_reasons": 4.0}])
def test_a_gpu_at_its_power_limit_runs_as_fast_as_it_may(more: dict[str, Value]) -> None:
    """Heavy kernels take an H100 to half of its clock (azurehpc#595)."""
    assert [] == told(changes(RULES, trace(seconds=7200, sm_clock_mhz=drops(650.0), **{**BUSY, **more})))


def test_a_power_cap_far_below_the_limit_is_no_excuse() -> None:
    """The bit says cap, the meter says half: something else caps it."""
    frames = trace(seconds=3600, sm_clock_mhz=drops(600.0), clock_event_reasons=4.0, **BUSY)

    assert ["the driver caps its power, at 180 of 400 W"] == [i.summary.rpartition("; ")[2] for i in final(RULES, frames)]


@pytest.mark.parametrize("more", [{"utilization_percent": 60.0}, {"clock_event_reasons": 1.0}])
def test_without_full_load_clocks_may_be_low(more: dict[str, Value]) -> None:
    """Light work, and the bit that says idle."""
    assert [] == told(changes(RULES, trace(seconds=7200, sm_clock_mhz=drops(300.0), **{**BUSY, **more})))


def test_it_resolves_when_the_clock_is_back() -> None:
    """Five minutes after the first sample at full clock."""
    frames = trace(seconds=7200, sm_clock_mhz=drops(600.0, until=3600.0), **BUSY)

    assert ["2100 fired clock_stuck_low warning", "3900 resolved clock_stuck_low warning"] == told(changes(RULES, frames))


def test_it_lasts_although_the_good_time_is_forgotten() -> None:
    """After three hours the GPU has no better time to remember; that is no recovery."""
    frames = trace(seconds=21_600, step=30, sm_clock_mhz=drops(840.0), **BUSY)

    assert ["2100 fired clock_stuck_low warning"] == told(changes(RULES, frames))


@pytest.mark.parametrize("metric", ["sm_clock_mhz", "utilization_percent"])
def test_a_sensor_that_falls_silent_resolves_nothing(metric: str) -> None:
    """Nobody knows the clock, or the load."""
    series: dict[str, Value] = {**BUSY, "sm_clock_mhz": drops(600.0)}
    before = series[metric]
    frames = trace(seconds=7200, **{**series, metric: lambda s: None if s > 2400 else before(s) if callable(before) else before})

    assert ["2100 fired clock_stuck_low warning"] == told(changes(RULES, frames))


def test_without_a_clock_or_utilisation_nothing_can_be_said() -> None:
    """A MIG GPU does not tell how busy it is."""
    assert [] == changes(RULES, trace(seconds=3600, sm_clock_mhz=300.0))
    assert [] == changes(RULES, trace(seconds=3600, **BUSY))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"clock_event_reasons": float(0x80 | 0x8)}, "the power brake is pulled"),
        ({"clock_event_reasons": float(0x8)}, "hardware slows it down"),
        ({"power_default_limit_watts": 500.0}, "its power limit is 400 of 500 W"),
        ({"pcie_link_width": 4.0, "pcie_link_width_max": 16.0}, "its PCIe link has 4 of 16 lanes"),
    ],
)
def test_it_says_what_is_to_be_seen(more: dict[str, Value], why: str) -> None:
    """The reason that the driver gives, or what else is odd about the GPU."""
    (incident,) = final(RULES, trace(seconds=3600, sm_clock_mhz=drops(600.0), **BUSY, **more))

    assert why == incident.summary.rpartition("; ")[2]
