"""What a score means: how often a device's own past was as strange.

A device's past scores are kept as a histogram that slowly forgets, so it is bounded, and old habits lose their say. The chance that
a usual look scores s or more is the share of past looks that did. Beyond the top twentieth it is also not less than an exponential
tail through that twentieth says, and never less than a hundredth of what the memory could show: a day of history can make something
"once in 100 days" at most, and nothing rarer can be claimed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

BINS: Final = 1024
LOWEST: Final = -2.0
"""log2 of the lowest score that is told apart; a point that takes 20 splits to isolate."""
WIDTH: Final = 1 / 256
MEMORY_LOOKS: Final = 40_320.0
"""How many looks are remembered, those before them fading away: a week of looks every 15 seconds."""
REACH: Final = 100.0
"""How many times rarer than anything in memory a score may be called."""
TAIL: Final = 0.05
CAUTION: Final = 1.25
"""The tail is taken to be so much longer than it is measured: looks in a row are alike, so it rests on fewer of them than it seems."""

Floats = NDArray[np.float64]


def places(scores: Floats) -> NDArray[np.intp]:
    """The bin of each log2 score. NaN is not allowed."""
    return np.clip((scores - LOWEST) / WIDTH, 0, BINS - 1).astype(np.intp)


def histogram(scores: Floats) -> NDArray[np.float32]:
    """The shares of *scores* by bin, summing to 1."""
    return (np.bincount(places(scores), minlength=BINS) / len(scores)).astype(np.float32)


def record(histograms: NDArray[np.float32], rows: NDArray[np.intp], scores: Floats) -> None:
    """Remember one look each of *rows*."""
    histograms[rows] *= np.float32(1.0 - 1.0 / MEMORY_LOOKS)
    histograms[rows, places(scores)] += 1.0


def chance(histograms: NDArray[np.float32], scores: Floats) -> Floats:
    """The chance, cautiously, that a usual look scores as much or more; *histograms* is (rows, bins), *scores* (rows,). NaN in, NaN out."""
    above = np.cumsum(histograms[:, ::-1], axis=1, dtype=np.float64)[:, ::-1]
    looks = np.maximum(above[:, 0], 1.0)
    seen = np.take_along_axis(above, places(np.nan_to_num(scores, nan=LOWEST))[:, None], axis=1)[:, 0] / looks
    start = (above > TAIL * looks[:, None]).sum(axis=1)
    starts = np.minimum(start, BINS - 1)[:, None]
    count = np.take_along_axis(above, starts, axis=1)[:, 0]
    # Tail counts, summed over the bins of the tail, are the bins by which its looks exceed its start, summed.
    excess = np.where(np.arange(BINS) >= starts, above, 0.0).sum(axis=1) / np.maximum(count, 1e-9)
    length = CAUTION * WIDTH * np.maximum(excess, 1.0)
    beyond = scores - (LOWEST + WIDTH * start)
    tail = np.where(beyond > 0, TAIL * np.exp(-np.maximum(beyond, 0.0) / length), 0.0)
    return np.where(np.isnan(scores), np.nan, np.maximum(np.maximum(seen, tail), 1.0 / (REACH * looks)))
