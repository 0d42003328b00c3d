"""Device memory that is nearly full and still fills."""

from __future__ import annotations

import pytest
from traces import GIB, Value, changes, final, told, trace

from rules.memory_pressure import MemoryPressure

RULES = {"memory_pressure": MemoryPressure()}


def fills(since: float = 600.0, until: float = float("inf"), start: float = 78.5) -> Value:
    """So many GiB of 80, and 200 MiB a minute more from *since* until *until*."""
    return lambda second: min(80.0, start + 0.2 / 60.0 * max(0.0, min(second, until) - since)) * GIB


@pytest.mark.parametrize("share", [0.5, 0.92, 0.979, 0.985, 0.995])
def test_memory_that_stays_as_it_is_may_be_full(share: float) -> None:
    """An inference server takes what there is, for a week (vllm#31853)."""
    assert [] == changes(RULES, trace(seconds=7200, step=30, memory_used_bytes=share * 80 * GIB))


def test_a_job_that_takes_it_all_at_once_is_fine() -> None:
    """From nothing to 98.5 % in a minute, then flat."""
    assert [] == told(changes(RULES, trace(seconds=3600, memory_used_bytes=lambda s: min(1.0, s / 60.0) * 0.985 * 80 * GIB)))


def test_full_and_filling_is_a_note_after_five_minutes() -> None:
    """Nobody is called; the next allocation may fail."""
    happened = changes(RULES, trace(seconds=1200, memory_used_bytes=fills()))

    assert ["930 fired memory_pressure info"] == told(happened)
    assert "memory 99.5% full (79.6 of 80.0 GiB) and still rising, 1,024 MiB in 5 minutes" == happened[-1].incident.summary


@pytest.mark.parametrize("start", [40.0, 75.0])
def test_filling_alone_is_not_pressure(start: float) -> None:
    """There is room; growth without end is another rule's."""
    assert [] == told(changes(RULES, trace(seconds=1200, memory_used_bytes=fills(start=start))))


def test_a_saw_is_not_rising() -> None:
    """What is taken is given back each minute."""
    assert [] == told(changes(RULES, trace(seconds=3600, memory_used_bytes=lambda s: (78.6 + (s % 60) / 60.0) * GIB)))


def test_what_the_driver_reserves_is_not_free() -> None:
    """A small card is full at 96 % of what is installed."""
    small: dict[str, Value] = {"memory_total_bytes": 8 * GIB, "memory_free_bytes": lambda s: max(0.0, 0.13 - s * 1e-4) * GIB}
    frames = trace(seconds=1200, memory_used_bytes=lambda s: (7.5 + s * 1e-4) * GIB, **small)

    assert 1 == len(final(RULES, frames))


def test_it_resolves_when_it_no_longer_rises() -> None:
    """Five minutes until nothing has risen in the look-back, five of patience."""
    frames = trace(seconds=2400, memory_used_bytes=fills(until=960.0))

    assert ["930 fired memory_pressure info", "1560 resolved memory_pressure info"] == told(changes(RULES, frames))


def test_silence_resolves_nothing() -> None:
    """And without a total nothing can be said (nvitop#208), nor is anything divided by it."""
    full = fills()
    frames = trace(seconds=3600, memory_used_bytes=lambda s: full(s) if s < 960 else None)  # type: ignore[misc, operator]

    assert ["930 fired memory_pressure info"] == told(changes(RULES, frames))
    assert [] == changes(RULES, trace(seconds=1200, memory_used_bytes=fills(), memory_total_bytes=None))
    assert [] == changes(RULES, trace(seconds=1200, memory_used_bytes=fills(), memory_total_bytes=0.0))
