"""A memory row that waits to be remapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from detector.rule import Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class RowRemapPending(Rule):
    """A memory row was found bad and will be replaced by a spare one at the next reset of the GPU.

    The state itself is told, on one look; how many rows were remapped in the life of the board is history (gpud#80, gpud#108). Peers agree
    on this one: reset when drained.
    """

    needs: ClassVar = ("remapped_rows_pending",)
    every: ClassVar = 10.0
    explained_by: ClassVar = ("row_remap_failure", "recovery_required", "rising_double_bit_ecc", "gpu_lost", "xid")

    def check(self, window: Window) -> Verdict:
        pending = window.last("remapped_rows_pending")
        firing = pending > 0
        return Verdict(firing=firing, value=pending, threshold=0.0, group=[board(s) for s in window.subjects] if firing.any() else None)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        remapped = window.last("remapped_rows_uncorrected_total")[0] + window.last("remapped_rows_corrected_total")[0]
        so_far = f"; {remapped:.0f} remapped or marked so far" if remapped >= 0 else ""
        return Story(
            summary=f"a bad memory row waits for a GPU reset to be remapped{so_far}",
            action="Let running work end, drain the GPU and reset it (`nvidia-smi --gpu-reset -i INDEX`); no replacement is needed.",
        )
