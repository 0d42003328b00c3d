"""Device memory that is nearly full and still fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

GIB = 1024.0**3


@dataclass(frozen=True)
class MemoryPressure(Rule):
    """For five minutes hardly any memory was free, and what was free kept shrinking.

    A level alone says nothing: inference servers and JAX take 90 % and more in advance (vllm#31853, where peers that alarm at 90 or 95 %
    alarm for a week). So it is a note, and only while memory rises: the next allocation may fail. Growth without end is `memory_leak`.
    """

    severity: Severity = "info"
    hold: float = 300.0
    keep_firing: float = 300.0
    min_used_fraction: float = 0.98
    min_rise_fraction: float = 0.001
    """Of the device's memory: so much must the use have risen within `lookback`."""
    lookback: float = 300.0

    needs: ClassVar = ("memory_used_bytes",)
    every: ClassVar = 30.0
    explained_by: ClassVar = ("memory_leak", "gpu_lost")

    def check(self, window: Window) -> Verdict:
        used, total, free = (window.last(f"memory_{what}_bytes") for what in ("used", "total", "free"))
        # What the driver reserves is neither used nor free.
        fraction = np.where(np.isnan(free), used, total - free) / np.where(total > 0, total, np.nan)
        firing = fraction >= self.min_used_fraction
        if firing.any():
            firing &= used - window.min("memory_used_bytes", self.lookback) >= self.min_rise_fraction * total
        return Verdict(firing=firing, value=fraction, threshold=self.min_used_fraction)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        used, total = window.last("memory_used_bytes")[0], window.last("memory_total_bytes")[0]
        rise = (used - window.min("memory_used_bytes", self.lookback)[0]) / 1024**2
        return Story(
            summary=f"memory {verdict.value[0]:.1%} full ({used / GIB:.1f} of {total / GIB:.1f} GiB) and still rising,"
            f" {rise:,.0f} MiB in {self.lookback / 60:.0f} minutes",
            action="The next allocation may fail: checkpoint, or lower batch size, sequence length or the number of sessions.",
            evidence=("memory_used_bytes",),
            unit="share",
        )
