"""A GPU with a lower power limit than it ships with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class PowerCapped(Rule):
    """The power limit in force is well below the board's default limit.

    Somebody set it, or the platform did; either is worth knowing once when a job is slow, and nobody's emergency. Running at the limit
    is normal at full load (DCGM#285, azurehpc#595) and is not looked at.
    """

    severity: Severity = "info"
    keep_firing: float = 600.0
    min_reduction: float = 0.05
    """Share of the default limit by which the limit must be lower."""

    needs: ClassVar = ("power_limit_watts", "power_default_limit_watts")
    every: ClassVar = 60.0
    explained_by: ClassVar = ("gpu_lost",)

    def check(self, window: Window) -> Verdict:
        limit, default = window.last("power_limit_watts"), window.last("power_default_limit_watts")
        least = default * (1.0 - self.min_reduction)
        firing = (limit > 0) & (limit < least)
        return Verdict(firing=firing, value=limit, threshold=least, group=[board(s) for s in window.subjects] if firing.any() else None)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        default = window.last("power_default_limit_watts")[0]
        return Story(
            summary=f"power limit is {verdict.value[0]:.0f} W, {1 - verdict.value[0] / default:.0%} below the default of {default:.0f} W",
            action="If nobody meant it, `nvidia-smi -i INDEX -pl WATTS` sets it back; look for a power manager or a BMC that lowers it.",
            unit="watts",
        )
