"""Settings of a GPU that changed, or will change at the next reset."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from rules.configuration_drift import ConfigurationDrift

RULES = {"configuration_drift": ConfigurationDrift()}
MODES: dict[str, Value] = {
    "ecc_mode": 1.0,
    "ecc_mode_pending": 1.0,
    "mig_mode": 0.0,
    "mig_mode_pending": 0.0,
    "persistence_mode": 1.0,
    "compute_mode": 0.0,
}


def becomes(after: float, before: float, since: float = 600.0) -> Value:
    return lambda second: before if second < since else after


@pytest.mark.parametrize("more", [{}, {"persistence_mode": 0.0}, {"ecc_mode": 0.0, "ecc_mode_pending": 0.0}, {"compute_mode": 3.0}])
def test_settings_that_stay_are_fine_whatever_they_are(more: dict[str, Value]) -> None:
    """Persistence is off on desktops, and ECC where somebody wanted it so."""
    assert [] == changes(RULES, trace(seconds=7200, step=30, **{**MODES, **more}))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ecc_mode_pending": 0.0}, "ECC is on and will be off after the next reset"),
        ({"mig_mode_pending": 1.0}, "MIG is off and will be on after the next reset"),
    ],
)
def test_a_mode_that_waits_for_a_reset_is_a_note_at_once(more: dict[str, Value], words: str) -> None:
    """And stays one until the reset."""
    (incident,) = final(RULES, trace(seconds=10_800, step=60, **{**MODES, **more}))

    assert ("info", "firing", words) == (incident.severity, incident.state, incident.summary)


@pytest.mark.parametrize(
    ("metric", "after", "words"),
    [
        ("ecc_mode", 0.0, "ECC is off, it was on"),
        ("mig_mode", 1.0, "MIG is on, it was off"),
        ("persistence_mode", 0.0, "persistence mode is off, it was on"),
        ("compute_mode", 3.0, "compute mode is exclusive to a process, it was default"),
    ],
)
def test_a_mode_that_changed_is_told_for_half_an_hour(metric: str, after: float, words: str) -> None:
    """From what to what; then it is how things are."""
    series = {**MODES, metric: becomes(after, MODES[metric])}  # type: ignore[arg-type]
    series |= {f"{metric}_pending": series[metric]} if f"{metric}_pending" in MODES else {}
    (incident,) = final(RULES, trace(seconds=7200, step=60, **series))

    assert ("info", "resolved", words) == (incident.severity, incident.state, incident.summary)


def test_all_that_differs_is_one_note() -> None:
    """On all GPUs of the host."""
    frames = trace(seconds=3600, step=60, devices=4, **{**MODES, "ecc_mode_pending": 0.0, "persistence_mode": becomes(0.0, 1.0)})
    (incident,) = final(RULES, frames)

    assert 4 == len(incident.devices)
    assert "ECC is on and will be off after the next reset (4 GPUs)" == incident.summary


def test_it_resolves_when_the_setting_is_taken_back() -> None:
    """Nothing has happened: it was only pending."""
    frames = trace(seconds=3600, **{**MODES, "ecc_mode_pending": lambda s: 0.0 if 600 <= s < 1200 else 1.0})

    assert ["600 fired configuration_drift info", "1260 resolved configuration_drift info"] == told(changes(RULES, frames))


def test_silence_resolves_nothing_and_starts_nothing() -> None:
    """A mode that cannot be read has not changed."""
    gone = {name: (lambda s, v=value: v if s < 1200 else None) for name, value in {**MODES, "ecc_mode_pending": 0.0}.items()}
    back = {**MODES, "ecc_mode": lambda s: None if 600 <= s < 1200 else 1.0}

    assert ["firing"] == [incident.state for incident in final(RULES, trace(seconds=7200, step=30, **gone))]
    assert [] == changes(RULES, trace(seconds=3600, **back))
    assert [] == changes(RULES, trace(seconds=600))
