"""A PCIe link that has to send its packets again."""

from __future__ import annotations

import pytest
from traces import START, Value, changes, final, told, trace

from rules.pcie_replays import PcieReplays

RULES = {"pcie_replays": PcieReplays()}
LINK: dict[str, Value] = {"pcie_link_width_max": 16.0, "pcie_link_generation_max": 4.0}


def replays(per_minute: float, since: float = 600.0, until: float = float("inf")) -> Value:
    """A counter that rises by so many a minute from *since* to *until*."""
    return lambda second: 7.0 + float(int(per_minute / 60.0 * max(0.0, min(second, until) - since)))


def test_a_few_an_hour_are_what_a_link_has() -> None:
    """And what it had before we came is history."""
    assert [] == changes(RULES, trace(seconds=7200, step=30, pcie_replay_total=lambda s: 90_000.0 + s // 1200, **LINK))


@pytest.mark.parametrize("step", [1, 10, 60])
def test_it_fires_after_two_minutes_above_the_allowance(step: float) -> None:
    """Two a second on a link that may have sixteen a minute."""
    (incident,) = final(RULES, trace(seconds=1800, step=step, pcie_replay_total=replays(120.0), **LINK))

    assert "warning" == incident.severity
    assert 600 + 120 <= (incident.fired_at or 0.0) - START <= 600 + 200
    assert (16.0, "replays per minute") == (incident.threshold, incident.unit)


@pytest.mark.parametrize(
    ("generation", "lanes", "allowance"),
    [(1.0, 16.0, 3.0), (3.0, 16.0, 8.0), (4.0, 16.0, 16.0), (4.0, 8.0, 8.0), (5.0, 16.0, 31.0), (None, None, 31.0)],
)
def test_the_allowance_follows_from_generation_and_lanes(generation: float | None, lanes: float | None, allowance: float) -> None:
    """One error in 10^12 bits; the most forgiving link where it is not read."""
    link: dict[str, Value] = {"pcie_link_generation_max": generation, "pcie_link_width_max": lanes}
    below = trace(seconds=1800, pcie_replay_total=replays(allowance * 0.9), **link)
    above = trace(seconds=1800, pcie_replay_total=replays(allowance * 1.5), **link)

    assert [] == final(RULES, below)
    assert [allowance] == [incident.threshold for incident in final(RULES, above)]


def test_a_link_that_rests_keeps_the_allowance_of_its_best() -> None:
    """Generation 1 at rest does not make twelve a minute a fault."""
    assert [] == told(changes(RULES, trace(seconds=3600, pcie_replay_total=replays(12.0), pcie_link_generation=1.0, **LINK)))


@pytest.mark.parametrize("step", [1, 10, 60])
def test_one_burst_is_not_two_minutes(step: float) -> None:
    """A hundred at once, and then none (DCGM#184)."""
    assert [] == told(changes(RULES, trace(seconds=1800, step=step, pcie_replay_total=replays(600_000.0, until=600.01), **LINK)))


def test_a_counter_that_starts_again_is_no_rise() -> None:
    """A reset of the card."""
    assert [] == changes(RULES, trace(seconds=1800, pcie_replay_total=lambda s: 90_000.0 if s < 600 else 0.0, **LINK))


def test_it_resolves_two_minutes_after_a_quiet_minute() -> None:
    """The look-back empties first."""
    frames = trace(seconds=2400, pcie_replay_total=replays(120.0, until=1200.0), **LINK)

    assert ["730 fired pcie_replays warning", "1390 resolved pcie_replays warning"] == told(changes(RULES, frames))


def test_a_counter_that_falls_silent_resolves_nothing() -> None:
    """Nor is a card judged that does not count."""
    storm = replays(120.0)
    frames = trace(seconds=3600, pcie_replay_total=lambda s: storm(s) if s < 900 else None, **LINK)  # type: ignore[misc, operator]

    assert ["730 fired pcie_replays warning"] == told(changes(RULES, frames))
    assert [] == changes(RULES, trace(seconds=600, **LINK))
