"""Small numerical pieces that rules and models share. NaN is "no value" throughout."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def forward_filled(values: Floats) -> Floats:
    """Each NaN replaced by the value before it in its column; *values* is (n, columns), NaN stays before the first value."""
    places = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    np.maximum.accumulate(places, axis=0, out=places)
    return np.take_along_axis(values, places, axis=0)


def slopes(times: Floats, values: Floats) -> Floats:
    """Least-squares slope of each column of *values* (n, columns) over *times* (n,), NaN with fewer than three values."""
    seen = ~np.isnan(values)
    count = seen.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(seen, times[:, None], 0.0)
        v = np.where(seen, values, 0.0)
        t_mean, v_mean = t.sum(axis=0) / count, v.sum(axis=0) / count
        dt = np.where(seen, times[:, None] - t_mean, 0.0)
        slope: Floats = (dt * (v - v_mean)).sum(axis=0) / (dt * dt).sum(axis=0)
    return np.where(count >= 3, slope, np.nan)


def theil_sen(times: Floats, values: Floats) -> float:
    """Median of the slopes between all pairs of points: one series, robust against a third of outliers. NaN with fewer than three."""
    seen = ~np.isnan(values)
    t, v = times[seen], values[seen]
    if len(t) < 3:
        return float("nan")
    first, second = np.triu_indices(len(t), 1)
    return float(np.median((v[second] - v[first]) / (t[second] - t[first])))
