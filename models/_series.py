"""The model on a plain series: the same forest and calibration, row by row, for benchmarks and notebooks.

Unlike a device, a series has nobody who looks at its alarms: every row is learnt, so that it gets used to whatever lasts.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _calibration
from ._learning import Learnt, learn, score

Floats = NDArray[np.float64]

FIRST_TRAINING: Final = 200
"""Rows; then whenever there are twice as many as at the last training, at most LONGEST_BETWEEN later."""
LONGEST_BETWEEN: Final = 2000
SAMPLE: Final = 4000
"""Newest rows that a forest is grown from."""
PAST_SECONDS: Final = 3600.0
PAST_ROWS: Final = 30
"""Rows that a row is compared with, where the time between them is not known."""
SWING_ROWS: Final = 10
DECADES: Final = 8.0
"""A row as strange as one in 10 ** DECADES would have the score 1."""
_LARGEST: Final = 1e30


def score_series(values: ArrayLike, period_seconds: float | None) -> Floats:
    """See `detector.model.score_series`."""
    if period_seconds is not None and not 0 < period_seconds < np.inf:
        raise ValueError(f"period_seconds must be a positive number of seconds, not {period_seconds}")
    x = np.asarray(values, np.float64)
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[1] == 0):
        raise ValueError(f"values must be shaped (n,) or (n, features), not {x.shape}")
    past = PAST_ROWS if period_seconds is None else int(np.clip(PAST_SECONDS / period_seconds, 10, 120))
    scores = np.zeros(len(x))
    if not len(x):
        return scores
    x = x.reshape(len(x), -1)
    features, readable = _features(x, past), np.isfinite(x).sum(axis=1) > 0
    learnt: Learnt | None = None
    histogram = np.zeros((1, _calibration.BINS), np.float32)
    for start, stop in _stretches(len(x)):
        sample = features[:start][readable[:start]][-SAMPLE:]
        if len(sample) >= FIRST_TRAINING // 2:
            learnt = learn(sample, _grains(sample), seed=start)
            histogram = learnt.histogram * np.float32(min(start, _calibration.MEMORY_LOOKS))
        if learnt is not None:
            chances = _chances(learnt, histogram, features[start:stop], readable[start:stop])
            scores[start:stop] = np.nan_to_num(np.minimum(-np.log10(chances) / DECADES, 1.0))
    return scores


def _stretches(n: int) -> list[tuple[int, int]]:
    """(first, last + 1) of the rows that are scored by one forest, which is grown from rows before them."""
    starts = [FIRST_TRAINING]
    while starts[-1] < n:
        starts.append(starts[-1] + min(starts[-1], LONGEST_BETWEEN))
    return [(start, min(stop, n)) for start, stop in pairwise(starts)]


def _features(x: Floats, past: int) -> NDArray[np.float32]:
    """Of each channel the value, its distance to the mean of the *past* rows before it, and how much it strays from its newest mean."""
    x = np.where(np.isfinite(x), np.clip(x, -_LARGEST, _LARGEST), np.nan)
    for channel in x.T:
        seen = np.flatnonzero(~np.isnan(channel))
        channel -= channel[seen[0]] if len(seen) else 0.0
    before = np.vstack([np.full((1, x.shape[1]), np.nan), _trailing_mean(x, past)[:-1]])
    spread = np.sqrt(_trailing_mean((x - _trailing_mean(x, SWING_ROWS)) ** 2, SWING_ROWS))
    return np.column_stack([x, x - before, spread]).astype(np.float32)


def _trailing_mean(x: Floats, rows: int) -> Floats:
    """The mean of the newest *rows* rows, NaN where less than half of them have a value."""
    seen = ~np.isnan(x)
    count, total = np.zeros(x.shape), np.zeros(x.shape)
    for lag in range(min(rows, len(x))):
        count[lag:] += seen[: len(x) - lag]
        total[lag:] += np.where(seen, x, 0.0)[: len(x) - lag]
    return total / np.where(count >= rows / 2, count, np.nan)


def _grains(features: NDArray[np.float32]) -> Floats:
    """What is no difference in a series of unknown unit: a millionth of its largest value."""
    largest: Floats = np.nanmax(np.abs(features), axis=0, initial=0.0).astype(np.float64)
    return np.maximum(largest, 1e-9) * 1e-6


def _chances(learnt: Learnt, histogram: NDArray[np.float32], features: NDArray[np.float32], readable: NDArray[np.bool_]) -> Floats:
    """The chance of each row, which is then remembered; NaN where a row has no value."""
    scores = score(learnt.forests, learnt.usual, np.zeros(len(features), np.intp), features)
    chances = np.full(len(features), np.nan)
    slot = np.zeros(1, np.intp)
    for n in np.flatnonzero(readable):
        chances[n] = _calibration.chance(histogram, scores[n : n + 1])[0]
        _calibration.record(histogram, slot, scores[n : n + 1])
    return chances
