"""Device memory at its temperature limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES
from detector.rule import CRITICAL, Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class MemoryOverheating(Rule):
    """Every sample of the memory temperature was within `margin_celsius` of the highest that the card allows; critical at it.

    Memory may be too hot while the core is cool: a failing pad, dense HBM traffic. The card's own limit (NVML MEM_MAX) decides, as gpud
    does; where it names none, HBM (95) and GDDR6X (110) are too far apart for one number, so only `limit_celsius` is told, as a warning.
    Boards without such a sensor report nothing, 0 or 9.2e18 (DCGM#311, gpu-monitoring-tools#97): the rule cannot tell.
    """

    hold: float = 60.0
    keep_firing: float = 120.0
    margin_celsius: float = 5.0
    limit_celsius: float = 105.0
    """Where the card names no limit."""
    lookback: float = 15.0

    needs: ClassVar = ("memory_temperature_celsius",)
    uses: ClassVar = ("temperature_celsius",)
    explained_by: ClassVar = ("overheating", "fan_failure", "gpu_lost")

    def check(self, window: Window) -> Verdict:
        coolest = window.min("memory_temperature_celsius", self.lookback)
        most = window.last("memory_temperature_max_celsius")
        limit = np.where(np.isnan(most), self.limit_celsius, most - self.margin_celsius)
        firing = coolest >= limit
        return Verdict(
            firing=firing,
            value=coolest,
            threshold=limit,
            severity=np.where(coolest >= most, CRITICAL, SEVERITIES.index(self.severity)).astype(np.int8),
            group=[board(s) for s in window.subjects] if firing.any() else None,
        )

    def tell(self, window: Window, verdict: Verdict) -> Story:
        most, core = window.last("memory_temperature_max_celsius")[0], window.last("temperature_celsius")[0]
        assumed = f"the card names no limit, {self.limit_celsius:.0f} degC is assumed"
        limit = f"the card allows {most:.0f} degC" if np.isfinite(most) else assumed
        cool = f"; the core is at {core:.0f} degC" if np.isfinite(core) else ""
        return Story(
            summary=f"memory at {verdict.value[0]:.0f} degC or more for {self.hold:.0f} s; {limit}{cool}",
            action="Check airflow and inlet temperature. If the core is cool, and the memory of its neighbours, too, a thermal pad or the"
            " cold plate has failed.",
            evidence=("memory_temperature_celsius", "temperature_celsius"),
            unit="celsius",
        )
