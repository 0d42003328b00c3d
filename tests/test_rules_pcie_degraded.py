"""A PCIe link that is narrower or slower than it was."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, gpu, told, trace

from detector.frame import Device
from rules.pcie_degraded import PcieDegraded

RULES = {"pcie_degraded": PcieDegraded()}
SLOT: dict[str, Value] = {"pcie_link_width_max": 16.0, "pcie_link_generation_max": 4.0}
LINK: dict[str, Value] = {"pcie_link_width": 16.0, "pcie_link_generation": 4.0, **SLOT}
BUSY: dict[str, Value] = {"utilization_percent": 97.0}


def falls(best: float, to: float, since: float = 600.0, until: float = float("inf")) -> Value:
    return lambda second: to if since <= second < until else best


def test_a_link_at_its_best_is_fine() -> None:
    """Under load and at rest."""
    assert [] == changes(RULES, trace(seconds=3600, utilization_percent=lambda s: 97.0 if s % 1200 < 600 else 0.0, **LINK))


@pytest.mark.parametrize(
    ("metric", "series", "link"),
    [
        ("pcie_link_width", falls(16.0, 8.0), "x8 generation 4"),
        ("pcie_link_generation", falls(4.0, 2.0), "x16 generation 2"),
    ],
)
def test_a_link_that_falls_under_load_is_a_warning(metric: str, series: Value, link: str) -> None:
    """Half a minute after lanes or generation fell."""
    frames = trace(seconds=1200, **{**LINK, **BUSY, metric: series})
    happened = changes(RULES, frames)

    assert ["630 fired pcie_degraded warning"] == told(happened)
    assert f"PCIe link runs at {link} under load; it had been x16 generation 4" == happened[-1].incident.summary


def test_it_is_known_by_its_own_best_where_the_maximum_is_not() -> None:
    """A reader that does not take the limits."""
    assert 1 == len(final(RULES, trace(seconds=1200, pcie_link_width=falls(16.0, 8.0), **BUSY)))


def test_a_slot_with_eight_lanes_is_a_note() -> None:
    """By design, or a fault of yesterday: nobody is called for it."""
    (incident,) = final(RULES, trace(seconds=1200, **{**LINK, **BUSY, "pcie_link_width": 8.0}))

    assert "info" == incident.severity
    assert "x8 generation 4 under load; card and slot can do x16 generation 4, and it was never seen better" in incident.summary


def test_a_narrow_link_that_falls_further_is_a_warning() -> None:
    """The note becomes one."""
    frames = trace(seconds=1200, **{**LINK, **BUSY, "pcie_link_width": falls(8.0, 4.0)})

    assert ["30 fired pcie_degraded info", "600 updated pcie_degraded warning"] == told(changes(RULES, frames))


def test_the_generation_may_do_what_it_likes_at_rest() -> None:
    """It goes up and down to save power (rtx6kpro#88)."""
    flickers = {**LINK, "pcie_link_generation": lambda s: 1.0 + (s // 5) % 4}

    assert [] == told(changes(RULES, trace(seconds=3600, step=5, utilization_percent=2.0, **flickers)))


def test_light_work_proves_nothing() -> None:
    """A desktop that draws windows runs in a low state; one sample of load neither."""
    slow = {**LINK, "pcie_link_generation": falls(4.0, 1.0)}

    assert [] == told(changes(RULES, trace(seconds=3600, utilization_percent=40.0, **slow)))
    assert [] == told(changes(RULES, trace(seconds=3600, utilization_percent=lambda s: 100.0 if s % 60 == 0 else 0.0, **slow)))


def test_twenty_seconds_are_a_change_of_state() -> None:
    """The link takes a moment to come up when work begins."""
    frames = trace(seconds=1200, **{**LINK, **BUSY, "pcie_link_generation": falls(4.0, 1.0, until=630)})

    assert [] == told(changes(RULES, frames))


def test_it_resolves_when_the_link_is_back() -> None:
    """A minute later, under load or not."""
    frames = trace(seconds=2400, **{**LINK, **BUSY, "pcie_link_width": falls(16.0, 8.0, until=1200)})

    assert ["630 fired pcie_degraded warning", "1260 resolved pcie_degraded warning"] == told(changes(RULES, frames))


@pytest.mark.parametrize(
    "more",
    [
        {"utilization_percent": lambda s: 97.0 if s < 900 else 0.0},
        {"pcie_link_width": lambda s: 16.0 if s < 600 else 8.0 if s < 900 else None},
    ],
)
def test_rest_and_silence_resolve_nothing(more: dict[str, Value]) -> None:
    """The link of a GPU that rests cannot be judged, and one that is not read neither."""
    frames = trace(seconds=3600, **{**LINK, **BUSY, "pcie_link_width": falls(16.0, 8.0), **more})

    assert ["630 fired pcie_degraded warning"] == told(changes(RULES, frames))


def test_a_device_without_a_link_of_its_own_is_not_judged() -> None:
    """MIG instances; GPUs whose load is not known."""
    assert [] == changes(RULES, trace(seconds=600, **BUSY))
    assert [] == told(changes(RULES, trace(seconds=3600, **{**LINK, "pcie_link_width": falls(16.0, 8.0)})))


def test_the_instances_of_one_board_are_one_incident() -> None:
    """Some readers give every MIG instance the link of its board."""
    parts = [gpu(), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(3))]

    assert 1 == len(final(RULES, trace(seconds=1200, devices=parts, **{**LINK, **BUSY, "pcie_link_width": falls(16.0, 4.0)})))
