"""A GPU that slows itself down for heat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES
from detector.rule import CRITICAL, Floats, Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class ThermalThrottling(Rule):
    """While busy, hardware slowed the clocks for heat in most of a minute, or software in a good part of each quarter of twelve.

    The bits of power cap, idle and application clocks are normal and not looked at. `hw_slowdown` alone may also be a change of P-state
    or a power brake, so only the thermal bit counts as hardware; the driver's own count of seconds shows what falls between two samples.
    A few milliseconds of thermal violation in an hour are nothing (DCGM#242).
    """

    hold: float = 60.0
    keep_firing: float = 120.0
    min_share: float = 0.5
    """Share of `lookback` with hardware at it: critical."""
    min_software_share: float = 0.2
    """Share of each quarter of `software_lookback` with software at it."""
    lookback: float = 60.0
    software_lookback: float = 720.0
    """Slowing without a break is told after ten minutes, a spell of eight is not."""
    min_utilization_percent: float = 20.0

    needs: ClassVar = ("hw_thermal_active", "sw_thermal_active")
    uses: ClassVar = ("hw_thermal_seconds_total", "utilization_percent", "temperature_celsius", "sm_clock_mhz")
    explained_by: ClassVar = ("overheating", "fan_failure")

    def check(self, window: Window) -> Verdict:
        hardware, software = self._hardware(window), self._software(window)
        idle = window.max("utilization_percent", self.lookback) < self.min_utilization_percent
        by_hardware = (hardware >= self.min_share) & ~idle
        return Verdict(
            firing=by_hardware | ((software >= self.min_software_share) & ~idle),
            known=~np.isnan(window.last("hw_thermal_active")) & (by_hardware | ~np.isnan(software)),
            value=np.where(by_hardware, hardware, software),
            threshold=np.where(by_hardware, self.min_share, self.min_software_share),
            severity=np.where(by_hardware, CRITICAL, SEVERITIES.index(self.severity)).astype(np.int8),
            group=[board(subject) for subject in window.subjects],
        )

    def _hardware(self, window: Window) -> Floats:
        """Share of the look-back, by the bit or, if that is more, by the driver's count of seconds."""
        recent = window.increase("hw_thermal_seconds_total", self.lookback)
        # The counter leaps after a hole in the recording: it must have risen before the look-back, too.
        earlier = window.increase("hw_thermal_seconds_total", 2 * self.lookback) - recent
        counted = np.minimum(1.0, np.minimum(recent, earlier) / self.lookback)
        return np.fmax(window.mean("hw_thermal_active", self.lookback), counted)

    def _software(self, window: Window) -> Floats:
        """The least share of a quarter of the look-back; 0 where the bit was never seen in it, NaN where that is not known."""
        least = window.mean("sw_thermal_active", self.software_lookback).copy()
        some = least > 0
        if not some.any():
            return least
        _, bits = window.of(some).values("sw_thermal_active", self.software_lookback)
        with np.errstate(invalid="ignore"):
            least[some] = np.min([np.nansum(part, axis=0) / (~np.isnan(part)).sum(axis=0) for part in np.array_split(bits, 4)], axis=0)
        least[some & (window.present("sw_thermal_active", self.software_lookback) < 0.9)] = np.nan
        return least

    def tell(self, window: Window, verdict: Verdict) -> Story:
        by_hardware = bool(self._hardware(window)[0] >= self.min_share)
        who, minutes = ("Hardware", self.lookback / 60) if by_hardware else ("Software", self.software_lookback / 60)
        clock, most = window.last("sm_clock_mhz")[0], window.last("sm_clock_max_mhz")[0]
        clocks = f"; SM clock {clock:.0f} of {most:.0f} MHz" if np.isfinite(clock + most) else ""
        heat = window.last("temperature_celsius")[0]
        degrees = f", at {heat:.0f} degC" if np.isfinite(heat) else ""
        return Story(
            summary=f"{who} slows the GPU down for heat, {verdict.value[0]:.0%} of the last {minutes:.0f} min{degrees}{clocks}",
            action="Check cooling: fans, airflow, inlet temperature, thermal paste. The work goes on, slower.",
            evidence=("temperature_celsius", "sm_clock_mhz", "hw_thermal_active", "sw_thermal_active"),
            unit="share",
        )
