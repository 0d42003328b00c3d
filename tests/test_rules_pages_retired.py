"""Memory pages that the driver takes out of use."""

from __future__ import annotations

import pytest
from traces import Value, changes, final, told, trace

from rules.pages_retired import PagesRetired

RULES = {"pages_retired": PagesRetired()}


def pages(single: float | None, double: float | None, pending: float | None) -> dict[str, Value]:
    return {"retired_pages_single_bit_total": single, "retired_pages_double_bit_total": double, "retired_pages_pending": pending}


@pytest.mark.parametrize("retired", [(0.0, 0.0), (6.0, 0.0), (40.0, 19.0)])
def test_pages_retired_in_other_years_are_history(retired: tuple[float, float]) -> None:
    """A board with six of 64 pages gone works as well as ever."""
    assert [] == changes(RULES, trace(seconds=3600, **pages(*retired, 0.0)))


def test_a_pending_page_is_told_at_once() -> None:
    """One look is enough; it asks for a reset and for no new board (azhpc-diagnostics#75)."""
    (incident,) = final(RULES, trace(seconds=0, **pages(6.0, 0.0, 1.0)))

    assert "warning" == incident.severity
    assert "a bad memory page waits for a GPU reset to be retired; 6 pages are retired" == incident.summary
    assert "no replacement" in incident.action


def test_a_board_with_hardly_a_page_left_is_to_be_replaced() -> None:
    """Sixty of 64."""
    (incident,) = final(RULES, trace(seconds=0, **pages(41.0, 19.0, 0.0)))

    assert ("warning", "60 pages are retired: hardly any more can be") == (incident.severity, incident.summary)
    assert "replacement" in incident.action


def test_the_state_is_enough() -> None:
    """And so are the counts; what is not known is not said."""
    (pending,) = final(RULES, trace(seconds=0, **pages(None, None, 1.0)))

    assert "a bad memory page waits for a GPU reset to be retired; how many are retired is not read" == pending.summary
    assert 1 == len(final(RULES, trace(seconds=0, **pages(63.0, 0.0, None))))


def test_it_resolves_after_the_reset() -> None:
    """A minute after nothing is pending."""
    frames = trace(seconds=1200, **{**pages(6.0, 0.0, None), "retired_pages_pending": lambda s: 1.0 if 300 <= s < 600 else 0.0})

    assert ["300 fired pages_retired warning", "660 resolved pages_retired warning"] == told(changes(RULES, frames))


def test_a_state_that_falls_silent_resolves_nothing() -> None:
    """Although the counts are still read."""
    frames = trace(seconds=1200, **{**pages(6.0, 0.0, None), "retired_pages_pending": lambda s: 1.0 if s < 300 else None})

    assert ["0 fired pages_retired warning"] == told(changes(RULES, frames))


def test_a_board_that_retires_nothing_is_not_judged() -> None:
    """Ampere and later remap rows instead."""
    assert [] == changes(RULES, trace(seconds=600))
