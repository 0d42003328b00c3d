"""From a sample of a device's history to what its looks are scored by: plain arrays, which a worker process can hand over."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _calibration
from ._forest import Forests, credits, expected_path, grow, paths

Floats = NDArray[np.float64]

EDGE: Final = 0.01
"""Share of the sample beyond each edge of what counts as usual, so that a rare spike does not widen it."""
FARTHEST: Final = 10.0
"""Splits that one feature can save at most, at a thousand spreads beyond."""


class Usual(NamedTuple):
    """What is usual, by feature; the first axis is the device's slot. A feature that was never read has infinite edges."""

    fill: NDArray[np.float32]
    """The median: stands in for a missing value."""
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    spread: NDArray[np.float32]
    """A quarter of high - low, about a standard deviation; at least the feature's grain."""
    unit: Floats
    """(slots,): the mean path of a sample, by which path lengths are divided."""


class Learnt(NamedTuple):
    """What a forest is and how it judges its own device, one slot each."""

    forests: Forests
    usual: Usual
    histogram: NDArray[np.float32]
    """(1, bins): the scores that the samples get from the trees that have not seen them."""


def learn(samples: NDArray[np.float32], grains: Floats, seed: int) -> Learnt:
    """Grow a forest for the *samples* (n, features), n >= 4, NaN where a value is missing, and measure how it scores them."""
    usual = _usual(samples, grains)
    slots = np.zeros(len(samples), np.intp)
    filled = _filled(usual, slots, samples)
    forests, saw, size = grow(filled, seed)
    usual = usual._replace(unit=np.atleast_1d(expected_path(size)))
    unseen = np.where(saw, 0.0, paths(forests, slots, filled)).sum(axis=1) / np.maximum((~saw).sum(axis=1), 1)
    scores = (_beyond(usual, slots, filled).sum(axis=1) - unseen) / usual.unit[0]
    judged = ~saw.all(axis=1)
    return Learnt(forests, usual, _calibration.histogram(scores[judged])[None])


def score(forests: Forests, usual: Usual, slots: NDArray[np.intp], features: NDArray[np.float32]) -> Floats:
    """log2 of the isolation score of each row of *features* by the forest of its slot, (rows,); higher is stranger.

    An isolation forest cannot tell far from farther: beyond the values it has seen every point falls into the outermost leaf. So its
    ends are open: each doubling of the distance beyond the usual range, in spreads, makes the path one split shorter, as if the cuts
    went on out there.
    """
    filled = _filled(usual, slots, features)
    path: Floats = paths(forests, slots, filled).mean(axis=1) - _beyond(usual, slots, filled).sum(axis=1)
    return -path / usual.unit[slots]


def explain(forests: Forests, usual: Usual, slots: NDArray[np.intp], features: NDArray[np.float32]) -> Floats:
    """What each feature adds to the score, (rows, features), against that of the mean path of the samples."""
    filled = _filled(usual, slots, features)
    return (credits(forests, slots, filled) + _beyond(usual, slots, filled)) / usual.unit[slots][:, None]


def _filled(usual: Usual, slots: NDArray[np.intp], features: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isnan(features), usual.fill[slots], features)


def _usual(samples: NDArray[np.float32], grains: Floats) -> Usual:
    features = samples.shape[1]
    fill, low, high = np.zeros(features, np.float32), np.full(features, -np.inf, np.float32), np.full(features, np.inf, np.float32)
    for n in range(features):
        seen = samples[~np.isnan(samples[:, n]), n]
        if len(seen):
            low[n], fill[n], high[n] = np.quantile(seen, (EDGE, 0.5, 1.0 - EDGE))
    spread = np.maximum(np.where(np.isfinite(low), (high - low) / 4.0, 1.0), grains).astype(np.float32)
    return Usual(fill[None], low[None], high[None], spread[None], unit=np.ones(1))


def _beyond(usual: Usual, slots: NDArray[np.intp], x: NDArray[np.float32]) -> Floats:
    """How many splits each feature saves by lying beyond its usual range, (rows, features)."""
    distance = np.maximum(np.maximum(usual.low[slots] - x, x - usual.high[slots]), 0.0) / usual.spread[slots]
    saved: Floats = np.minimum(np.log2(1.0 + distance.astype(np.float64)), FARTHEST)
    return saved


