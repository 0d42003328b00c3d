"""NVLinks that are down, or that fail all the time."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from detector.frame import Device
from rules.nvlink_degraded import NvlinkDegraded

RULES = {"nvlink_degraded": NvlinkDegraded()}
TOTAL: dict[str, Value] = {"nvlink_links_total": 18.0}


def falls(to: float | None, since: float = 600.0, until: float = float("inf")) -> Value:
    """Links that are up: 18, from *since* until just before *until* so many."""
    return lambda second: to if since <= second < until else 18.0


@pytest.mark.parametrize("links", [0.0, 4.0, 18.0])
def test_all_links_up_is_fine_and_so_is_having_none(links: float) -> None:
    """A card without NVLink has no broken ones (NVSentinel#1481)."""
    assert [] == changes(RULES, trace(seconds=3600, nvlink_links_active=links, nvlink_links_total=links, nvlink_errors_total=7.0))


def test_a_link_that_goes_down_is_critical_after_half_a_minute() -> None:
    """It was up before."""
    happened = changes(RULES, trace(seconds=1200, nvlink_links_active=falls(16.0), **TOTAL))

    assert ["630 fired nvlink_degraded critical"] == told(happened)
    assert "NVLink degraded: 2 of 18 links down" == happened[-1].incident.summary


def test_it_is_known_by_its_own_best_where_the_total_is_not() -> None:
    """All links down included."""
    assert ["critical"] == [i.severity for i in final(RULES, trace(seconds=1200, nvlink_links_active=falls(0.0)))]


def test_fewer_than_there_are_from_the_start_is_a_warning() -> None:
    """Somebody should look, and nothing has just broken."""
    assert ["30 fired nvlink_degraded warning"] == told(changes(RULES, trace(seconds=1200, nvlink_links_active=17.0, **TOTAL)))


@pytest.mark.parametrize("name", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100-PCIE-40GB"])
def test_a_card_with_bridges_has_links_that_no_bridge_serves(name: str) -> None:
    """Twelve of eighteen is all that three bridges give; a fall is a fault there, too."""
    cards = [Device("GPU-0", index=0, name=name)]

    assert [] == changes(RULES, trace(seconds=1200, devices=cards, nvlink_links_active=12.0, **TOTAL))
    assert 1 == len(final(RULES, trace(seconds=1200, devices=cards, nvlink_links_active=lambda s: 12.0 if s < 600 else 8.0, **TOTAL)))


def test_a_card_without_a_bridge_has_none_up() -> None:
    """From the start: nobody fitted one."""
    assert [] == changes(RULES, trace(seconds=1200, nvlink_links_active=0.0, nvlink_links_total=4.0))


def test_twenty_seconds_are_a_link_that_trains() -> None:
    """After a reset, say."""
    assert [] == told(changes(RULES, trace(seconds=1200, nvlink_links_active=falls(12.0, until=630), **TOTAL)))


def errors(per_second: float, since: float = 600.0, until: float = float("inf")) -> Value:
    return lambda second: 7.0 + per_second * max(0.0, min(second, until) - since)


@pytest.mark.parametrize(("per_second", "severities"), [(50.0, []), (120.0, ["warning"])])
def test_errors_without_end_are_a_warning(per_second: float, severities: list[str]) -> None:
    """A hundred a second, as DCGM has it; one recovery is none."""
    frames = trace(seconds=1200, nvlink_links_active=18.0, nvlink_errors_total=errors(per_second), **TOTAL)

    assert severities == [incident.severity for incident in final(RULES, frames)]


@pytest.mark.parametrize("step", [1, 10, 30])
def test_a_burst_of_errors_is_a_link_that_trains(step: float) -> None:
    """Ten thousand at once, and then none."""
    burst = errors(1e6, until=600.01)
    frames = trace(seconds=1200, step=step, nvlink_links_active=18.0, nvlink_errors_total=burst, **TOTAL)

    assert [] == told(changes(RULES, frames))


def test_both_ends_of_a_link_are_one_incident() -> None:
    """And the GPU with most links down is the suspect."""
    frames = trace(seconds=1200, devices=8, each=lambda n: {"nvlink_links_active": falls({2: 17.0, 5: 15.0}.get(n, 18.0))}, **TOTAL)
    (incident,) = final(RULES, frames)

    assert ["GPU-2", "GPU-5"] == [device.uuid for device in incident.devices]
    assert "GPU-5" == (incident.suspect.uuid if incident.suspect else None)
    assert "NVLink degraded: on 2 GPUs; on the worst 3 of 18 links down" == incident.summary


def test_it_resolves_when_the_link_is_back() -> None:
    """A minute later."""
    frames = trace(seconds=2400, nvlink_links_active=falls(16.0, until=1200), **TOTAL)

    assert ["630 fired nvlink_degraded critical", "1260 resolved nvlink_degraded critical"] == told(changes(RULES, frames))


def test_silence_resolves_nothing() -> None:
    """Although the errors are still counted."""
    active: Value = lambda s: 18.0 if s < 600 else 16.0 if s < 900 else None  # noqa: E731
    frames = trace(seconds=3600, nvlink_links_active=active, nvlink_errors_total=7.0, **TOTAL)

    assert ["630 fired nvlink_degraded critical"] == told(changes(RULES, frames))


def test_a_card_that_tells_nothing_is_not_judged() -> None:
    """Most cards have no NVLink to speak of."""
    assert [] == changes(RULES, trace(seconds=600))
