"""A host whose GPUs cannot be seen: our blindness, not their failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

_WORDS: Final = {
    "library_not_found": (
        "the NVML library is not there",
        "Install the driver; in a container, start it with the NVIDIA container toolkit (`--gpus all`, or the nvidia runtime class).",
    ),
    "driver_not_loaded": (
        "the driver is not loaded",
        "Load it (`modprobe nvidia`) and read `dmesg` for why it was not; after a kernel upgrade rebuild it.",
    ),
    "library_mismatch": (
        "driver and NVML library are of different versions",
        "The packages were upgraded under a running driver: reboot, or stop all GPU processes and reload the kernel module.",
    ),
    "no_permission": ("permission is denied", "Give the agent access to /dev/nvidia* (device cgroup, group or security context)."),
    "hung": (
        "calls to the driver do not return",
        "The driver or the GPU's firmware hangs: read `dmesg` for Xids; drain the node and reboot it.",
    ),
    "unknown": (
        "NVML fails with an unknown error",
        "In a container this follows a `systemctl daemon-reload` that took its devices away: restart the container. Else read `dmesg`.",
    ),
}


@dataclass(frozen=True)
class TelemetryBlind(Rule):
    """Somebody looked, and no GPU of the host could be read: library missing, driver mismatch, device access lost, NVML hung.

    GPUs may be fine and working; nothing else is judged meanwhile, and nothing resolves. A hole in a recording is not blindness.
    """

    severity: Severity = "critical"
    hold: float = 15.0
    keep_firing: float = 15.0

    entity: ClassVar = ("host",)
    needs: ClassVar = ("host_blind",)

    def check(self, window: Window) -> Verdict:
        blind = window.last("host_blind")
        return Verdict(firing=blind == 1.0, value=blind, threshold=1.0, known=~np.isnan(blind))

    def tell(self, window: Window, verdict: Verdict) -> Story:
        fault = next((fault for fault in window.subjects[0].faults), None)
        what, action = _WORDS[fault.kind if fault and fault.kind in _WORDS else "unknown"]
        said = f" ({fault.message})" if fault and fault.message else ""
        return Story(summary=f"no GPU of this host can be seen: {what}{said}", action=action, evidence=())
