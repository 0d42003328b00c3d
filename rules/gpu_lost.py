"""A GPU that was there and is gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from detector.frame import Event
from detector.incident import Severity
from detector.rule import Finding, Rule, Story, Verdict
from detector.window import Window

EVIDENCE: Final = ("temperature_celsius", "power_watts", "utilization_percent")
ACTION: Final = (
    "Drain the node and reboot it; if the GPU does not come back or is lost again, reseat or replace it. Its job has lost its work."
)


@dataclass(frozen=True)
class GpuLost(Rule):
    """The driver says that the GPU is lost, the kernel that it fell off the bus, or frames list the host's other GPUs without it.

    One look that misses a GPU is not a loss (eks-node-monitoring#94), hence `min_misses`. A host that could see nothing at all is
    blind, not bereft (`telemetry_blind`); a MIG instance that goes is a new partition; a suspended laptop GPU sleeps; a host that comes
    back with all others is another machine. GPUs that go in the same moment are one incident: a riser, a switch, a power supply.
    """

    severity: Severity = "critical"
    keep_firing: float = 30.0
    min_misses: int = 2
    kernel_keep_firing: float = 86_400.0
    """Seconds for which a loss that only the kernel log told is taken to last: the log does not tell of a return."""
    together_seconds: float = 5.0

    uses: ClassVar = ("device_visible",)
    explained_by: ClassVar = ("xid",)

    def check(self, window: Window) -> Verdict:
        visible = window.last("device_visible")
        lost, known = np.zeros(len(window), bool), np.ones(len(window), bool)
        group: list[str | None] = [None] * len(window)
        for n, subject in enumerate(window.subjects):
            told = any(fault.kind == "gpu_lost" for fault in subject.faults)
            if told or subject.missed:
                device = subject.device
                known[n] = device is not None and device.kind == "gpu" and device.power_state != "suspended"
                lost[n] = told or subject.missed >= self.min_misses
                group[n] = f"lost:{subject.missed_since or window.now[n]:.0f}" if subject.missed_since else None
        known &= lost | ~np.isnan(visible)
        return Verdict(firing=lost, value=visible, threshold=1.0, known=known, group=group)

    def judge(self, event: Event) -> Finding | None:
        if event.kind != "gpu_lost":
            return None
        story = Story(summary=f"GPU is lost, the kernel says: {event.message}", action=ACTION, evidence=EVIDENCE)
        return Finding("critical", story, "off the bus", "off the bus", self.together_seconds)

    def keep_for(self, severity: Severity) -> float:
        return self.kernel_keep_firing

    def tell(self, window: Window, verdict: Verdict) -> Story:
        names = ", ".join(f"GPU {d.index} ({d.uuid})" if d.index is not None else d.uuid for s in window.subjects if (d := s.device))
        told = any(fault.kind == "gpu_lost" for s in window.subjects for fault in s.faults)
        how = "the driver says so" if told else "frames list the host's other GPUs without it"
        return Story(
            summary=f"{len(window)} GPUs lost at the same moment: {names}" if len(window) > 1 else f"lost {names}: {how}",
            action=ACTION,
            evidence=EVIDENCE,
        )
