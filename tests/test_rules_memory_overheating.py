"""Device memory at its temperature limit."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from rules.memory_overheating import MemoryOverheating

RULES = {"memory_overheating": MemoryOverheating()}
CORE = {"temperature_celsius": 64.0}
LIMIT = {"memory_temperature_max_celsius": 95.0}


def hot(degrees: float, since: float = 600.0, until: float = float("inf")) -> Value:
    """A memory temperature that is *degrees* from *since* until just before *until*, else 80."""
    return lambda second: degrees if since <= second < until else 80.0


@pytest.mark.parametrize(
    ("degrees", "severity"), [(89.0, None), (90.0, "warning"), (94.0, "warning"), (95.0, "critical"), (98.0, "critical")]
)
def test_the_cards_own_limit_decides(degrees: float, severity: str | None) -> None:
    """Five degrees below is a warning, at it critical, whatever the core says."""
    frames = trace(seconds=1200, memory_temperature_celsius=hot(degrees), **CORE, **LIMIT)

    assert [f"670 fired memory_overheating {severity}"] * bool(severity) == told(changes(RULES, frames))


@pytest.mark.parametrize(("degrees", "severities"), [(104.0, []), (106.0, ["warning"])])
def test_without_a_limit_only_what_no_memory_stands_is_told(degrees: float, severities: list[str]) -> None:
    """GDDR6X may be at 100 where HBM may not; never critical on a guess."""
    frames = trace(seconds=1200, memory_temperature_celsius=hot(degrees), **CORE)

    assert severities == [incident.severity for incident in final(RULES, frames)]


def test_the_coolest_sample_decides() -> None:
    """A spike, or fifty seconds, are not a minute."""
    spike = trace(seconds=1200, memory_temperature_celsius=hot(99.0, until=610), **CORE, **LIMIT)
    short = trace(seconds=1200, memory_temperature_celsius=hot(99.0, until=660), **CORE, **LIMIT)

    assert [] == told(changes(RULES, spike))
    assert [] == told(changes(RULES, short))


def test_it_grows_worse_and_resolves_two_minutes_after_it_has_cooled() -> None:
    """One incident from the warning to its end."""
    frames = trace(seconds=2400, memory_temperature_celsius=lambda s: 80.0 if s < 600 or s >= 1500 else 92.0 if s < 1200 else 96.0, **LIMIT)

    assert [
        "670 fired memory_overheating warning",
        "1210 updated memory_overheating critical",
        "1620 resolved memory_overheating critical",
    ] == told(changes(RULES, frames))


def test_a_sensor_that_falls_silent_resolves_nothing() -> None:
    """Nobody knows whether it has cooled."""
    frames = trace(seconds=3600, memory_temperature_celsius=lambda s: None if s > 900 else 96.0, **LIMIT)

    assert ["60 fired memory_overheating critical"] == told(changes(RULES, frames))


def test_a_board_without_the_sensor_is_not_judged() -> None:
    """T4 and GeForce boards have none, however hot the core is."""
    assert [] == changes(RULES, trace(seconds=1200, temperature_celsius=94.0))


def test_the_incident_says_what_a_person_needs() -> None:
    """Memory, limit, and that the core is cool."""
    (incident,) = final(RULES, trace(seconds=1200, memory_temperature_celsius=hot(97.0), **CORE, **LIMIT))

    assert "memory at 97 degC or more for 60 s; the card allows 95 degC; the core is at 64 degC" == incident.summary
    assert (97.0, 90.0, "celsius") == (incident.value, incident.threshold, incident.unit)
    assert {"memory_temperature_celsius", "temperature_celsius"} == {series.metric for series in incident.evidence}
