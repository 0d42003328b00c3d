"""A memory row that could not be remapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class RowRemapFailure(Rule):
    """The board has no spare row left for one that went bad: it has to be replaced.

    On this gpud, NVSentinel, gcm and NVIDIA's own criteria for a return agree. GeForce boards answer the question although they remap
    nothing (RTX 4090); they answer 0.
    """

    severity: Severity = "critical"

    needs: ClassVar = ("remapped_rows_failure",)
    every: ClassVar = 10.0
    explained_by: ClassVar = ("gpu_lost", "xid")

    def check(self, window: Window) -> Verdict:
        failure = window.last("remapped_rows_failure")
        firing = failure > 0
        return Verdict(firing=firing, value=failure, threshold=0.0, group=[board(s) for s in window.subjects] if firing.any() else None)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        return Story(
            summary="a bad memory row could not be remapped: no spare row is left for it",
            action="Take the GPU out of service and have the board replaced; a reset does not mend it. Save `nvidia-smi -q` first.",
        )
