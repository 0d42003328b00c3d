"""Window: the newest readings of many things at once, and what can be asked of them.

Every over-time function takes seconds of look-back, counted back from each host's own newest frame, and answers for all rows at once
with shape (rows,). NaN means that there is no such value: nothing was read, or nothing fresh. A look-back reaches at least as far as
asked and at most one bucket further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from detector.frame import Device, Fault, Process
from detector.metrics import METRICS, Entity
from detector.model import Scores
from detector.numerics import forward_filled, slopes
from detector.ring import Ring, Rows, span

Floats = NDArray[np.float64]
Stat = Literal["min", "max", "mean", "last"]


@dataclass(slots=True)
class Subject:
    """What a row is about."""

    host: str
    device: Device | None = None
    processes: tuple[Process, ...] | None = None
    """The processes of the device; None while they are not known."""
    process: Process | None = None
    job: str | None = None
    faults: tuple[Fault, ...] = ()
    """Why the newest frame could not read the device, or for a host: could not see anything."""
    missed: int = 0
    """Frames in a row that listed other devices of the host without this one."""
    missed_since: float | None = None
    """When the first of them was, Unix seconds."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that run on the device."""
        return tuple(dict.fromkeys(p.job for p in self.processes or () if p.job))

    @property
    def owner(self) -> str | None:
        """Whose the device is: the job, pod or process on it, the same word on every device that it holds. None: not known."""
        if not self.processes:
            return None
        largest = max(self.processes, key=lambda p: p.memory_used_bytes or 0.0)
        if largest.job:
            return f"job:{largest.job}"
        if largest.pod:
            return f"pod:{largest.namespace or ''}/{largest.pod}"
        return f"pid:{largest.pid}"


class Window:
    """Rows of a ring whose hosts stand at the same bucket, as a rule sees them."""

    def __init__(self, ring: Ring, rows: Rows, subjects: Sequence[Subject], *, heads: Sequence[int], now: Floats, interval: Floats,
                 devices: Window | None = None) -> None:  # fmt: skip
        self.rows, self.subjects, self.now, self.interval = rows, subjects, now, interval
        """`now`: the newest frame of each row's host, Unix seconds. `interval`: its usual seconds between frames."""
        self._ring, self._span, self._heads, self._devices = ring, span(rows), heads, devices
        self.scores: Scores | None = None
        """What the model says of the rows; None where there is no model or it has not looked."""
        self._known: dict[tuple[str, str, float], Floats] = {}
        self._places: dict[int, int] | None = None
        self._readable: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def entity(self) -> Entity:
        return self._ring.entity

    def of(self, places: NDArray[np.intp] | NDArray[np.bool_]) -> Window:
        """Some of the rows: *places* are indices into, or a mask over, this window's rows."""
        chosen: Rows = np.flatnonzero(places) if places.dtype == bool else places.astype(np.intp, copy=False)
        subjects = [self.subjects[n] for n in chosen]
        part = Window(self._ring, self.rows[chosen], subjects, heads=self._heads, now=self.now[chosen], interval=self.interval[chosen],
                      devices=self._devices)  # fmt: skip
        part.scores = self.scores.of(chosen) if self.scores is not None else None
        return part

    def of_devices(self, ask: Callable[[Window], Floats]) -> Floats:
        """For a window of processes: what *ask* says of the device that each runs on, shape (rows,); NaN where that is not known."""
        if self._devices is None or not len(self._devices):
            return np.full(len(self), np.nan)
        place = {(s.host, s.device.uuid): n for n, s in enumerate(self._devices.subjects) if s.device}
        answers = np.append(ask(self._devices), np.nan)
        return answers[[place.get((s.host, s.device.uuid), -1) if s.device else -1 for s in self.subjects]]

    @property
    def places(self) -> dict[int, int]:
        """Row of the ring -> place in this window."""
        if self._places is None:
            self._places = {int(row): n for n, row in enumerate(self.rows)}
        return self._places

    @property
    def age(self) -> Floats:
        """Seconds since a row was first seen."""
        return self.now - self._ring.first_at[self._span]

    # -- now ----------------------------------------------------------------------------------------------------------------
    def last(self, metric: str) -> Floats:
        """The newest reading; NaN where it is stale: older than two and a half of the metric's or the host's usual intervals.

        A limit or total (`Metric.held`) does not go stale.
        """
        column = self._ring.column(metric)
        newest: Floats = self._ring.newest[column, self._span]
        if METRICS[metric].held:
            return newest
        patience = 2.5 * np.maximum(np.maximum(self.interval, METRICS[metric].cadence), 2.0)
        return np.where(self.now - self._ring.newest_at[column, self._span] <= patience, newest, np.nan)

    def readable(self) -> frozenset[str]:
        """The metrics that were read at least once, of any row."""
        if self._readable is None:
            unread = np.isnan(self._ring.newest[:, self._span]).all(axis=1)
            self._readable = frozenset(self._ring.names[n] for n in np.flatnonzero(~unread).tolist())
        return self._readable

    def ever(self, metric: str) -> NDArray[np.bool_]:
        """Where the metric was read at least once."""
        return ~np.isnan(self._ring.newest[self._ring.column(metric), self._span])

    # -- over time ----------------------------------------------------------------------------------------------------------
    def min(self, metric: str, lookback: float) -> Floats:
        return self._once("min", metric, lookback, self._min)

    def max(self, metric: str, lookback: float) -> Floats:
        return self._once("max", metric, lookback, self._max)

    def mean(self, metric: str, lookback: float) -> Floats:
        """Mean of the samples; of a flag, the share of samples that had it. Not for counters: see `increase`."""
        return self._once("mean", metric, lookback, self._mean)

    def increase(self, counter: str, lookback: float) -> Floats:
        """How much *counter* rose. A fall is a reset: counting starts again from the value after it, so the result is never negative.

        The first value ever seen is a baseline, not an increase. NaN where there was no reading.
        """
        return self._once("increase", counter, lookback, self._increase)

    def count(self, metric: str, lookback: float) -> Floats:
        """Number of readings."""
        return self._once("count", metric, lookback, self._count)

    def present(self, metric: str, lookback: float) -> Floats:
        """How much of the look-back has readings, 0 to 1, given how often the host is sampled; 0 with fewer than three readings.

        Readings further apart than the look-back's fifth prove nothing about it.
        """
        return self._once("present", metric, lookback, self._present)

    def slope(self, metric: str, lookback: float) -> Floats:
        """Least-squares slope of the bucket means, per second; NaN with fewer than three buckets."""
        times, values = self.values(metric, lookback)
        return slopes(times, values)

    def values(self, metric: str, lookback: float, stat: Stat = "mean") -> tuple[Floats, Floats]:
        """(times, values): seconds before now of each bucket's end, shape (n,), oldest first; and (n, rows), NaN where one is empty."""
        tier, buckets = self._ring.tier_for(lookback)
        width = self._ring.tiers[tier].width
        times = (np.arange(buckets, dtype=np.float64) - (buckets - 1)) * width
        counts = self._stack("count", metric, lookback)
        with np.errstate(invalid="ignore", divide="ignore"):
            if stat == "mean":
                return times, self._stack("sum", metric, lookback) / np.where(counts, counts, np.nan)
            plane = {"min": "low", "max": "high", "last": "last"}[stat]
            return times, np.where(counts, self._stack(plane, metric, lookback), np.nan)

    def filled(self, metric: str, lookback: float, stat: Stat = "last") -> tuple[Floats, Floats]:
        """`values`, with an empty bucket repeating the one before it; NaN only before the first reading."""
        times, values = self.values(metric, lookback, stat)
        return times, forward_filled(values)

    # -- how ----------------------------------------------------------------------------------------------------------------
    def _once(self, what: str, metric: str, lookback: float, compute: object) -> Floats:
        key = (what, metric, lookback)
        if key not in self._known:
            self._known[key] = compute(metric, lookback)  # type: ignore[operator]
        return self._known[key]

    def _pieces(self, plane: str, metric: str, lookback: float) -> list[NDArray[np.float64]]:
        """The buckets of the look-back as one or two stretches of the ring, each (buckets, rows), oldest first."""
        number, buckets = self._ring.tier_for(lookback)
        tier = self._ring.tiers[number]
        data = getattr(tier, plane)[:, self._ring.plane(metric)]
        end = self._heads[number] % tier.slots + 1
        if end >= buckets:
            return [data[end - buckets : end, self._span]]
        return [data[end - buckets :, self._span], data[:end, self._span]]

    def _stack(self, plane: str, metric: str, lookback: float) -> Floats:
        return np.concatenate(self._pieces(plane, metric, lookback)).astype(np.float64, copy=False)

    def _min(self, metric: str, lookback: float) -> Floats:
        low = self._pieces("low", metric, lookback)
        least = low[0].min(axis=0) if len(low) == 1 else np.minimum(low[0].min(axis=0), low[1].min(axis=0))
        return np.where(np.isposinf(least), np.nan, least).astype(np.float64)

    def _max(self, metric: str, lookback: float) -> Floats:
        high = self._pieces("high", metric, lookback)
        most = high[0].max(axis=0) if len(high) == 1 else np.maximum(high[0].max(axis=0), high[1].max(axis=0))
        return np.where(np.isneginf(most), np.nan, most).astype(np.float64)

    def _total(self, plane: str, metric: str, lookback: float) -> Floats:
        total: Floats = sum(piece.sum(axis=0, dtype=np.float64) for piece in self._pieces(plane, metric, lookback))
        return total

    def _count(self, metric: str, lookback: float) -> Floats:
        return self._total("count", metric, lookback)

    def _mean(self, metric: str, lookback: float) -> Floats:
        count = self.count(metric, lookback)
        return self._total("sum", metric, lookback) / np.where(count > 0, count, np.nan)

    def _increase(self, counter: str, lookback: float) -> Floats:
        return np.where(self.count(counter, lookback) > 0, self._total("sum", counter, lookback), np.nan)

    def _present(self, metric: str, lookback: float) -> Floats:
        number, _ = self._ring.tier_for(lookback)
        width = self._ring.tiers[number].width
        filled = np.concatenate(self._pieces("count", metric, lookback)) > 0
        # Sampled about once a bucket, jitter puts two readings into one bucket and none into the next: a neighbour counts for it.
        covered = (filled[1:] | filled[:-1]).sum(axis=0) * width
        step = np.maximum(np.maximum(self.interval, METRICS[metric].cadence), width)
        share = np.where(step <= 1.5 * width, covered, filled.sum(axis=0) * step) / lookback
        return np.where((self.count(metric, lookback) >= 3) & (step <= lookback / 5.0), np.minimum(share, 1.0), 0.0)
