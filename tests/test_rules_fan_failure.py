"""A hot GPU whose fan stands still."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from rules.fan_failure import FanFailure

RULES = {"fan_failure": FanFailure()}


def stops(speed: float, since: float = 600.0, until: float = float("inf")) -> Value:
    """A fan speed that is 0 from *since* until just before *until*."""
    return lambda second: 0.0 if since <= second < until else speed


def test_a_fan_that_turns_is_fine_however_hot_it_is() -> None:
    """Heat alone is another rule's."""
    assert [] == changes(RULES, trace(seconds=3600, fan_speed_percent=100.0, fan_speed_rpm=3200.0, temperature_celsius=91.0))


@pytest.mark.parametrize("degrees", [44.0, 60.0, 69.0])
def test_a_fan_may_rest_while_the_gpu_is_cool(degrees: float) -> None:
    """Below some 60 degrees that is a feature."""
    assert [] == changes(RULES, trace(seconds=3600, fan_speed_percent=0.0, fan_speed_rpm=0.0, temperature_celsius=degrees))


@pytest.mark.parametrize("sensors", [{"fan_speed_percent": stops(60.0)}, {"fan_speed_rpm": stops(1900.0), "fan_speed_percent": 60.0}])
def test_a_standing_fan_on_a_hot_gpu_is_critical_after_a_minute(sensors: dict[str, Value]) -> None:
    """Measured, or what the driver intends where nothing is measured."""
    assert ["660 fired fan_failure critical"] == told(changes(RULES, trace(seconds=1200, temperature_celsius=78.0, **sensors)))


def test_the_measured_speed_wins() -> None:
    """The driver intends nothing, yet the fan turns: set by hand, or by another controller."""
    assert [] == changes(RULES, trace(seconds=1200, temperature_celsius=78.0, fan_speed_percent=0.0, fan_speed_rpm=1500.0))


def test_it_needs_a_minute() -> None:
    """A fan that starts late, as the card warms up, is no failure."""
    assert [] == told(changes(RULES, trace(seconds=1200, temperature_celsius=72.0, fan_speed_percent=stops(60.0, until=660))))


def test_it_resolves_when_the_fan_turns_or_the_gpu_has_cooled() -> None:
    """A minute later."""
    turns = trace(seconds=2400, temperature_celsius=78.0, fan_speed_rpm=stops(1900.0, until=1200))
    cools = trace(seconds=2400, temperature_celsius=lambda s: 78.0 if s < 1200 else 60.0, fan_speed_rpm=stops(1900.0))

    assert ["660 fired fan_failure critical", "1260 resolved fan_failure critical"] == told(changes(RULES, turns))
    assert ["660 fired fan_failure critical", "1260 resolved fan_failure critical"] == told(changes(RULES, cools))


def test_a_sensor_that_falls_silent_resolves_nothing() -> None:
    """What the driver intends does not speak for the speed that was measured before."""
    frames = trace(seconds=3600, temperature_celsius=78.0, fan_speed_percent=60.0, fan_speed_rpm=lambda s: None if s > 900 else 0.0)

    assert ["60 fired fan_failure critical"] == told(changes(RULES, frames))


def test_a_board_without_a_fan_is_not_judged() -> None:
    """Data centre boards are cooled by the server."""
    assert [] == changes(RULES, trace(seconds=1200, temperature_celsius=88.0))
    assert [] == changes(RULES, trace(seconds=1200, fan_speed_percent=0.0))


def test_the_incident_says_whether_anything_is_asked_of_the_fan() -> None:
    """Blocked, or never told to turn."""
    (blocked,) = final(RULES, trace(seconds=1200, temperature_celsius=81.0, fan_speed_percent=86.0, fan_speed_rpm=0.0))
    (forgotten,) = final(RULES, trace(seconds=1200, temperature_celsius=81.0, fan_speed_percent=0.0))

    assert "the fan stands still at 81 degC, although 86 % is asked of it" == blocked.summary
    assert "the fan stands still at 81 degC, and nothing is asked of it" == forgotten.summary
