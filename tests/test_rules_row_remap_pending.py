"""A memory row that waits to be remapped."""

from __future__ import annotations

from traces import Value, changes, final, gpu, told, trace

from detector.frame import Device
from rules.row_remap_failure import RowRemapFailure
from rules.row_remap_pending import RowRemapPending

RULES = {"row_remap_pending": RowRemapPending()}


def test_rows_remapped_in_other_years_are_history() -> None:
    """A row that was replaced is a row that works (gpud#108)."""
    calm: dict[str, Value] = {"remapped_rows_uncorrected_total": 4.0, "remapped_rows_corrected_total": 2.0, "remapped_rows_pending": 0.0}

    assert [] == changes(RULES, trace(seconds=3600, **calm))


def test_one_look_is_enough() -> None:
    """The state says it all: no history is needed."""
    counts = {"remapped_rows_uncorrected_total": 1.0, "remapped_rows_corrected_total": 0.0}
    happened = changes(RULES, trace(seconds=0, remapped_rows_pending=1.0, **counts))

    assert ["0 fired row_remap_pending warning"] == told(happened)
    assert "a bad memory row waits for a GPU reset to be remapped; 1 remapped or marked so far" == happened[0].incident.summary


def test_what_is_not_known_is_not_said() -> None:
    """Without the counts the sentence is shorter."""
    (incident,) = final(RULES, trace(seconds=0, remapped_rows_pending=1.0))

    assert "a bad memory row waits for a GPU reset to be remapped" == incident.summary


def test_it_resolves_after_the_reset() -> None:
    """A minute after the state is gone."""
    frames = trace(seconds=1200, remapped_rows_pending=lambda s: 1.0 if 300 <= s < 600 else 0.0)

    assert ["300 fired row_remap_pending warning", "660 resolved row_remap_pending warning"] == told(changes(RULES, frames))


def test_a_state_that_falls_silent_resolves_nothing() -> None:
    """Nor does one that is read once a minute only."""
    silent = trace(seconds=1200, remapped_rows_pending=lambda s: 1.0 if s < 300 else None)
    seldom = trace(seconds=1200, remapped_rows_pending=lambda s: 1.0 if s % 60 == 0 else None)

    assert ["0 fired row_remap_pending warning"] == told(changes(RULES, silent))
    assert ["0 fired row_remap_pending warning"] == told(changes(RULES, seldom))


def test_a_board_that_remaps_nothing_is_not_judged() -> None:
    """Boards before Ampere retire pages instead."""
    assert [] == changes(RULES, trace(seconds=600))


def test_the_instances_of_one_board_are_one_incident() -> None:
    """Some readers give every MIG instance the state of its board."""
    parts = [gpu(), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(3))]

    assert 1 == len(final(RULES, trace(seconds=600, devices=parts, remapped_rows_pending=1.0)))


def test_a_failed_remap_is_the_larger_word() -> None:
    """Where no spare row is left, the waiting one is an effect."""
    rules = {**RULES, "row_remap_failure": RowRemapFailure()}
    found = {i.rule: i for i in final(rules, trace(seconds=600, remapped_rows_pending=1.0, remapped_rows_failure=1.0))}

    assert found["row_remap_failure"].id == found["row_remap_pending"].cause
