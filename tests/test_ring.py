"""Where readings are kept: clocks of hosts, rows that come and go, buckets that open and close, memory that does not grow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.metrics import METRICS
from detector.ring import TIERS, HostClock, Ring, span
from detector.window import Subject, Window

DAY = 86_400.0
START = 1_700_000_000.0
POWER, ENERGY = "power_watts", "energy_joules_total"
LONGEST = TIERS[-1][0] * (TIERS[-1][1] - 1)
"""The longest look-back there is, in seconds."""
LOOKBACKS = tuple(width * (slots - 1) for width, slots in TIERS)
"""One a tier."""


def clock(moments: Sequence[float]) -> HostClock:
    """The clock of a host whose frames came at *moments*."""
    it = HostClock(moments[0])
    for at in moments[1:]:
        it.advance(at)
    return it


def put(ring: Ring, host: str, at: float, row: int, **readings: float) -> None:
    ring.put(host, at, np.array([row]), ring.columns(tuple(readings)), np.array([list(readings.values())]))


def view(ring: Ring, host: str, now: float) -> Window:
    """The rows of a host as a rule would see them."""
    rows = np.array(ring.rows(host), np.intp)
    interval = np.ones(len(rows))
    return Window(ring, rows, [Subject(host)] * len(rows), heads=ring.head(host, now), now=np.full(len(rows), now), interval=interval)


# -- clocks of hosts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0.1, 1.0, 10.0, 60.0, 300.0, 900.0])
def test_a_steady_recording_counts_in_full(step: float) -> None:
    """Whatever the sampling, up to the longest that proves anything."""
    steady = clock([START + n * step for n in range(40)])

    assert 39 * step == pytest.approx(steady.observed, rel=1e-6)
    assert step == pytest.approx(steady.interval, rel=1e-6)


@pytest.mark.parametrize("hole", [61.0, 600.0, 3_600.0, 2 * DAY])
def test_a_hole_in_the_recording_counts_as_one_usual_interval(hole: float) -> None:
    """Nobody recorded in between: nothing held, nothing was clear."""
    assert 10 + 1 + 10 == clock([START + n for n in range(11)] + [START + 10 + hole + n for n in range(11)]).observed


@pytest.mark.parametrize("gap", [5.0, 30.0, 60.0])
def test_a_few_lost_frames_are_no_hole(gap: float) -> None:
    """A minute is not a hole, nor are five usual intervals."""
    assert 20 + gap == clock([START + n for n in range(11)] + [START + 10 + gap + n for n in range(11)]).observed
    assert 40 * gap + 4 * gap == clock([START + gap * n for n in range(41)] + [START + gap * 44]).observed


def test_no_sampling_is_slower_than_a_quarter_of_an_hour() -> None:
    """Hourly frames observe next to nothing."""
    assert clock([START + 3_600 * n for n in range(25)]).observed == 24


def test_two_recordings_side_by_side_are_no_row_of_holes() -> None:
    """Frames of two sources, each every two minutes and a moment apart, were recorded all the time."""
    moments = sorted([START + 120 * n for n in range(60)] + [START + 120 * n + 0.1 for n in range(60)])

    assert clock(moments).observed == pytest.approx(moments[-1] - moments[0], rel=0.05)


@given(st.lists(st.floats(-100, 5_000), max_size=60))
def test_observed_time_never_runs_faster_than_time(steps: list[float]) -> None:
    """It never goes back, and late and duplicate frames do not move it."""
    host, at = HostClock(START), START
    for step in steps:
        at = max(at + step, START - DAY)
        now, observed = host.now, host.observed
        moved = host.advance(at)
        assert moved == (at > now)
        assert host.now == max(now, at)
        assert 0 <= host.observed - observed <= host.now - now + 1e-6
        if not moved:
            assert (now, observed) == (host.now, host.observed)


# -- rows ---------------------------------------------------------------------------------------------------------------------


def test_rows_are_given_back_and_used_again() -> None:
    """A thousand short lives need no more room than as many as live at a time."""
    ring = Ring("device", (POWER,))
    for n in range(1_000):
        row = ring.add("node-a", n, START + n)
        ring.remove("node-a", row)

    assert len(ring.keys) == 8
    assert [] == ring.rows("node-a")


def test_a_row_that_is_used_again_knows_nothing_of_its_past() -> None:
    """Neither history nor newest readings, limits included, nor the counter's baseline."""
    ring = Ring("device", (POWER, ENERGY))
    first = ring.add("node-a", "old", START)
    for n in range(100):
        put(ring, "node-a", START + n, first, power_watts=500.0, energy_joules_total=100.0 + n, power_limit_watts=700.0)
    ring.remove("node-a", first)
    second = ring.add("node-a", "new", START + 100)
    put(ring, "node-a", START + 100, second, energy_joules_total=5_000.0)
    seen = view(ring, "node-a", START + 100)

    assert first == second
    for lookback in LOOKBACKS:
        assert [0.0] == seen.count(POWER, lookback).tolist()
        assert np.isnan(seen.max(POWER, lookback)).all()
        assert [0.0] == seen.increase(ENERGY, lookback).tolist()
    assert np.isnan(seen.last("power_limit_watts")).all()
    assert not seen.ever(POWER).any()
    assert [0.0] == seen.age.tolist()


def test_a_row_that_moves_to_another_host_obeys_that_hosts_clock() -> None:
    """A host far behind takes up the row of one that is ahead, and back."""
    ring = Ring("device", (POWER,))
    row = ring.add("ahead", "x", START + DAY)
    put(ring, "ahead", START + DAY, row, power_watts=1.0)
    ring.remove("ahead", row)
    again = ring.add("behind", "y", START)
    for n in range(200):
        put(ring, "behind", START + n, again, power_watts=2.0)
    put(ring, "ahead", START + DAY + 700, ring.add("ahead", "z", START + DAY + 700), power_watts=3.0)

    assert row == again
    assert [2.0] == view(ring, "behind", START + 199).mean(POWER, 600.0).tolist()
    assert [200.0] == view(ring, "behind", START + 199).count(POWER, 600.0).tolist()
    assert [3.0] == view(ring, "ahead", START + DAY + 700).max(POWER, LONGEST).tolist()


def test_growing_keeps_what_is_there() -> None:
    """The ninth device doubles the room; the first eight keep their readings."""
    ring = Ring("device", (POWER,))
    for n in range(9):
        put(ring, "node-a", START + n / 2, ring.add("node-a", n, START), power_watts=100.0 + n)

    assert [100.0 + n for n in range(9)] == view(ring, "node-a", START + 4).max(POWER, 60.0).tolist()
    assert [100.0 + n for n in range(9)] == view(ring, "node-a", START + 4).last(POWER).tolist()


def test_rows_come_in_the_order_they_were_added() -> None:
    """Host by host."""
    ring = Ring("device", ())
    rows = [ring.add(host, n, START) for n, host in enumerate("ababa")]

    assert [rows[0], rows[2], rows[4]] == ring.rows("a")
    assert [rows[1], rows[3]] == ring.rows("b")
    assert [] == ring.rows("stranger")


# -- hosts of one ring --------------------------------------------------------------------------------------------------------


@given(st.floats(-3 * DAY, 3 * DAY), st.lists(st.integers(1, 2_000), min_size=1, max_size=20))
def test_hosts_clocks_are_independent(offset: float, steps: list[int]) -> None:
    """What a host sees does not depend on another that shares its rows' neighbourhood and lives days away."""
    alone, shared = Ring("device", (POWER,)), Ring("device", (POWER,))
    lone = alone.add("a", 0, START)
    rows = [shared.add("a", 0, START), shared.add("b", 0, START + offset), shared.add("b", 1, START + offset)]
    at = START
    for n, step in enumerate(steps):
        at += step
        put(alone, "a", at, lone, power_watts=float(n))
        put(shared, "a", at, rows[0], power_watts=float(n))
        put(shared, "b", at + offset + 3 * n, rows[1 + n % 2], power_watts=-1.0)

    for lookback in LOOKBACKS:
        expected, actual = view(alone, "a", at), view(shared, "a", at)
        for ask in (Window.min, Window.max, Window.mean, Window.count):
            np.testing.assert_array_equal(ask(expected, POWER, lookback), ask(actual, POWER, lookback))


# -- memory -------------------------------------------------------------------------------------------------------------------


def held_bytes(ring: Ring) -> int:
    return sum(getattr(tier, plane).nbytes for tier in ring.tiers for plane, _ in tier.planes())


def test_memory_does_not_grow_with_time() -> None:
    """A week of readings holds what the first minute held."""
    ring = Ring("device", (POWER, ENERGY))
    row = ring.add("node-a", 0, START)
    put(ring, "node-a", START, row, power_watts=1.0)
    before = held_bytes(ring)
    for n in range(7 * 144):
        put(ring, "node-a", START + 600 * n, row, power_watts=1.0, energy_joules_total=float(n))

    assert before == held_bytes(ring)
    assert LONGEST // 600 <= view(ring, "node-a", START + 600 * (7 * 144 - 1)).count(POWER, LONGEST)[0] <= LONGEST // 600 + 2


# -- places -------------------------------------------------------------------------------------------------------------------


@given(st.floats(0.5, LONGEST))
def test_the_finest_tier_that_reaches_far_enough_is_asked(lookback: float) -> None:
    """It covers the look-back even when the newest bucket has only just begun, and no finer one does."""
    ring = Ring("device", ())
    tier, buckets = ring.tier_for(lookback)

    assert (buckets - 1) * TIERS[tier][0] >= lookback
    assert (buckets - 2) * TIERS[tier][0] < lookback
    assert buckets <= TIERS[tier][1]
    assert all((slots - 1) * width < lookback for width, slots in TIERS[:tier])


def test_a_look_back_beyond_what_is_kept_is_refused() -> None:
    """The message says how much is kept."""
    with pytest.raises(ValueError, match=rf"longer than what is kept \({LONGEST:.0f} s\)"):
        Ring("device", ()).tier_for(2 * DAY)


def test_only_metrics_that_were_asked_for_have_a_history() -> None:
    """Every metric of the kind keeps its newest value; one of another kind has no place."""
    ring = Ring("device", (POWER, "job_loss", "no_such_metric"))

    assert (POWER,) == ring.history
    assert set(ring.names) == {name for name, metric in METRICS.items() if metric.entity == "device"}
    assert [-1, -1] == ring.columns(("job_loss", "no_such_metric")).tolist()
    with pytest.raises(KeyError):
        ring.plane("temperature_celsius")


@given(st.lists(st.integers(0, 20), max_size=6))
def test_a_span_means_the_same_rows(rows: list[int]) -> None:
    """A slice where rows are neighbours in order, else the rows themselves."""
    line = np.arange(100)
    array = np.array(rows, np.intp)

    assert rows == line[span(array)].tolist()
    assert isinstance(span(array), slice) == (bool(rows) and all(b - a == 1 for a, b in pairwise(rows)))


# -- writing ------------------------------------------------------------------------------------------------------------------


def test_rows_of_a_hosts_may_be_written_together_or_one_by_one() -> None:
    """Slices, scattered rows and single rows end in the same place."""
    together, apart = Ring("device", (POWER, ENERGY)), Ring("device", (POWER, ENERGY))
    for ring in (together, apart):
        for n in range(6):
            ring.add("node-a", n, START)
    columns = together.columns((ENERGY, "fan_speed_percent", POWER))
    for k in range(100):
        order = np.array([[0, 1, 2], [4, 2, 0], [5, 3, 1]][k % 3], np.intp)
        values = np.array([[k * 10.0 + row, 50.0, np.nan if (k + row) % 7 == 0 else 100.0 + k] for row in order])
        together.put("node-a", START + k, span(order), columns, values)
        for n, row in enumerate(order.tolist()):
            apart.put("node-a", START + k, np.array([row]), columns, values[n : n + 1])

    for lookback in (60.0, 900.0):
        one, other = view(together, "node-a", START + 99), view(apart, "node-a", START + 99)
        for ask in (one.mean, one.min, one.max, one.count):
            np.testing.assert_array_equal(ask(POWER, lookback), getattr(other, ask.__name__)(POWER, lookback))
        np.testing.assert_array_equal(one.increase(ENERGY, lookback), other.increase(ENERGY, lookback))
    np.testing.assert_array_equal(one.last("fan_speed_percent"), other.last("fan_speed_percent"))
