"""What the forest sees of a device: how high each metric is, how it moved, how much it swings, and whether power fits the work.

All features are in the unit of their metric. A tree only compares, so scaling would change nothing, and what is usual can be told
as it was read.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detector.window import Window

Floats = NDArray[np.float64]

METRICS: Final = (
    "utilization_percent",
    "memory_utilization_percent",
    "memory_used_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
)
GRAIN: Final = np.array([5.0, 5.0, 512.0 * 1024.0**2, 5.0, 3.0, 30.0])
"""By metric, the range of values that is no difference to anybody: a reading that never moved must move by that much to be strange."""

NOW_SECONDS: Final = 300.0
"""The median of so many seconds is what is looked at: checkpoints, evaluations and stalls that are over within two minutes are not seen."""
BEFORE_SECONDS: Final = 1800.0
"""What that is compared with. It means something only where all of it lies in one stretch of work."""

UTILIZATION: Final = METRICS.index("utilization_percent")
POWER: Final = METRICS.index("power_watts")
_SWINGING: Final = tuple(n for n, name in enumerate(METRICS) if name not in ("memory_used_bytes", "temperature_celsius"))


class Feature(NamedTuple):
    metric: int
    """Its place in METRICS."""
    kind: Literal["level", "change", "swing", "residual"]
    """Median now; that against the half hour before; half of the range that the middle half of the readings takes; power against what is
    usual for the utilisation."""


READ: Final = (
    *(Feature(n, "level") for n in range(len(METRICS))),
    *(Feature(n, "change") for n in range(len(METRICS))),
    *(Feature(n, "swing") for n in _SWINGING),
)
"""The features that can be read from a window, in the order of their columns."""
FEATURES: Final = (*READ, Feature(POWER, "residual"))
"""Those that the forest sees: the residual needs a line through the device's history first."""

METRIC_OF: Final = np.array([feature.metric for feature in FEATURES])
LEVEL: Final = slice(0, len(METRICS))
PAST: Final = slice(len(METRICS), len(READ))
"""Columns that compare with the minutes before."""
SWINGS: Final = [n for n, feature in enumerate(FEATURES) if feature.kind == "swing"]
GRAINS: Final = GRAIN[METRIC_OF]


def read(window: Window) -> Floats:
    """The features that a window holds, (rows, READ); NaN where a metric has no reading."""
    now = [_quartiles(window.values(metric, NOW_SECONDS)[1]) for metric in METRICS]
    before = [_quartiles(window.values(metric, BEFORE_SECONDS)[1])[1] for metric in METRICS]
    levels = [median for _, median, _ in now]
    swings = [(now[n][2] - now[n][0]) / 2.0 for n in _SWINGING]
    return np.column_stack([*levels, *(level - past for level, past in zip(levels, before, strict=True)), *swings])


def _quartiles(values: Floats) -> tuple[Floats, Floats, Floats]:
    """The quartiles of each column of *values* (n, columns); NaN where it has no value."""
    ordered = np.sort(values, axis=0)  # NaN goes last
    last = np.maximum((~np.isnan(values)).sum(axis=0) - 1, 0)
    columns = np.arange(values.shape[1])
    first, second, third = (ordered[(last * share).round().astype(np.intp), columns] for share in (0.25, 0.5, 0.75))
    return first, second, third


def complete(read: Floats, line: Floats) -> NDArray[np.float32]:
    """All features, (rows, FEATURES): *line* (rows, 2) is intercept and slope of power over utilisation."""
    residual = read[:, POWER] - (line[:, 0] + line[:, 1] * read[:, UTILIZATION])
    return np.column_stack([read, residual]).astype(np.float32)


def fitted_line(read: Floats) -> Floats:
    """Intercept and slope of power over utilisation, (2,); NaN where they were never read together."""
    work, power = read[:, UTILIZATION], read[:, POWER]
    both = ~np.isnan(work) & ~np.isnan(power)
    if not both.any():
        return np.full(2, np.nan)
    work, power = work[both], power[both]
    # A utilisation that hardly moves says nothing about the slope: its grain is added to the variance, which draws the slope to 0.
    slope = ((work - work.mean()) * (power - power.mean())).mean() / (work.var() + GRAIN[UTILIZATION] ** 2 / 12.0)
    return np.array([power.mean() - slope * work.mean(), slope])
