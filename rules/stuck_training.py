"""A job that holds its GPUs and gets nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from detector.incident import SEVERITIES
from detector.rule import CRITICAL, Booleans, Floats, Rule, Story, Verdict
from detector.window import Subject, Window

from ._teams import Teams


@dataclass(frozen=True)
class StuckTraining(Rule):
    """Two signs of a training job that hangs; one incident for all its GPUs on a host.

    Spinning: 100 % busy in every sample while power is far below the GPU's own working level and memory is hardly touched, the sign of
    a collective that waits for a peer (nccl#968). It takes two GPUs of the job, or a step counter that stands still, and no rank at
    work; one that works is waited for, but not for ever. Silent: a named job's GPU at rest in every sample of ten minutes, memory held,
    after it had worked. That may also be a pause, so it becomes critical only where a step counter stands still.

    A checkpoint of a few minutes, an evaluation at low load or on one rank, a starving loader and decoding at low power are work: each
    has samples at rest, samples with power, memory traffic or a busy rank within the look-back. A job that has not worked yet may be
    building its dataset behind a barrier: it gets longer. Where a GPU is known to work at one level only, nothing can be told.
    """

    keep_firing: float = 120.0
    lookback: float = 300.0
    """How long the GPUs must spin."""
    silent_lookback: float = 600.0
    """How long they must rest."""
    critical_seconds: float = 900.0
    """How long beyond that it becomes critical, or is told at all of a job that has not worked yet."""
    one_rank_seconds: float = 1800.0
    """How long all others may wait for a single rank that is at work."""
    working_lookback: float = 10_800.0
    """Where the GPU's own working level is taken from: its best minute of this time."""
    min_spin_percent: float = 98.5
    """On average; a sample may be a little less. Small kernels leave gaps."""
    max_spin_power_fraction: float = 0.4
    """Of the working level."""
    max_spin_memory_percent: float = 2.0
    max_idle_percent: float = 3.0
    min_worked_percent: float = 20.0

    needs: ClassVar = ("utilization_percent",)
    uses: ClassVar = ("memory_utilization_percent", "power_watts", "memory_used_bytes", "device_job_step_total")
    wastes: ClassVar = True
    explained_by: ClassVar = ("gpu_lost", "xid", "telemetry_frozen", "nvlink_degraded")
    HELD_BYTES: ClassVar = 1024.0**3
    MAX_GAP_PERCENT: ClassVar = 5.0
    BLIND_POWER_FRACTION: ClassVar = 0.3
    """Of the working level, where memory traffic is not read: decoding may well draw half of it."""
    SMALL_BOARD_WATTS: ClassVar = 45.0
    SMALL_BOARD_POWER_FRACTION: ClassVar = 0.65
    """A T4 or L4 rests at 0.4 of its limit and spins at half of it: up to so many watts, this share of the working level counts."""

    def check(self, window: Window) -> Verdict:
        if not self._any_suspicion(window):
            still = np.zeros(len(window), bool)
            power = window.mean("power_watts", self.lookback)
            return Verdict(firing=still, value=power, known=self._seen(window, self.lookback))
        names = [_team(subject) for subject in window.subjects]
        teams, named = Teams(window, names), np.array([name.startswith("job:") for name in names], bool)
        spin = self._spin(window, self.lookback)
        waits, silent = self._waits(window, teams, named, spin, self.lookback), self._silent(window, named, self.silent_lookback)
        long_waits = long_silent = one_rank = np.zeros(len(window), bool)
        if spin.rows.any() or silent.any():
            longer = self.lookback + self.critical_seconds
            long_waits = waits & self._waits(window, teams, named, self._spin(window, longer), longer)
            longer = self.one_rank_seconds
            one_rank = self._waits(window, teams, named, self._spin(window, longer), longer, at_work=1)
            longer = self.silent_lookback + self.critical_seconds
            long_silent = silent & self._silent(window, named, longer) & self._stands(window, longer)
        started = teams.any(spin.started)
        firing = ((waits | one_rank) & started) | long_waits | silent
        return Verdict(
            firing=firing,
            known=firing | (self._seen(window, self.lookback) & ~spin.unsure & ~self._may_be_silent(window, named)),
            value=window.mean("power_watts", self.lookback),
            threshold=spin.limit,
            severity=np.where((long_waits & started) | long_silent, CRITICAL, SEVERITIES.index(self.severity)).astype(np.int8),
            group=names,
        )

    def _any_suspicion(self, window: Window) -> bool:
        """Whether any GPU was fully busy, or at rest, all the time. A fleet at work is looked at no further."""
        spins = window.min("utilization_percent", self.lookback) >= self.min_spin_percent
        rests = window.max("utilization_percent", self.lookback) <= self.max_idle_percent
        spins &= ~(window.max("memory_utilization_percent", self.lookback) > self.max_spin_memory_percent)
        return bool((spins | rests).any())

    # -- spinning -------------------------------------------------------------------------------------------------------------
    def _spin(self, window: Window, lookback: float) -> _Spin:
        power, traffic = window.max("power_watts", lookback), window.max("memory_utilization_percent", lookback)
        steady = window.min("utilization_percent", lookback) >= self.min_spin_percent - self.MAX_GAP_PERCENT
        busy = steady & (window.mean("utilization_percent", lookback) >= self.min_spin_percent)
        maybe = self._seen(window, lookback) & busy & ~(traffic > self.max_spin_memory_percent)
        limit, lowest, highest, own = np.full((4, len(window)), np.nan)
        # The levels are costly to find: only where a GPU might spin.
        lowest[maybe], highest[maybe], own[maybe] = self._levels(window.of(maybe))
        limit = np.where(np.isnan(traffic), self.BLIND_POWER_FRACTION * highest, self._far_below(highest))
        rows = maybe & (power <= limit)
        one_level = ~(lowest <= self._far_below(highest))
        return _Spin(rows, unsure=maybe & ~rows & (np.isnan(power) | one_level), started=rows & (own > limit), limit=limit)

    def _far_below(self, level: Floats) -> Floats:
        small_board = np.minimum(self.SMALL_BOARD_WATTS, self.SMALL_BOARD_POWER_FRACTION * level)
        return np.maximum(self.max_spin_power_fraction * level, small_board)

    def _levels(self, window: Window) -> tuple[Floats, Floats, Floats]:
        """(lowest, highest, highest since the memory in use is held) power of a busy minute, in watts; NaN where there was none."""
        _, watts = window.values("power_watts", self.working_lookback)
        _, busy = window.values("utilization_percent", self.working_lookback)
        working = np.where(busy >= self.min_worked_percent, watts, np.nan)
        own = np.where(self._held(window), working, np.nan)
        return np.fmin.reduce(working), np.fmax.reduce(working), np.fmax.reduce(own)

    def _waits(self, window: Window, teams: Teams, named: Booleans, spin: _Spin, lookback: float, at_work: int = 0) -> Booleans:
        """Where a collective waits: GPUs that spin while no more than *at_work* of their team work, and all others of the team."""
        moving = window.increase("device_job_step_total", lookback) > 0
        # A GPU whose working level is not known works if it draws more than those that spin.
        hot = window.max("power_watts", lookback) > teams.most(np.where(spin.rows, spin.limit, 0.0))
        busy = self._seen(window, lookback) & (window.mean("utilization_percent", lookback) > self.max_idle_percent)
        works = busy & ~spin.rows & (hot | ~spin.unsure)
        enough = (teams.count(spin.rows) >= 2) | self._stands(window, lookback)
        hangs = spin.rows & enough & ~moving & (teams.count(works) <= at_work)
        return hangs | (teams.any(hangs) & (spin.unsure | works | (self._rests(window, lookback) & named)))

    # -- silent -----------------------------------------------------------------------------------------------------------------
    def _silent(self, window: Window, named: Booleans, lookback: float) -> Booleans:
        """A named job's GPU at rest after work. Without a job's name it may be a server or a notebook: idle, not stuck."""
        rests = self._rests(window, lookback) & named & ~(window.increase("device_job_step_total", lookback) > 0)
        rests[rests] = self._worked(window.of(rests))
        return rests

    def _may_be_silent(self, window: Window, named: Booleans) -> Booleans:
        """At rest, but it is not known for how long or after what."""
        rests = self._rests(window, self.lookback) & named
        rests[rests] = ~self._worked(window.of(rests)) | ~self._seen(window.of(rests), self.silent_lookback)
        return rests

    def _rests(self, window: Window, lookback: float) -> Booleans:
        quiet = self._seen(window, lookback) & (window.max("utilization_percent", lookback) <= self.max_idle_percent)
        return quiet & ~(window.last("memory_used_bytes") < self.HELD_BYTES)

    def _worked(self, window: Window) -> Booleans:
        """Where the GPU was at work since the memory in use is held."""
        _, busy = window.values("utilization_percent", self.working_lookback, "max")
        return np.asarray(((busy >= self.min_worked_percent) & self._held(window)).any(axis=0))

    # -- both -------------------------------------------------------------------------------------------------------------------
    def _held(self, window: Window) -> Booleans:
        """The newest buckets of which none saw the memory free, shape (n, rows): since then it is the same job, as far as one sees."""
        _, used = window.values("memory_used_bytes", self.working_lookback, "min")
        return np.logical_and.accumulate(~(used < self.HELD_BYTES)[::-1], axis=0)[::-1]

    def _seen(self, window: Window, lookback: float) -> Booleans:
        # Asked of a little more than the look-back: one sample a minute, give or take, is often enough for five.
        return window.present("utilization_percent", 1.1 * lookback) >= 0.9

    def _stands(self, window: Window, lookback: float) -> Booleans:
        """Where a step counter had moved and does not any more. One that is no longer told does not move, either."""
        moved = window.increase("device_job_step_total", self.working_lookback) > 0
        return moved & ~(window.increase("device_job_step_total", lookback) > 0)

    # -- words ------------------------------------------------------------------------------------------------------------------
    def tell(self, window: Window, verdict: Verdict) -> Story:
        busy = window.mean("utilization_percent", self.lookback)
        spins = busy >= self.min_spin_percent
        watts = verdict.value
        hot = spins & (watts > 2.0 * np.nanmedian(watts[spins])) if spins.any() else ~spins
        job = next((name.removeprefix("job:") for name in map(_team, window.subjects) if name.startswith("job:")), None)
        whose = f"job {job}" if job else "work"
        count = f"{len(window)} GPUs" if len(window) > 1 else "1 GPU"
        steps = "; its step counter stands still" if self._stands(window, self.lookback).any() else ""
        odd = np.flatnonzero(~spins | hot)
        suspect = None
        if 0 < len(odd) <= len(window) // 2:
            first = int(odd[0])
            power = f" at {watts[first]:.0f} W" if np.isfinite(watts[first]) else ""
            suspect = (first, f"{busy[first]:.0f} % busy{power} while the others spin")
        if spins.any():
            _, level, _ = self._levels(window)
            traffic = ", no memory traffic" if np.isfinite(window.max("memory_utilization_percent", self.lookback)).any() else ""
            power = f"{np.nanmedian(watts[spins]):.0f} W where {np.nanmedian(level[spins]):.0f} W is usual"
            summary = f"{whose} hangs on {count}: 100 % busy at {power}{traffic}{steps}"
            action = (
                "A rank waits in a collective: `py-spy dump` the suspect first, look for Xids and network errors,"
                " read the NCCL flight recorder."
            )
        else:
            summary = f"{whose} stands still on {count}: {np.nanmax(busy):.0f} % busy with memory held, after it had been at work{steps}"
            action = "Look at the process (`py-spy dump`): a data loader, a barrier or a rank that died. Restart from the last checkpoint."
        return Story(
            summary=summary,
            action=action,
            evidence=("utilization_percent", "power_watts", "memory_utilization_percent", "device_job_step_total"),
            unit="watts",
            suspect=suspect,
        )


class _Spin(NamedTuple):
    """Rows that spin, or might: each shaped (rows,)."""

    rows: Booleans
    unsure: Booleans
    """100 % busy without memory traffic, and nothing to compare its power with."""
    started: Booleans
    """Spins after it had worked for the same job."""
    limit: Floats
    """Watts below which it spins; NaN where it cannot."""


def _team(subject: Subject) -> str:
    """What works together: the GPUs of a job or a pod; else all of a host, because the ranks of one training are a process each."""
    owner = subject.owner
    return owner if owner is not None and not owner.startswith("pid:") else "host"
