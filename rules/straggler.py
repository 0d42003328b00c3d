"""The one GPU of a job that all others wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

from ._clocks import why_slow


@dataclass(frozen=True)
class Straggler(Rule):
    """Among three or more busy GPUs of one owner and one model, its clock is far below the median of them, and so is its power.

    Peers: gpumedic 0.85 of the node's median clock, NVRx 0.75 and DLRover half of the step time. 0.8 lies beyond the few percent by which
    healthy chips differ at their power limit. Utilisation and power alone are not used: pipeline stages differ in both by design, and
    those who wait spin at 100 %. A GPU that draws more than its peers at a lower clock does the heaviest part of the work.
    """

    hold: float = 600.0
    keep_firing: float = 60.0
    max_fraction: float = 0.8
    """Of the median clock."""
    min_utilization_percent: float = 50.0
    """Mean utilisation of a GPU that is compared."""
    min_team: int = 3
    lookback: float = 300.0

    needs: ClassVar = ("sm_clock_mhz", "utilization_percent")
    uses: ClassVar = ("power_watts",)
    every: ClassVar = 60.0
    explained_by: ClassVar = (
        "power_brake", "overheating", "fan_failure", "memory_overheating", "thermal_throttling", "clock_stuck_low", "pcie_degraded",
        "nvlink_degraded", "recovery_required", "gpu_lost", "xid",
    )  # fmt: skip

    def check(self, window: Window) -> Verdict:
        clock, load = window.mean("sm_clock_mhz", self.lookback), window.mean("utilization_percent", self.lookback)
        busy = (load >= self.min_utilization_percent) & ~np.isnan(clock)
        # Whoever runs near its own highest clock is behind nobody.
        slow = busy & ~(clock >= self.max_fraction * window.last("sm_clock_max_mhz"))
        known = ~np.isnan(clock) & ~np.isnan(load)
        if not slow.any():
            return Verdict(firing=slow, value=clock, threshold=np.nan, known=known)
        owners = [subject.owner if works else None for subject, works in zip(window.subjects, busy.tolist(), strict=True)]
        seen = busy & (window.present("sm_clock_mhz", self.lookback) >= 0.9)
        median, lighter = self._compare(window, owners, seen, clock)
        return Verdict(
            firing=slow & (clock < self.max_fraction * median) & lighter,
            value=clock,
            threshold=self.max_fraction * median,
            known=known & ~(slow & np.isnan(median)),
            group=owners,
        )

    def _compare(self, window: Window, owners: list[str | None], rows: Booleans, clock: Floats) -> tuple[Floats, Booleans]:
        """Of *rows*: (median clock of the team it is in, NaN where it is in none; whether it draws less than the median power of it)."""
        power = window.mean("power_watts", self.lookback)
        teams: dict[tuple[str, str, str | None], list[int]] = {}
        for n in np.flatnonzero(rows).tolist():
            subject, owner = window.subjects[n], owners[n]
            if owner is not None and subject.device is not None:
                teams.setdefault((subject.host, owner, subject.device.name), []).append(n)
        median, lighter = np.full(len(window), np.nan), np.ones(len(window), bool)
        for team in teams.values():
            if len(team) >= self.min_team:
                median[team] = np.median(clock[team])
                lighter[team] = ~(power[team] >= np.median(power[team]))
        return median, lighter

    def tell(self, window: Window, verdict: Verdict) -> Story:
        threshold = float(np.broadcast_to(verdict.threshold, len(window))[0])
        job = next((subject.jobs[0] for subject in window.subjects if subject.jobs), None)
        whose, peers = f"job {job}" if job else "its job", threshold / self.max_fraction
        more = f" ({len(window)} such GPUs)" if len(window) > 1 else ""
        why = why_slow(window, 0)
        return Story(
            summary=f"GPU holds {whose} up: SM clock {verdict.value[0]:.0f} MHz, median of its peers {peers:.0f}{more}; {why}",
            action="Find out what slows it down (`nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE`); let the rank run elsewhere until then.",
            evidence=("sm_clock_mhz", "power_watts", "utilization_percent"),
            unit="mhz",
            suspect=(0, why),
        )
