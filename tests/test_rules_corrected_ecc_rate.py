"""Corrected memory errors that come by the second."""

from __future__ import annotations

import pytest
from traces import START, Value, changes, final, told, trace

from rules.corrected_ecc_rate import CorrectedEccRate

RULES = {"corrected_ecc_rate": CorrectedEccRate()}


def errors(per_second: float, since: float = 1800.0, until: float = float("inf"), before: float = 0.0) -> Value:
    """A counter that begins at 12 and rises by *before* a second, and by *per_second* from *since* to *until*."""
    return lambda second: 12.0 + float(int(before * second + per_second * max(0.0, min(second, until) - since)))


@pytest.mark.parametrize("counter", [20_114.0, 3.0])
def test_errors_of_another_year_are_history(counter: float) -> None:
    """A total says nothing about now."""
    assert [] == changes(RULES, trace(seconds=3600, ecc_corrected_aggregate_total=counter, ecc_corrected_volatile_total=3.0))


@pytest.mark.parametrize("metric", ["ecc_corrected_volatile_total", "ecc_corrected_aggregate_total"])
@pytest.mark.parametrize("step", [1, 10, 60])
def test_it_fires_after_five_minutes_of_a_storm(step: float, metric: str) -> None:
    """Whichever counter rises, however often it is read."""
    (incident,) = final(RULES, trace(seconds=3600, step=step, **{metric: errors(5.0)}))

    assert "warning" == incident.severity
    assert 1800 + 300 <= (incident.fired_at or 0.0) - START <= 1800 + 420
    assert incident.summary.endswith(" corrected memory errors a second, hardly any before")


@pytest.mark.parametrize(("per_second", "expected"), [(0.9, 0), (1.2, 1)])
def test_one_a_second_decides(per_second: float, expected: int) -> None:
    """A few a minute are a board that ages."""
    assert expected == len(final(RULES, trace(seconds=3600, ecc_corrected_volatile_total=errors(per_second))))


def test_a_burst_is_not_a_rate() -> None:
    """A scrub finds ten thousand at once, and a storm of two minutes is over before it counts."""
    burst = trace(seconds=3600, ecc_corrected_volatile_total=lambda s: 0.0 if s < 1800 else 10_000.0)
    short = trace(seconds=3600, ecc_corrected_volatile_total=errors(50.0, until=1800 + 150))

    assert [] == told(changes(RULES, burst))
    assert [] == told(changes(RULES, short))


@pytest.mark.parametrize(("per_second", "expected"), [(3.0, 0), (8.0, 1)])
def test_it_must_be_ten_times_the_usual_rate(per_second: float, expected: int) -> None:
    """A board that has had half an error a second for an hour is another matter than one that had none."""
    frames = trace(seconds=7200, step=30, ecc_corrected_volatile_total=errors(per_second, since=3600, before=0.5))

    assert expected == len(final(RULES, frames))


def test_a_driver_reload_is_no_storm() -> None:
    """The volatile counter falls to 0 and stays there; the first value after our start is a baseline (candle#733)."""
    assert [] == changes(RULES, trace(seconds=3600, ecc_corrected_volatile_total=lambda s: 90_000.0 if s < 1800 else 0.0))


def test_it_resolves_ten_minutes_after_the_last_minute_of_the_storm() -> None:
    """Errors that come in waves are one incident."""
    waves = errors(5.0, until=3000)
    later = errors(5.0, since=3300, until=4200)
    frames = trace(seconds=7200, ecc_corrected_volatile_total=lambda s: waves(s) + later(s))  # type: ignore[misc, operator]

    assert ["2130 fired corrected_ecc_rate warning", "4920 resolved corrected_ecc_rate warning"] == told(changes(RULES, frames))


def test_a_storm_that_lasts_does_not_become_usual() -> None:
    """When it is older than half of what is remembered, it is all that is known; that is no recovery."""
    frames = trace(seconds=21_600, step=60, ecc_corrected_volatile_total=errors(5.0))

    assert ["2160 fired corrected_ecc_rate warning"] == told(changes(RULES, frames))


def test_a_counter_that_falls_silent_resolves_nothing() -> None:
    """A storm may stall the driver until nothing can be read (NVSentinel#1748)."""
    storm = errors(5.0)
    frames = trace(seconds=7200, ecc_corrected_volatile_total=lambda s: None if s > 2400 else storm(s))  # type: ignore[misc, operator]

    assert ["2130 fired corrected_ecc_rate warning"] == told(changes(RULES, frames))


def test_a_card_without_ecc_is_not_judged() -> None:
    """GeForce boards count nothing."""
    assert [] == changes(RULES, trace(seconds=600))
