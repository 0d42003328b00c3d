"""A GPU that behaves as it hardly ever did before."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

_WORDS: Final = {
    "utilization_percent": ("utilisation", "%", 1.0),
    "memory_utilization_percent": ("memory traffic", "%", 1.0),
    "memory_used_bytes": ("memory in use", "GiB", 1024.0**3),
    "power_watts": ("power", "W", 1.0),
    "temperature_celsius": ("temperature", "degC", 1.0),
    "sm_clock_mhz": ("SM clock", "MHz", 1.0),
}
"""Metric -> what a person calls it, the unit it is told in, and how much of the metric's own unit that is."""


@dataclass(frozen=True)
class Anomaly(Rule):
    """For `hold`, every look at the GPU was stranger than the budget of false alarms allows a healthy one to be.

    A look is as rare as the hours of the GPU's own history that show something as strange once; a budget of 0.1 false alarms per GPU
    and week makes 1680 hours the threshold. That assumes that what is usual stays so, and that strange looks of a healthy GPU thin out
    at least exponentially beyond those that were seen. Then looks at or beyond the threshold come once in 1680 hours on average. Were
    they independent over `every`, hardly two would meet, and `hold` would leave none; they are not, but come in clusters, and a cluster
    is one alarm at most. So the budget is kept without counting on `hold`, which is the reserve for what the tail gets wrong.
    With H hours of history nothing is called rarer than 100 H hours: the default cannot fire before about 17 hours at work.

    It says that something is unusual, not that something is wrong, so it is never critical.
    """

    severity: Severity = "info"
    hold: float = 120.0
    keep_firing: float = 900.0
    false_alarms_per_gpu_week: float = 0.1

    uses: ClassVar = tuple(_WORDS)
    every: ClassVar = 15.0
    explained_by: ClassVar = (
        "clock_stuck_low", "configuration_drift", "driver_fault", "fan_failure", "gpu_lost", "idle_gpu", "memory_leak",
        "memory_overheating", "memory_pressure", "nvlink_degraded", "orphan_memory", "overheating", "pcie_degraded", "pcie_replays",
        "power_brake", "power_capped", "recovery_required", "rising_double_bit_ecc", "row_remap_failure", "straggler", "stuck_training",
        "telemetry_blind", "telemetry_frozen", "thermal_throttling", "training_diverged", "xid", "zombie_process",
    )  # fmt: skip
    HOURS_A_WEEK: ClassVar = 168.0
    LEAST_SHARE: ClassVar = 0.05
    """Of the strangeness, for a second metric to be named."""

    def __post_init__(self) -> None:
        if self.severity == "critical" or self.escalate_after is not None:
            asked = 'severity "critical"' if self.severity == "critical" else "escalate_after"
            raise ValueError(f'{asked} is not for this rule: it says what is unusual, not what is wrong; use severity "info" or "warning"')
        if not 0.0 < self.false_alarms_per_gpu_week < math.inf:
            raise ValueError(f"false_alarms_per_gpu_week must be a number above 0, not {self.false_alarms_per_gpu_week}")

    def check(self, window: Window) -> Verdict:
        rarity = window.scores.rarity if window.scores is not None else np.full(len(window), np.nan)
        threshold = self.HOURS_A_WEEK / self.false_alarms_per_gpu_week
        return Verdict(firing=rarity >= threshold, value=rarity, threshold=threshold)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        metrics = self._strangest(window)
        what = " and ".join(self._sentence(window, metric) for metric, _ in metrics) or "no single reading stands out"
        shares = ", ".join(f"{_worded(metric)[0]} {100 * share:.0f} %" for metric, share in metrics)
        return Story(
            summary=f"GPU unlike its own history: {what}",
            action="Compare with the other GPUs of the job, and with what changed at that time: code, data, driver, power or cooling.",
            description=f"This GPU shows something as strange once in {verdict.value[0]:,.0f} hours at work."
            + (f" What makes it strange: {shares}." if shares else ""),
            evidence=tuple(metric for metric, _ in metrics) or ("power_watts", "utilization_percent"),
            unit="hours",
        )

    def _strangest(self, window: Window) -> list[tuple[str, float]]:
        """The two metrics of the first row that explain most, with their shares."""
        if window.scores is None:
            return []
        shares = zip(window.scores.metrics, window.scores.share[0].tolist(), strict=True)
        return sorted(((m, s) for m, s in shares if s >= self.LEAST_SHARE), key=lambda pair: -pair[1])[:2]

    def _sentence(self, window: Window, metric: str) -> str:
        """`power 212 W where 398 W is usual`."""
        assert window.scores is not None
        place = window.scores.metrics.index(metric)
        word, unit, size = _worded(metric)
        value, usual = window.scores.value[0, place] / size, window.scores.usual[0, place] / size
        digits = 0 if max(abs(value), abs(usual)) >= 20 else 1
        verb = "swings by " if window.scores.swings[0, place] else ""
        return f"{word} {verb}{value:.{digits}f} {unit} where {usual:.{digits}f} {unit} is usual"


def _worded(metric: str) -> tuple[str, str, float]:
    return _WORDS.get(metric, (metric, "", 1.0))
