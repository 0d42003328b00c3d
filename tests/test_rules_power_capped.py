"""A GPU with a lower power limit than it ships with."""

from __future__ import annotations

import pytest
from traces import changes, final, told, trace

from rules.power_capped import PowerCapped

RULES = {"power_capped": PowerCapped()}
DEFAULT = {"power_default_limit_watts": 400.0}


@pytest.mark.parametrize("limit", [400.0, 450.0, 381.0])
def test_the_default_limit_more_and_a_little_less_are_fine(limit: float) -> None:
    """Five percent are left to whoever rounds."""
    assert [] == changes(RULES, trace(seconds=3600, step=30, power_limit_watts=limit, **DEFAULT))


def test_a_lower_limit_is_said_once_and_quietly() -> None:
    """On the first look, as a note, and not again in a day."""
    frames = trace(seconds=86_400, step=60, power_limit_watts=300.0, **DEFAULT)
    happened = changes(RULES, frames)

    assert ["0 fired power_capped info"] == told(happened)
    assert "power limit is 300 W, 25% below the default of 400 W" == happened[0].incident.summary


def test_drawing_all_of_the_limit_is_no_cap() -> None:
    """Power at the limit, with the power cap bit, is full load (DCGM#285)."""
    full_load = {"power_limit_watts": 400.0, "power_watts": 399.0, "clock_event_reasons": 4.0, "utilization_percent": 100.0}
    frames = trace(seconds=3600, step=30, **full_load, **DEFAULT)

    assert [] == changes(RULES, frames)


def test_it_resolves_once_the_limit_is_back() -> None:
    """After ten minutes at the default, so that a limit that is played with is told once."""
    frames = trace(seconds=3600, power_limit_watts=lambda s: 250.0 if 600 <= s < 1200 else 400.0, **DEFAULT)

    assert ["600 fired power_capped info", "1800 resolved power_capped info"] == told(changes(RULES, frames))


@pytest.mark.parametrize("missing", ["power_limit_watts", "power_default_limit_watts"])
def test_without_both_limits_nothing_can_be_said(missing: str) -> None:
    """A laptop names no default, a vGPU no limit at all; 0 W is no limit either."""
    limits = {"power_limit_watts": 300.0, **DEFAULT, missing: None}

    assert [] == changes(RULES, trace(seconds=600, **limits))
    assert [] == changes(RULES, trace(seconds=600, power_limit_watts=0.0, **DEFAULT))


def test_a_limit_holds_although_it_was_read_long_ago() -> None:
    """Limits stand in the first frame of a recording only, and nothing resolves for that."""
    first = {"power_limit_watts": lambda s: 300.0 if s == 0 else None, "power_default_limit_watts": lambda s: 400.0 if s == 0 else None}

    assert ["firing"] == [incident.state for incident in final(RULES, trace(seconds=7200, step=30, **first))]
