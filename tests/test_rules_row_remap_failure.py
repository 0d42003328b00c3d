"""A memory row that could not be remapped."""

from __future__ import annotations

from traces import changes, final, gpu, told, trace

from detector.frame import Device
from rules.row_remap_failure import RowRemapFailure

RULES = {"row_remap_failure": RowRemapFailure()}


def test_rows_that_were_remapped_are_no_failure() -> None:
    """Nor is one that waits to be."""
    calm = {"remapped_rows_uncorrected_total": 4.0, "remapped_rows_pending": 1.0, "remapped_rows_failure": 0.0}

    assert [] == changes(RULES, trace(seconds=3600, **calm))


def test_one_look_is_enough() -> None:
    """It is critical at once, and says that a reset does not help."""
    happened = changes(RULES, trace(seconds=0, remapped_rows_failure=1.0))

    assert ["0 fired row_remap_failure critical"] == told(happened)
    assert "replaced" in happened[0].incident.action


def test_it_lasts_until_the_board_is_another() -> None:
    """It resolves a minute after a reading without it, and not for want of readings."""
    silent = trace(seconds=1200, remapped_rows_failure=lambda s: 1.0 if s < 300 else None)
    mended = trace(seconds=1200, remapped_rows_failure=lambda s: 1.0 if s < 300 else 0.0)

    assert ["0 fired row_remap_failure critical"] == told(changes(RULES, silent))
    assert ["0 fired row_remap_failure critical", "360 resolved row_remap_failure critical"] == told(changes(RULES, mended))


def test_a_board_that_remaps_nothing_is_not_judged() -> None:
    """Not supported is not healthy, and not broken either."""
    assert [] == changes(RULES, trace(seconds=600))


def test_the_instances_of_one_board_are_one_incident() -> None:
    """Some readers give every MIG instance the state of its board."""
    parts = [gpu(), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(3))]

    assert 1 == len(final(RULES, trace(seconds=600, devices=parts, remapped_rows_failure=1.0)))
