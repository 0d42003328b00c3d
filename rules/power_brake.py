"""A GPU that its power supply slows down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window


@dataclass(frozen=True)
class PowerBrake(Rule):
    """The external power brake was pulled in most samples of a minute, while the GPU had work to do.

    The server asserts the brake when a power supply fails or is overloaded, and clocks fall to a fraction. Nine nodes ran braked for 36
    hours because only power was watched (NVSentinel#1666), so the bit decides. A few samples with it are a load step (PenguinBurner#37);
    at rest it costs nothing. The bits of the power limit (`sw_power_cap`) and of `hw_slowdown` alone are not the brake.

    All braked GPUs of a host are one incident: they have one power supply.
    """

    severity: Severity = "critical"
    hold: float = 30.0
    keep_firing: float = 120.0
    min_share: float = 0.5
    """Share of the samples of `lookback` with the brake pulled."""
    lookback: float = 60.0
    min_utilization_percent: float = 20.0
    """Below this a GPU is at rest; 0: rest counts, too."""

    needs: ClassVar = ("power_brake_active",)
    uses: ClassVar = ("utilization_percent",)
    every: ClassVar = 10.0
    explained_by: ClassVar = ("gpu_lost",)

    def check(self, window: Window) -> Verdict:
        share = window.mean("power_brake_active", self.lookback)
        firing = share >= self.min_share
        if firing.any():
            firing &= ~(window.max("utilization_percent", self.lookback) < self.min_utilization_percent)
        return Verdict(firing=firing, value=share, threshold=self.min_share, group=["brake"] * len(window))

    def tell(self, window: Window, verdict: Verdict) -> Story:
        clock, most = window.last("sm_clock_mhz"), window.last("sm_clock_max_mhz")
        clocks = f"; SM clock {np.nanmin(clock):.0f} of {np.nanmax(most):.0f} MHz" if np.isfinite(clock + most).any() else ""
        many = f"on {len(window)} GPUs" if len(window) > 1 else "on the GPU"
        return Story(
            summary=f"the power brake is pulled {many}, {np.min(verdict.value):.0%} of the last {self.lookback:.0f} s{clocks}",
            action="Check the server's power supplies, their redundancy and the power cap of chassis or rack (BMC, `ipmitool sel list`).",
            evidence=("power_brake_active", "power_watts", "sm_clock_mhz"),
            unit="share",
        )
