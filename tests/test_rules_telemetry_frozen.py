"""A GPU whose readings repeat to the last digit while it works."""

from __future__ import annotations

import math

import pytest
from traces import START, Value, changes, final, told, trace

from rules.telemetry_frozen import TelemetryFrozen

RULES = {"telemetry_frozen": TelemetryFrozen()}


def noisy(value: float, by: float) -> Value:
    return lambda second: value + by * math.sin(second * 7.3)


LIVE: dict[str, Value] = {
    "power_watts": noisy(331.27, 3.0),
    "temperature_celsius": 64.0,
    "utilization_percent": 97.0,
    "sm_clock_mhz": 1380.0,
}


def frozen(since: float = 1800.0, until: float = float("inf"), **more: Value) -> dict[str, Value]:
    """Series that stand still from *since* until just before *until*."""

    def still(value: Value) -> Value:
        return (lambda second: value(since if since <= second < until else second)) if callable(value) else value

    return {name: still(value) for name, value in {**LIVE, **more}.items()}


def test_a_steady_load_is_alive() -> None:
    """Temperature, clock and utilisation may well stand still for hours: the power sensor has its noise."""
    assert [] == changes(RULES, trace(seconds=7200, **LIVE))


@pytest.mark.parametrize("step", [1, 10, 30])
def test_it_fires_after_ten_minutes_without_the_least_change(step: float) -> None:
    """Also on a host that is sampled twice a minute (pai#889)."""
    (incident,) = final(RULES, trace(seconds=3600, step=step, **frozen()))

    assert "warning" == incident.severity
    assert 1800 + 590 <= (incident.fired_at or 0.0) - START <= 1800 + 660


def test_nine_minutes_are_a_slow_exporter() -> None:
    """A cache that is renewed every few minutes is not frozen."""
    assert [] == told(changes(RULES, trace(seconds=7200, **frozen(until=1800 + 540))))


def test_at_rest_readings_repeat() -> None:
    """An idle board draws the same power to the digit for hours; so does one that only displays."""
    rest = {"power_watts": 56.25, "temperature_celsius": 31.0, "utilization_percent": 0.0, "sm_clock_mhz": 210.0}

    assert [] == changes(RULES, trace(seconds=7200, **rest))
    assert [] == changes(RULES, trace(seconds=7200, **{**rest, "utilization_percent": 4.0}))


def test_whole_watts_may_repeat_honestly() -> None:
    """A source that rounds shows a GPU at its power limit as 400 W for days."""
    assert [] == changes(RULES, trace(seconds=7200, **{**LIVE, "power_watts": 400.0}))


@pytest.mark.parametrize(
    "more",
    [
        {"temperature_celsius": lambda s: 64.0 + (s // 300) % 2},
        {"utilization_percent": noisy(90.0, 5.0)},
        {"memory_utilization_percent": noisy(40.0, 9.0)},
        {"energy_joules_total": lambda s: 1e6 + 331.0 * s},
    ],
)
def test_one_reading_that_moves_proves_that_they_are_fresh(more: dict[str, Value]) -> None:
    """A power sensor that hangs alone is not a telemetry that hangs."""
    assert [] == told(changes(RULES, trace(seconds=7200, **{**LIVE, "power_watts": 331.27, **more})))


def test_a_few_samples_prove_nothing() -> None:
    """Once a minute makes eleven of them in ten minutes."""
    assert [] == changes(RULES, trace(seconds=7200, step=60, **frozen(since=0.0)))


@pytest.mark.parametrize("missing", ["power_watts", "temperature_celsius", "sm_clock_mhz", "utilization_percent"])
def test_without_all_of_the_four_nothing_can_be_said(missing: str) -> None:
    """The fewer readings, the likelier that they repeat."""
    assert [] == changes(RULES, trace(seconds=7200, **{**frozen(), missing: None}))


def test_it_resolves_when_a_reading_moves() -> None:
    """A minute after the first that differs."""
    frames = trace(seconds=7200, **frozen(until=3600.0))

    assert ["2400 fired telemetry_frozen warning", "3660 resolved telemetry_frozen warning"] == told(changes(RULES, frames))


def test_readings_that_stop_resolve_nothing() -> None:
    """From frozen to silent is no recovery."""
    series = frozen()
    ends = {name: (lambda s, v=value: None if s > 3000 else v(s) if callable(v) else v) for name, value in series.items()}

    assert ["firing"] == [incident.state for incident in final(RULES, trace(seconds=7200, **ends))]


def test_all_gpus_of_a_host_are_one_incident() -> None:
    """An exporter that hangs freezes all of them."""
    (incident,) = final(RULES, trace(seconds=3600, devices=8, **frozen()))

    assert 8 == len(incident.devices)
    assert incident.summary.endswith("64 degC, 97 %, 1380 MHz in all 61 samples of 10 minutes; 8 GPUs of this host alike")
