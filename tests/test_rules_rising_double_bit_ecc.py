"""New uncorrectable memory errors."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import START, Value, changes, final, told, trace

from detector.frame import Device
from rules.rising_double_bit_ecc import RisingDoubleBitEcc

RULES = {"rising_double_bit_ecc": RisingDoubleBitEcc()}

VOLATILE, AGGREGATE = "ecc_uncorrected_volatile_total", "ecc_uncorrected_aggregate_total"


def steps(*levels: tuple[float, float | None]) -> Value:
    """A counter that stands at each level from the given second on; None: not read."""
    return lambda second: next(level for start, level in reversed(levels) if second >= start)


@pytest.mark.parametrize("counter", [VOLATILE, AGGREGATE])
def test_errors_of_another_year_are_history(counter: str) -> None:
    """Whatever the counter says when it is first seen is where counting starts (gpud#108)."""
    assert [] == changes(RULES, trace(seconds=7200, **{counter: 4.0}))


@pytest.mark.parametrize("counter", [VOLATILE, AGGREGATE])
@pytest.mark.parametrize("step", [1, 10, 60])
def test_a_rise_is_critical_at_once_and_over_after_a_quiet_hour(counter: str, step: float) -> None:
    """Either counter alone is enough, at any sampling; nothing is waited for."""
    happened = changes(RULES, trace(seconds=4800, step=step, **{counter: steps((0, 4.0), (600, 5.0))}))

    assert ["fired critical", "resolved critical"] == [f"{c.transition} {c.incident.severity}" for c in happened]
    fired, resolved = (change.at - START for change in happened)
    assert 600 == fired
    assert 4200 <= resolved <= 4260


def test_no_rise_is_no_event() -> None:
    """An hour at the same level, and the value below a rise of one: none."""
    assert [] == changes(RULES, trace(seconds=3600, **{VOLATILE: 0.0, AGGREGATE: 7.0}))


def test_a_driver_reload_is_no_error() -> None:
    """Volatile counters start again at 0 (candle#733)."""
    frames = trace(seconds=7200, **{VOLATILE: steps((0, 2.0), (3600, None), (3900, 0.0)), AGGREGATE: 5.0})

    assert [] == changes(RULES, frames)


def test_an_error_after_a_reload_counts_from_zero() -> None:
    """2, 0, 1: one new error, although 1 is less than 2."""
    (incident,) = final(RULES, trace(seconds=3600, **{VOLATILE: steps((0, 2.0), (600, 0.0), (1200, 1.0))}))

    assert 1.0 == incident.value


def test_an_error_told_by_both_counters_is_one() -> None:
    """Volatile and aggregate rise together: one incident, one error."""
    rises = steps((0, 0.0), (600, 1.0))
    (incident,) = final(RULES, trace(seconds=3000, **{VOLATILE: rises, AGGREGATE: rises}))

    assert (1.0, 1) == (incident.value, incident.occurrences)


def test_errors_that_happened_while_the_counter_was_not_read_count_when_it_is_back() -> None:
    """A counter that is missing for a while and comes back higher has risen."""
    frames = trace(seconds=3000, **{VOLATILE: steps((0, 4.0), (600, None), (1200, 6.0))})

    assert ["1200 fired rising_double_bit_ecc critical"] == told(changes(RULES, frames))


def test_a_gpu_without_ecc_is_not_judged() -> None:
    """A GeForce has no counters, and none is no zero."""
    assert [] == changes(RULES, trace(seconds=3600, utilization_percent=99.0))


def test_a_counter_that_falls_silent_resolves_nothing() -> None:
    """Hours after the error, with no reading since, the incident is still open; once read, it is over."""
    frames = trace(seconds=20_000, step=30, **{VOLATILE: steps((0, 0.0), (600, 1.0), (900, None), (15_000, 1.0))})

    assert ["600 fired rising_double_bit_ecc critical", "15000 resolved rising_double_bit_ecc critical"] == told(changes(RULES, frames))


def test_more_errors_keep_it_open() -> None:
    """The hour counts from the newest error; it is one incident."""
    frames = trace(seconds=9000, step=30, **{VOLATILE: steps((0, 0.0), (600, 1.0), (3600, 3.0))})

    assert ["600 fired rising_double_bit_ecc critical", "7260 resolved rising_double_bit_ecc critical"] == told(changes(RULES, frames))


def test_only_the_gpu_with_errors_is_named() -> None:
    """Its neighbours are not concerned."""
    frames = trace(seconds=1200, devices=8, each=lambda n: {VOLATILE: steps((0, 0.0), (600, 1.0)) if n == 5 else 0.0})

    assert [["GPU-5"]] == [[device.uuid for device in incident.devices] for incident in final(RULES, frames)]


def test_the_instances_of_one_board_are_one_incident() -> None:
    """Some readers give every MIG instance the counters of its board."""
    parts = [Device("GPU-0", index=0), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(3))]

    assert 1 == len(final(RULES, trace(seconds=1200, devices=parts, **{AGGREGATE: steps((0, 0.0), (600, 1.0))})))


def test_the_incident_says_what_a_person_needs() -> None:
    """How many errors in what time, what to do, and the counters."""
    (incident,) = final(RULES, trace(seconds=1200, **{VOLATILE: steps((0, 0.0), (600, 3.0)), AGGREGATE: steps((0, 7.0), (600, 10.0))}))

    assert "3 new uncorrectable (double-bit) memory errors within 60 minutes" == incident.summary
    assert (3.0, "errors") == (incident.value, incident.unit)
    assert "drain" in incident.action
    assert {VOLATILE, AGGREGATE} == {series.metric for series in incident.evidence}


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40))
def test_it_fires_if_and_only_if_a_counter_rises(levels: list[int]) -> None:
    """Whatever a counter does, an incident means that a value was larger than the one before it."""
    frames = trace(seconds=(len(levels) - 1) * 10, **{VOLATILE: lambda second: float(levels[int(second // 10)])})

    assert any(after > before for before, after in pairwise(levels)) == bool(final(RULES, frames))
