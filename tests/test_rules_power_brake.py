"""A GPU that its power supply slows down."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from rules.power_brake import PowerBrake

RULES = {"power_brake": PowerBrake()}
POWER_CAP, HW_SLOWDOWN, SW_THERMAL, BRAKE = 0x4, 0x8, 0x20, 0x80
BUSY = {"utilization_percent": 98.0, "sm_clock_mhz": 510.0}


def braked(since: float = 600.0, until: float = float("inf")) -> Value:
    """Clock event reasons: the brake from *since* until just before *until*, else the power cap of full load."""
    return lambda second: float(BRAKE | HW_SLOWDOWN) if since <= second < until else float(POWER_CAP)


@pytest.mark.parametrize("mask", [0, POWER_CAP, HW_SLOWDOWN, SW_THERMAL])
def test_other_reasons_are_not_the_brake(mask: int) -> None:
    """Six hours at the power limit are normal full load (azurehpc#595)."""
    assert [] == changes(RULES, trace(seconds=21_600, step=30, clock_event_reasons=float(mask), **BUSY))


@pytest.mark.parametrize(("step", "fired"), [(1, 660), (10, 660), (30, 660), (60, 660)])
def test_it_fires_when_half_a_minute_is_braked_for_half_a_minute(step: float, fired: float) -> None:
    """Whatever the sampling, a minute after the brake was pulled somebody is told."""
    frames = trace(seconds=1200, step=step, clock_event_reasons=braked(), **BUSY)

    assert [f"{fired} fired power_brake critical"] == told(changes(RULES, frames))


def test_a_brake_from_the_first_frame_on_is_found() -> None:
    """Nothing is known of a time before (NVSentinel#1666: 36 hours)."""
    assert ["30 fired power_brake critical"] == told(changes(RULES, trace(seconds=600, step=30, clock_event_reasons=braked(0.0), **BUSY)))


def test_three_of_twenty_samples_are_a_load_step() -> None:
    """PenguinBurner#37."""
    frames = trace(seconds=19, step=1, clock_event_reasons=lambda s: float(BRAKE) if s in (6, 11, 12) else float(POWER_CAP), **BUSY)

    assert [] == told(changes(RULES, frames))


@pytest.mark.parametrize(("of_ten", "expected"), [(4, 0), (6, 1)])
def test_most_of_the_samples_decide(of_ten: int, expected: int) -> None:
    """Four of ten are not most of them, six are."""
    frames = trace(seconds=1200, step=1, clock_event_reasons=lambda s: float(BRAKE) if s % 10 < of_ten else 0.0, **BUSY)

    assert expected == len(final(RULES, frames))


def test_at_rest_the_brake_costs_nothing() -> None:
    """Clocks are low anyway; whoever wants to know sets the parameter."""
    frames = [*trace(seconds=1200, clock_event_reasons=braked(), utilization_percent=0.0)]

    assert [] == changes(RULES, frames)
    assert 1 == len(final({"power_brake": PowerBrake(min_utilization_percent=0.0)}, frames))


def test_two_braked_gpus_of_eight_are_one_incident() -> None:
    """They share the power supply; their neighbours at the power cap are fine."""
    frames = trace(
        seconds=1200, devices=8, each=lambda n: {"clock_event_reasons": braked() if n in (2, 5) else float(POWER_CAP)}, **BUSY
    )
    (incident,) = final(RULES, frames)

    assert ["GPU-2", "GPU-5"] == [device.uuid for device in incident.devices]
    assert "the power brake is pulled on 2 GPUs, 100% of the last 60 s; SM clock 510 of 1410 MHz" == incident.summary


def test_it_resolves_two_minutes_after_the_brake_is_off() -> None:
    """Half a minute until most of the minute is free of it, then the patience."""
    frames = trace(seconds=2400, clock_event_reasons=braked(until=1200), **BUSY)

    assert ["660 fired power_brake critical", "1350 resolved power_brake critical"] == told(changes(RULES, frames))


def test_reasons_that_fall_silent_resolve_nothing() -> None:
    """Nobody knows whether the brake is still pulled."""
    frames = trace(seconds=7200, clock_event_reasons=lambda s: None if s > 1200 else float(BRAKE), **BUSY)

    assert ["30 fired power_brake critical"] == told(changes(RULES, frames))


def test_a_card_that_gives_no_reasons_is_not_judged() -> None:
    """Low clocks alone are another rule's."""
    assert [] == changes(RULES, trace(seconds=1200, **BUSY))
