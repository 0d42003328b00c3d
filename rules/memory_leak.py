"""Memory that grows and will not stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES
from detector.numerics import theil_sen
from detector.rule import CRITICAL, Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

MIB = 1024.0**2


@dataclass(frozen=True)
class MemoryLeak(Rule):
    """The memory that a process never gave back rose through the whole look-back, in every third of it, and will not fit much longer.

    Judged per process; per GPU only where the memory of its processes is not visible. The first minutes of a process are warm-up. A
    caching allocator (one ramp, then flat), preallocation, a staircase with plateaus and a saw (a graph freed at the end of each epoch)
    are not leaks: in one of the thirds they do not rise, or slow down, or fall, or they had given back as much within hours before. A
    validation that takes memory for a few minutes and gives it back neither makes a leak nor hides one.
    """

    keep_firing: float = 600.0
    lookback: float = 1800.0
    warmup_seconds: float = 300.0
    min_rise_bytes: float = 512 * MIB
    min_rise_fraction: float = 0.01
    """Of the device's memory; the larger of the two counts."""
    min_third_fraction: float = 0.2
    """Share of the rise that each third of the look-back must have."""
    min_pace_fraction: float = 0.6
    """The last third over the first: what slows down will find its level (a cache, the longest sequence so far)."""
    max_fall_fraction: float = 0.1
    """Share of the rise that may have been given back in between."""
    min_activity_percent: float = 5.0
    """Below this a growing memory is a model being loaded."""
    horizon_seconds: float = 86_400.0
    """Growth that needs longer than this to fill the memory is not worth a call."""
    critical_seconds: float = 1800.0
    """Critical once the memory will be full within this time."""

    entity: ClassVar = ("process", "device")
    uses: ClassVar = ("process_memory_used_bytes", "memory_used_bytes", "process_memory_known_bytes", "utilization_percent")
    every: ClassVar = 60.0
    explained_by: ClassVar = ("gpu_lost",)
    BUMP_BUCKETS: ClassVar = 5
    """What is given back within so many buckets (minutes, by default) was only lent."""
    LIFE_SECONDS: ClassVar = 10_800.0
    """How far back it is looked whether memory was given back."""

    def check(self, window: Window) -> Verdict:
        metric = self._metric(window)
        total = self._device(window, lambda w: w.last("memory_total_bytes"))
        least = np.fmax(self.min_rise_bytes, self.min_rise_fraction * total)
        rise = window.max(metric, self.lookback) - window.min(metric, self.lookback)
        old = window.age >= self.lookback + self.warmup_seconds
        seen = old & (window.present(metric, self.lookback) >= 0.8) & self._judged_here(window)
        leaks, may_leak, left = np.zeros(len(window), bool), np.zeros(len(window), bool), np.full(len(window), np.nan)
        # Most memory does not move at all, which costs little to see.
        moves = seen & (rise >= least)
        if moves.any():
            rise[moves], leaks[moves], may_leak[moves] = self._growth(window.of(moves), least[moves])
            left[leaks] = self._time_to_full(window.of(leaks))
        firing = leaks & ~(left > self.horizon_seconds)
        return Verdict(
            firing=firing,
            # Memory that rose as much, if not as steadily, may still leak: neither firing nor clear.
            known=~np.isnan(window.last(metric)) & seen & (firing | ~may_leak),
            value=rise,
            threshold=least,
            severity=np.where(left <= self.critical_seconds, CRITICAL, SEVERITIES.index(self.severity)).astype(np.int8),
        )

    def _growth(self, window: Window, least: Floats) -> tuple[Floats, Booleans, Booleans]:
        """(bytes by which memory that was never given back rose, where that is a leak, where it may be one)."""
        _, floor = self._floor(window, self.lookback)
        rise = floor[-1] - floor[0]
        thirds = np.diff(floor[np.linspace(0, len(floor) - 1, 4).astype(int)], axis=0)
        fall = (np.maximum.accumulate(floor, axis=0) - floor).max(axis=0)
        kept = (rise >= least) & (fall <= self.max_fall_fraction * rise)
        steady = (thirds >= self.min_third_fraction * rise).all(axis=0) & (thirds[-1] >= self.min_pace_fraction * thirds[0])
        loading = self._device(window, lambda w: w.mean("utilization_percent", self.lookback)) < self.min_activity_percent
        return rise, kept & steady & ~loading & ~self._gave_back(window), kept | np.isnan(rise)

    def _metric(self, window: Window) -> str:
        return "process_memory_used_bytes" if window.entity == "process" else "memory_used_bytes"

    def _floor(self, window: Window, lookback: float) -> tuple[Floats, Floats]:
        """(times, memory without what was only lent), as `Window.filled` has them; NaN only before the first reading."""
        times, levels = window.filled(self._metric(window), lookback)
        lent = np.lib.stride_tricks.sliding_window_view(levels, self.BUMP_BUCKETS, axis=0)
        return times[self.BUMP_BUCKETS - 1 :], np.fmin.reduce(lent, axis=-1)

    def _gave_back(self, window: Window) -> Booleans:
        """Where more was in use before the look-back than at its start, and not by a former job: the memory was free in between then."""
        (start, *_), _ = self._floor(window, self.lookback)
        times, floor = self._floor(window, self.LIFE_SECONDS)
        before, now = floor[times < start], floor[times >= start]
        same_job = np.logical_and.accumulate(~(before < self.min_rise_bytes)[::-1], axis=0)[::-1]
        most = np.fmax.reduce(np.where(same_job, before, np.nan), axis=0, initial=-np.inf)
        return np.asarray(most - now[0] > self.max_fall_fraction * (now[-1] - now[0]))

    def _judged_here(self, window: Window) -> Booleans:
        """A device is judged as a whole only where its processes do not say how much they use, and it is not cut into instances."""
        if window.entity == "process":
            return np.ones(len(window), bool)
        cut = {subject.device.parent for subject in window.subjects if subject.device is not None}
        uncut = np.array([s.device is not None and s.device.uuid not in cut for s in window.subjects], bool)
        return uncut & ~(window.count("process_memory_known_bytes", self.lookback) > 0)

    def _device(self, window: Window, ask: Callable[[Window], Floats]) -> Floats:
        """What *ask* says of the device that a row is, or runs on."""
        return ask(window) if window.entity == "device" else window.of_devices(ask)

    def _time_to_full(self, window: Window) -> Floats:
        """Seconds until the device's memory is full at the present pace; NaN where it does not rise or the size is not known."""
        room = self._device(window, lambda w: w.last("memory_total_bytes") - w.last("memory_used_bytes"))
        times, floor = self._floor(window, self.lookback)
        pace = np.array([theil_sen(times, floor[:, n]) for n in range(len(window))])
        return np.where(pace > 0, room / np.where(pace > 0, pace, 1.0), np.nan)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        times, floor = self._floor(window, self.lookback)
        pace = theil_sen(times, floor[:, 0])
        room = self._device(window, lambda w: w.last("memory_total_bytes") - w.last("memory_used_bytes"))[0]
        eta = f"; full in about {_span(room / pace)} at this pace" if pace > 0 and np.isfinite(room) else ""
        process = window.subjects[0].process
        who = "the GPU" if process is None else f"process {process.pid}" + (f" ({process.command})" if process.command else "")
        minutes = (times[-1] - times[0]) / 60
        return Story(
            summary=f"memory of {who} rose by {verdict.value[0] / MIB:,.0f} MiB in {minutes:.0f} minutes without a plateau"
            f" ({pace * 3600 / MIB:,.0f} MiB/h){eta}",
            action="Checkpoint before it is full; look for tensors that are kept alive: losses stored without .item(), growing lists,"
            " retained graphs.",
            evidence=(self._metric(window), "memory_used_bytes"),
            unit="bytes",
            pid=process.pid if process else None,
        )


def _span(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 5400 else f"{max(1.0, seconds / 60):.0f} min"
