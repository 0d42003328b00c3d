"""A GPU at full load whose clocks stay low."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

from ._clocks import why_slow
from ._teams import board


@dataclass(frozen=True)
class ClockStuckLow(Rule):
    """Fully loaded for five minutes, and the highest SM clock of all samples is far below what the GPU has done at load before.

    A GPU's own best clock at load decides, so a lowered maximum, application clocks and another model need no setting. Where it was never
    seen faster, only half of the clock that the board (or its application clock) names is low enough: clocks that an admin has locked,
    and old boards with a low base clock (K80: 0.64 of its maximum), are not stuck. Between the two the rule cannot tell. A GPU at its
    power limit runs as fast as it may (azurehpc#595), and one that says it is idle has no load. Peers: gpumedic compares with the node
    (0.85, see `straggler`), NVSentinel#890 asks for this one.
    """

    keep_firing: float = 300.0
    lookback: float = 300.0
    working_lookback: float = 10_800.0
    """Where the GPU's own best clock is taken from: its best minute at load."""
    min_utilization_percent: float = 90.0
    """Mean utilisation that is full load."""
    max_fraction: float = 0.65
    """Of the best clock at load."""
    max_nominal_fraction: float = 0.5
    """Of the highest clock of the board, where the GPU was never seen faster."""
    min_power_fraction: float = 0.85
    """Of the power limit: from here on the limit explains the clock."""

    needs: ClassVar = ("sm_clock_mhz", "utilization_percent")
    uses: ClassVar = ("power_watts",)
    every: ClassVar = 30.0
    explained_by: ClassVar = ("power_brake", "thermal_throttling", "overheating", "fan_failure", "recovery_required", "gpu_lost", "xid")

    def check(self, window: Window) -> Verdict:
        clock, load = window.last("sm_clock_mhz"), window.mean("utilization_percent", self.lookback)
        application = window.last("sm_clock_application_mhz")
        nominal = np.fmin(window.last("sm_clock_max_mhz"), application)
        limit = self.max_nominal_fraction * nominal
        slow = (load >= self.min_utilization_percent) & ~(clock >= self.max_fraction * nominal) & ~np.isnan(clock)
        if slow.any():
            clock = window.max("sm_clock_mhz", self.lookback)
            slow &= ~(clock >= self.max_fraction * nominal) & ~self._limited(window) & (window.last("gpu_idle_active") != 1)
        if slow.any():
            best, allowed = self._best(window.of(slow)), np.nan_to_num(application[slow], nan=np.inf)
            limit[slow] = np.fmax(limit[slow], self.max_fraction * np.minimum(best, allowed))
        firing = slow & (clock < limit)
        if firing.any():
            firing &= window.present("sm_clock_mhz", self.lookback) >= 0.9
        return Verdict(
            firing=firing,
            value=clock,
            threshold=limit,
            known=~np.isnan(clock) & ~np.isnan(load) & (firing | ~slow),
            group=[board(s) for s in window.subjects] if firing.any() else None,
        )

    def _limited(self, window: Window) -> Booleans:
        """Where the power limit explains the clock: power is at it, or else, where that is not read, the driver says so."""
        power, limit = window.mean("power_watts", self.lookback), window.last("power_limit_watts")
        unread = np.isnan(power) | np.isnan(limit)
        limited: Booleans = (power >= self.min_power_fraction * limit) | (unread & (window.last("sw_power_cap_active") == 1))
        return limited

    def _best(self, window: Window) -> Floats:
        """The best minute's clock at load within the look-back, shape (rows,)."""
        _, clocks = window.values("sm_clock_mhz", self.working_lookback)
        _, load = window.values("utilization_percent", self.working_lookback)
        best: Floats = np.where(load >= self.min_utilization_percent, clocks, -np.inf).max(axis=0)
        return np.where(np.isfinite(best), best, np.nan)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        best, nominal = self._best(window)[0], window.last("sm_clock_max_mhz")[0]
        clock = verdict.value[0]
        usual = f"{best:.0f} MHz were usual at load" if clock <= self.max_fraction * best else f"the board does {nominal:.0f} MHz"
        return Story(
            summary=f"SM clock stays at {clock:.0f} MHz at full load, where {usual}; {why_slow(window, 0)}",
            action="See `nvidia-smi -q -d CLOCK,PERFORMANCE`. If no reason is active: reset the clocks (`nvidia-smi -rgc`, `-rac`), and"
            " if that does not help, the GPU when it is drained.",
            evidence=("sm_clock_mhz", "utilization_percent", "power_watts"),
            unit="mhz",
        )
