"""A GPU that claims to work for nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES, Severity
from detector.rule import WARNING, Rule, Story, Verdict
from detector.window import Window


@dataclass(frozen=True)
class DriverFault(Rule):
    """Fully busy in every sample, with no memory in use and no process.

    A utilisation that sticks at 100 % is the driver's (or firmware's) fault. A single such sample is left over from the last job or from
    memory scrubbing at driver start. With persistence mode off the driver may start anew for each look and then shows its own start
    (clip-as-service#254), so that is worth a warning only. Where memory cannot be seen, or the GPU is partitioned, the rule cannot tell.
    """

    severity: Severity = "critical"
    hold: float = 30.0
    keep_firing: float = 60.0
    min_utilization_percent: float = 99.0
    max_memory_bytes: float = 64 * 1024.0**2
    """A CUDA context alone takes more."""
    lookback: float = 15.0

    needs: ClassVar = ("utilization_percent", "memory_used_bytes")
    uses: ClassVar = ("process_count", "mig_mode", "persistence_mode", "power_watts")
    explained_by: ClassVar = ("telemetry_frozen", "gpu_lost")

    def check(self, window: Window) -> Verdict:
        busy = window.min("utilization_percent", self.lookback)
        memory = window.max("memory_used_bytes", self.lookback)
        whole = np.array([s.device is None or s.device.kind == "gpu" for s in window.subjects], bool) & ~(window.last("mig_mode") == 1)
        own = SEVERITIES.index(self.severity)
        return Verdict(
            firing=(busy >= self.min_utilization_percent) & (memory <= self.max_memory_bytes) & ~(window.last("process_count") > 0),
            known=~np.isnan(busy) & ~np.isnan(memory) & whole,
            value=busy,
            threshold=self.min_utilization_percent,
            severity=np.where(window.last("persistence_mode") == 0, min(WARNING, own), own).astype(np.int8),
        )

    def tell(self, window: Window, verdict: Verdict) -> Story:
        off = ""
        if window.last("persistence_mode")[0] == 0:
            off = "Switch persistence mode on first (`nvidia-smi -pm 1`): without it, the driver may show its own start. "
        return Story(
            summary=f"GPU reports {verdict.value[0]:.0f} % utilisation with no memory in use and no process",
            action=f"{off}Check with `nvidia-smi` that nothing runs; reset the GPU (`nvidia-smi --gpu-reset`) when drained,"
            " or reload the driver.",
            evidence=("utilization_percent", "memory_used_bytes", "power_watts"),
            unit="percent",
        )
