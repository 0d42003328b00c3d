"""A GPU close to the temperature at which it slows itself down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES
from detector.rule import CRITICAL, Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class Overheating(Rule):
    """Every sample was within `margin_celsius` of the card's own slowdown temperature; critical at it.

    Cards run at 85-88 degC by design (k8s-infrastructure#115), so the card's own limit decides. Where it names none, its T.Limit margin
    does, unless that is no sensor: one that puts the slowdown where no card has it (-5 at 41 degC, gpud#1208), or stands still while the
    temperature moves. Failing both, the static `limit_celsius` is used, and the incident says so.
    """

    hold: float = 60.0
    keep_firing: float = 120.0
    margin_celsius: float = 5.0
    limit_celsius: float = 90.0
    lookback: float = 15.0

    needs: ClassVar = ("temperature_celsius",)
    uses: ClassVar = ("temperature_margin_celsius", "power_watts", "fan_speed_percent")
    LOWEST_SLOWDOWN_CELSIUS: ClassVar = 80.0
    """No card slows down below; the coolest known do at 85."""
    SENSOR_SECONDS: ClassVar = 10_800.0

    def check(self, window: Window) -> Verdict:
        coolest = window.min("temperature_celsius", self.lookback)
        slowdown, named = self._slowdown(window)
        limit = np.where(named, slowdown - self.margin_celsius, self.limit_celsius)
        return Verdict(
            firing=coolest >= limit,
            value=coolest,
            threshold=limit,
            severity=np.where(coolest >= slowdown, CRITICAL, SEVERITIES.index(self.severity)).astype(np.int8),
            group=[board(subject) for subject in window.subjects],
        )

    def _slowdown(self, window: Window) -> tuple[Floats, Booleans]:
        """(degrees at which the card says that it slows down, NaN where it does not say; where it does)."""
        own = window.last("temperature_slowdown_celsius")
        offset = np.nan_to_num(window.last("temperature_margin_slowdown_celsius"))
        left = window.last("temperature_margin_celsius") - offset
        near = left <= self.margin_celsius
        left[near] = np.where(self._is_sensor(window.of(near)), left[near], np.nan)
        slowdown = np.where(np.isnan(own), window.last("temperature_celsius") + left, own)
        named = slowdown >= self.LOWEST_SLOWDOWN_CELSIUS
        return np.where(named, slowdown, np.nan), named

    def _is_sensor(self, window: Window) -> Booleans:
        """Whether the margin moved within three hours, or the temperature did not either."""
        moved, warmed = (
            window.max(metric, self.SENSOR_SECONDS) - window.min(metric, self.SENSOR_SECONDS)
            for metric in ("temperature_margin_celsius", "temperature_celsius")
        )
        return (moved > 0) | (warmed < 3.0)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        slowdown, named = self._slowdown(window)
        assumed = f"the card names no limit, {self.limit_celsius:.0f} degC is assumed"
        limit = f"it slows itself down at {slowdown[0]:.0f} degC" if named[0] else assumed
        return Story(
            summary=f"GPU at {verdict.value[0]:.0f} degC or more for {self.hold:.0f} s; {limit}",
            action="Check fans, airflow and inlet temperature; compare with the neighbours of the node: one hot card is a fan or dust,"
            " all of them the room.",
            evidence=("temperature_celsius", "power_watts", "fan_speed_percent"),
            unit="celsius",
        )
