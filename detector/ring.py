"""Where readings are kept: columnar, bounded, and as cheap to look back an hour as ten minutes.

A Ring holds one kind of thing (devices, processes or jobs), a row each. Time is cut into buckets of 1, 10 and 60 seconds, one ring
of buckets a width, each bucket with the minimum, maximum, sum, count and last value of what fell into it. Buckets commute, so
frames may come late or out of order. A host's clock is its own: rows of a host share a head (its newest bucket), rows of different
hosts need not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detector.metrics import METRICS, Entity

TIERS: Final[tuple[tuple[float, int], ...]] = ((1.0, 64), (10.0, 96), (60.0, 192))
"""(seconds a bucket, buckets kept): a minute, a quarter of an hour, three hours."""

LONGEST_SAMPLING_SECONDS: Final = 900.0
"""Readings further apart than this prove nothing about the time between them."""

KNOWN_FORMS: Final = 256
"""So many different lists of metrics are remembered."""

Rows = NDArray[np.intp]


@dataclass(slots=True)
class HostClock:
    """Time as one host's frames tell it."""

    now: float
    """The newest `at`, Unix seconds."""
    observed: float = 0.0
    """Seconds during which somebody recorded: holes in the recording do not count."""
    after_hole: bool = False
    """Whether the newest frame was the first after a hole."""
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    @property
    def interval(self) -> float:
        """The usual seconds between two frames: the median of the newest gaps, 1 until there is one."""
        return sorted(self.gaps)[len(self.gaps) // 2] if self.gaps else 1.0

    def advance(self, at: float) -> bool:
        """Move on to *at*; False if *at* is not newer. A gap far beyond the usual is a hole: only one usual interval is observed."""
        gap = at - self.now
        if gap <= 0:
            return False
        # The second longest gap: two sources side by side, each every two minutes, make every other gap a long one.
        limit = max(60.0, 5.0 * self.interval, 2.0 * sorted(self.gaps)[-2]) if len(self.gaps) >= 3 else LONGEST_SAMPLING_SECONDS
        self.after_hole = gap > min(limit, LONGEST_SAMPLING_SECONDS)
        self.observed += min(self.interval, gap) if self.after_hole else gap
        if gap <= LONGEST_SAMPLING_SECONDS:
            self.gaps.append(gap)
        self.now = at
        return True


class _Tier:
    """The buckets of one width."""

    def __init__(self, width: float, slots: int, columns: int) -> None:
        self.width, self.slots = width, slots
        shape = (slots, columns, 0)
        self.low = np.empty(shape, np.float32)
        self.high = np.empty(shape, np.float32)
        self.sum = np.empty(shape, np.float32)
        self.count = np.empty(shape, np.uint16)
        self.last = np.empty(shape)

    def planes(self) -> tuple[tuple[str, float], ...]:
        return (("low", np.inf), ("high", -np.inf), ("sum", 0.0), ("count", 0), ("last", np.nan))

    def grow(self, capacity: int) -> None:
        for name, empty in self.planes():
            old = getattr(self, name)
            new = np.full((*old.shape[:2], capacity), empty, old.dtype)
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)

    def clear(self, slots: Rows | slice | int, rows: Rows | slice) -> None:
        for name, empty in self.planes():
            plane = getattr(self, name)
            if isinstance(slots, slice | int) or isinstance(rows, slice):
                plane[slots, :, rows] = empty
            else:
                plane[slots[:, None, None], np.arange(plane.shape[1])[None, :, None], rows] = empty


class Ring:
    """Readings of many things of one kind; *metrics* are those that keep a history, every metric of the kind keeps its newest value."""

    def __init__(self, entity: Entity, metrics: Sequence[str]) -> None:
        self.entity = entity
        self.names = tuple(name for name, metric in METRICS.items() if metric.entity == entity)
        self.history = tuple(name for name in self.names if name in set(metrics))
        self._column = {name: n for n, name in enumerate(self.names)}
        self._plane = {name: n for n, name in enumerate(self.history)}
        self._shares: dict[bytes, tuple[Rows, Rows]] = {}
        self._counter = np.array([METRICS[name].kind == "counter" for name in self.history], bool)
        self.tiers = tuple(_Tier(width, slots, len(self.history)) for width, slots in TIERS)
        self.newest = np.empty((len(self.names), 0))
        """The newest reading, shaped (metrics, rows); NaN where none was ever seen."""
        self.newest_at = np.empty((len(self.names), 0))
        self.first_at = np.empty(0)
        """When a row was first seen, Unix seconds."""
        self.keys: list[Hashable | None] = []
        """What stands in a row; None for a free one."""
        self._free: list[int] = []
        self._used: set[int] = set()
        """Free rows that hold the readings of what stood there before."""
        self._of_host: dict[str, list[int]] = {}
        self._heads: dict[str, list[int]] = {}
        self._blocks: dict[str, Rows | slice] = {}

    # -- rows ---------------------------------------------------------------------------------------------------------------
    def add(self, host: str, key: Hashable, at: float) -> int:
        """A row for *key*, empty."""
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.keys[row] = key
        self._of_host.setdefault(host, []).append(row)
        self._blocks.pop(host, None)
        self.first_at[row] = at
        if row in self._used:
            self._used.discard(row)
            self.newest[:, row] = np.nan
            self.newest_at[:, row] = -np.inf
            for tier in self.tiers:
                tier.clear(slice(None), slice(row, row + 1))
        return row

    def remove(self, host: str, row: int) -> None:
        """Give the row back."""
        self.keys[row] = None
        self._of_host[host].remove(row)
        self._blocks.pop(host, None)
        self._free.append(row)
        self._used.add(row)

    def rows(self, host: str) -> list[int]:
        """The rows of a host, in the order they were added."""
        return self._of_host.get(host, [])

    def _grow(self) -> None:
        old = len(self.keys)
        new = max(8, old + max(old // 2, 8))
        for tier in self.tiers:
            tier.grow(new)
        for name, empty in (("newest", np.nan), ("newest_at", -np.inf)):
            grown = np.full((len(self.names), new), empty)
            grown[:, :old] = getattr(self, name)
            setattr(self, name, grown)
        self.first_at = np.concatenate([self.first_at, np.full(new - old, np.nan)])
        self.keys.extend([None] * (new - old))
        self._free.extend(range(new - 1, old - 1, -1))

    def _block(self, host: str) -> Rows | slice:
        block = self._blocks.get(host)
        if block is None:
            block = self._blocks[host] = span(self._of_host_array(host))
        return block

    def _of_host_array(self, host: str) -> Rows:
        return np.array(self.rows(host), np.intp)

    # -- writing ------------------------------------------------------------------------------------------------------------
    def open(self, moments: Iterable[tuple[str, float]]) -> None:
        """Open the buckets that these moments (host, at) fall into: what stood in their place, an age ago, is cleared."""
        moving: dict[tuple[tuple[int, ...], int], list[str]] = {}
        for host, at in moments:
            heads, bucket = self._heads.get(host), int(at // TIERS[0][0])
            if heads is None:
                self._heads[host] = [int(at // width) for width, _ in TIERS]
            elif bucket > heads[0]:
                moving.setdefault((tuple(heads), bucket), []).append(host)
        for (old, bucket), hosts in moving.items():
            at = bucket * TIERS[0][0]
            new = [int(at // width) for width, _ in TIERS]
            rows = self._block(hosts[0]) if len(hosts) == 1 else span(np.concatenate([self._of_host_array(host) for host in hosts]))
            for tier, before, after in zip(self.tiers, old, new, strict=True):
                if after > before:
                    tier.clear(_between(before, after, tier.slots), rows)
            for host in hosts:
                self._heads[host] = list(new)

    def head(self, host: str, at: float) -> list[int]:
        """The host's newest bucket of each tier, once those that *at* falls into are open."""
        self.open([(host, at)])
        return self._heads[host]

    def heads(self, host: str) -> list[int]:
        """The host's newest bucket of each tier, as far as they are open."""
        return self._heads[host]

    def put(self, host: str, at: float, rows: Rows | slice, columns: Rows, values: NDArray[np.float64]) -> None:
        """Write readings: *values* is (rows, columns) and *columns* are places in `names`; NaN is "no reading"."""
        self.write(self.head(host, at), at, rows, columns, values)

    def write(
        self, heads: Sequence[int], at: float | NDArray[np.float64], rows: Rows | slice, columns: Rows, values: NDArray[np.float64]
    ) -> None:
        """Write readings of rows whose hosts stand at *heads*. *at* is one moment, or one a row, all in the same finest bucket."""
        readings = values.T
        place = (columns, rows) if isinstance(rows, slice) else (columns[:, None], rows)
        before, before_at = self.newest[place], self.newest_at[place]
        fresh = ~np.isnan(readings) & (before_at <= at)
        source, target = self._shared(columns)
        if len(target):
            moment = float(at) if np.ndim(at) == 0 else float(at[0])  # type: ignore[index]
            self._fold(moment, heads, rows, target, readings[source], fresh[source], before[source])
        self.newest[place] = np.where(fresh, readings, before)
        self.newest_at[place] = np.where(fresh, at, before_at)

    def _shared(self, columns: Rows) -> tuple[Rows, Rows]:
        """(places in *columns*, planes of the history) of the metrics that keep one."""
        key = columns.tobytes()
        if key not in self._shares:
            if len(self._shares) >= KNOWN_FORMS:
                self._shares.clear()
            planes = [self._plane.get(self.names[column], -1) for column in columns]
            source = np.array([n for n, plane in enumerate(planes) if plane >= 0], np.intp)
            self._shares[key] = (source, np.array([plane for plane in planes if plane >= 0], np.intp))
        return self._shares[key]

    def _fold(self, at: float, heads: Sequence[int], rows: Rows | slice, planes: Rows, readings: NDArray[np.float64],
              fresh: NDArray[np.bool_], before: NDArray[np.float64]) -> None:  # fmt: skip
        seen = ~np.isnan(readings)
        low = np.where(seen, readings, np.inf)
        high = np.where(seen, readings, -np.inf)
        # Of a counter the sum holds what it rose by. A fall is a reset and the first value a baseline: neither is a rise.
        rise = np.where(fresh & (readings > before), readings - before, 0.0)
        amount = np.where(self._counter[planes][:, None], rise, np.where(seen, readings, 0.0))
        place = (planes, rows) if isinstance(rows, slice) else (planes[:, None], rows)
        for tier, head in zip(self.tiers, heads, strict=True):
            bucket = int(at // tier.width)
            if bucket <= head - tier.slots:
                continue
            slot = bucket % tier.slots
            data = tier.low[slot]
            data[place] = np.minimum(data[place], low)
            data = tier.high[slot]
            data[place] = np.maximum(data[place], high)
            data = tier.sum[slot]
            data[place] += amount
            counts = tier.count[slot]
            counts[place] += seen
            data = tier.last[slot]
            kept = data[place]
            data[place] = np.where(fresh | (seen & np.isnan(kept)), readings, kept)

    # -- places -------------------------------------------------------------------------------------------------------------
    def columns(self, metrics: Sequence[str]) -> Rows:
        """Places in `names`; -1 for a metric of another kind."""
        return np.array([self._column.get(name, -1) for name in metrics], np.intp)

    def column(self, metric: str) -> int:
        return self._column[metric]

    def plane(self, metric: str) -> int:
        """The place of a metric in the history. KeyError: nobody has asked for its history."""
        return self._plane[metric]

    def tier_for(self, lookback: float) -> tuple[int, int]:
        """(tier, buckets) that cover at least *lookback* seconds, in the finest tier that reaches so far."""
        for n, tier in enumerate(self.tiers):
            buckets = int(-(-lookback // tier.width)) + 1
            if buckets <= tier.slots:
                return n, buckets
        raise ValueError(f"a look-back of {lookback:.0f} s is longer than what is kept ({TIERS[-1][0] * (TIERS[-1][1] - 1):.0f} s)")


def _between(before: int, after: int, slots: int) -> Rows | slice | int:
    """The places in a ring of the buckets after *before* up to *after*."""
    if after - before == 1:
        return after % slots
    return slice(None) if after - before >= slots else np.arange(before + 1, after + 1, dtype=np.intp) % slots


def span(rows: Rows) -> Rows | slice:
    """The rows as a slice where they are neighbours in order: slices cost no copy."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and bool(np.all(np.diff(rows) == 1)):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
