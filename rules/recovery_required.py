"""A GPU whose driver asks for help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

from ._teams import board

_ACTIONS = {
    1: ("a reset of the GPU", "Stop what runs on the GPU and reset it: `nvidia-smi --gpu-reset -i INDEX`."),
    2: ("a reboot of the node", "Drain the node and reboot it."),
    3: ("peer-to-peer traffic to be drained", "Let jobs that span GPUs end, start no new ones; the GPU can go on alone."),
    4: ("the GPU to be drained and reset", "Let running work end, start none, then reset the GPU: `nvidia-smi --gpu-reset -i INDEX`."),
    5: ("IMEX to be recovered", "Restart the nvidia-imex service on the nodes of the NVLink domain; drain the node if it returns."),
    6: ("a reset of the bus", "Drain the node; reset the PCIe bus of the GPU, or reboot."),
    7: ("a reboot of the system", "Drain the node and reboot it."),
}
_OF_THE_NODE = (2, 5, 7)


@dataclass(frozen=True)
class RecoveryRequired(Rule):
    """The driver's recovery action (NVML field 230, from driver 570 on) is other than none.

    It is the driver's own verdict, and monitors that did not read it called unusable GPUs healthy (DCGM#263). Older drivers do not tell.
    What only a reboot of the node mends is one incident for all its GPUs.
    """

    severity: Severity = "critical"

    needs: ClassVar = ("recovery_action",)
    explained_by: ClassVar = ("gpu_lost", "xid", "row_remap_failure")

    def check(self, window: Window) -> Verdict:
        action = window.last("recovery_action")
        firing = action > 0
        if not firing.any():
            return Verdict(firing=firing, value=action, threshold=0.0)
        places = ["node" if code in _OF_THE_NODE else board(subject) for code, subject in zip(action, window.subjects, strict=True)]
        return Verdict(firing=firing, value=action, threshold=0.0, group=places)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        code = int(verdict.value[0])
        asks, action = _ACTIONS.get(code, ("an action that this version does not know", "See `nvidia-smi -q` for its name; drain the GPU."))
        many = f" on {len(window)} GPUs" if len(window) > 1 else ""
        return Story(summary=f"the driver asks for {asks} (recovery action {code}){many}", action=action)
