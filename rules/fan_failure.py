"""A hot GPU whose fan stands still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window


@dataclass(frozen=True)
class FanFailure(Rule):
    """For a minute the fan stood still at every look, and the GPU was hot.

    Boards rest their fans below some 60 degC by design, so heat makes the difference. The measured speed decides where it is read; the
    percentage is what the driver intends, and a blocked fan still reads normal there (nvml.h), but 0 % at 70 degC is a fault as well
    (gpuwatch alerts on it). Passively cooled boards have no fan: the rule cannot tell.
    """

    severity: Severity = "critical"
    hold: float = 60.0
    keep_firing: float = 60.0
    min_celsius: float = 70.0
    """From here on a fan has to turn."""

    needs: ClassVar = ("temperature_celsius",)
    uses: ClassVar = ("fan_speed_rpm", "fan_speed_percent")
    explained_by: ClassVar = ("gpu_lost",)

    def check(self, window: Window) -> Verdict:
        measured, intended = (window.last(metric) for metric in self.uses)
        speed, heat = np.where(window.ever("fan_speed_rpm"), measured, intended), window.last("temperature_celsius")
        firing = (speed == 0) & (heat >= self.min_celsius)
        return Verdict(firing=firing, value=heat, threshold=self.min_celsius, known=~np.isnan(speed) & ~np.isnan(heat))

    def tell(self, window: Window, verdict: Verdict) -> Story:
        intended = window.last("fan_speed_percent")[0]
        told = f"although {intended:.0f} % is asked of it" if intended > 0 else "and nothing is asked of it"
        return Story(
            summary=f"the fan stands still at {verdict.value[0]:.0f} degC, {told}",
            action="Stop the job before the card switches itself off. Check fan, plug and dust, and whether somebody set the fan by hand.",
            evidence=("temperature_celsius", "fan_speed_rpm", "fan_speed_percent"),
            unit="celsius",
        )
