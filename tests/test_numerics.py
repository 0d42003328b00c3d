"""Small numerical pieces, held against NumPy's and against plain loops."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from detector.numerics import forward_filled, slopes, theil_sen

NAN = math.nan
VALUES = st.one_of(st.floats(-1e6, 1e6, width=32), st.just(NAN))
TABLES = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12), elements=VALUES)


def seconds(table: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.arange(-len(table) + 1, 1) * np.float64(10.0)


@given(TABLES)
def test_forward_filled_repeats_what_came_before(table: NDArray[np.float64]) -> None:
    """Column by column; NaN stays where nothing came before; what is there stays as it is."""
    expected = table.copy()
    for row in range(1, len(table)):
        for column in range(table.shape[1]):
            if np.isnan(expected[row, column]):
                expected[row, column] = expected[row - 1, column]

    np.testing.assert_array_equal(expected, forward_filled(table))


@given(TABLES)
def test_slopes_are_those_of_least_squares(table: NDArray[np.float64]) -> None:
    """Missing values are left out; fewer than three give none."""
    times = seconds(table)
    actual = slopes(times, table)
    for n, column in enumerate(table.T):
        seen = ~np.isnan(column)
        expected = np.polyfit(times[seen], column[seen], 1)[0] if seen.sum() >= 3 else NAN
        np.testing.assert_allclose(actual[n], expected, rtol=1e-6, atol=1e-6)


@given(TABLES, st.floats(-1e3, 1e3), st.floats(-100, 100))
def test_slopes_do_not_depend_on_where_zero_is(table: NDArray[np.float64], shift: float, tilt: float) -> None:
    """Shifting values or times changes nothing, tilting adds its tilt."""
    times = seconds(table)
    expected = slopes(times, table)

    np.testing.assert_allclose(slopes(times, table + shift), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(slopes(times + 7_200.0, table), expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(slopes(times, table + tilt * times[:, None]), expected + tilt, rtol=1e-5, atol=1e-5)


def test_slopes_of_nothing_are_nothing() -> None:
    """No rows, no columns, no warning."""
    assert np.isnan(slopes(np.empty(0), np.empty((0, 2)))).all()
    assert (0,) == slopes(np.arange(5.0), np.empty((5, 0))).shape


@given(st.lists(VALUES, max_size=15))
def test_theil_sen_is_the_median_of_all_slopes(values: list[float]) -> None:
    """Between all pairs of points that are there; fewer than three give none."""
    points = [(10.0 * n, value) for n, value in enumerate(values) if not math.isnan(value)]
    every = [(w - v) / (t - s) for n, (s, v) in enumerate(points) for t, w in points[n + 1 :]]
    expected = median(every) if len(points) >= 3 else NAN

    assert expected == pytest.approx(theil_sen(np.arange(0.0, len(values)) * 10.0, np.array(values, np.float64)), nan_ok=True)


@given(st.floats(-100, 100), st.lists(st.tuples(st.integers(0, 19), st.floats(-1e9, 1e9)), max_size=5, unique_by=lambda spike: spike[0]))
def test_theil_sen_ignores_a_quarter_of_outliers(slope: float, spikes: list[tuple[int, float]]) -> None:
    """However far out they are; least squares would not."""
    times = np.arange(20.0)
    values: NDArray[np.float64] = np.multiply(slope, times)
    for place, height in spikes:
        values[place] = height

    assert slope == pytest.approx(theil_sen(times, values), abs=1e-6)
