"""Memory pages that the driver takes out of use (boards before Ampere)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class PagesRetired(Rule):
    """A page waits for a reset to be retired, or nearly all pages that can be retired are.

    Retired pages of other years are history and healthy (azhpc-diagnostics#75 is about pending ones). Peers differ on the count: gcm
    complains above 10, which is noise on old boards; DCGM fails at 63 of the 64 that NVIDIA allows, which leaves no time to act.
    """

    max_pages: float = 60.0
    """So many retired pages are too many: the board takes 64."""

    uses: ClassVar = ("retired_pages_pending", "retired_pages_single_bit_total", "retired_pages_double_bit_total")
    every: ClassVar = 10.0
    explained_by: ClassVar = ("recovery_required", "rising_double_bit_ecc", "gpu_lost", "xid")

    def check(self, window: Window) -> Verdict:
        pending, single, double = (window.last(metric) for metric in self.uses)
        pages = single + double
        firing = (pending > 0) | (pages >= self.max_pages)
        return Verdict(
            firing=firing,
            value=pages,
            threshold=self.max_pages,
            known=np.where(window.ever("retired_pages_pending"), ~np.isnan(pending), ~np.isnan(pages)),
            group=[board(s) for s in window.subjects] if firing.any() else None,
        )

    def tell(self, window: Window, verdict: Verdict) -> Story:
        pages = verdict.value[0]
        count = f"{pages:.0f} pages are retired" if np.isfinite(pages) else "how many are retired is not read"
        if pages >= self.max_pages:
            return Story(
                summary=f"{count}: hardly any more can be",
                action="Plan the replacement of the board.",
                evidence=self.uses,
                unit="pages",
            )
        return Story(
            summary=f"a bad memory page waits for a GPU reset to be retired; {count}",
            action="Reset the GPU or reboot the node when convenient (`nvidia-smi --gpu-reset -i INDEX`); no replacement is needed.",
            evidence=self.uses,
            unit="pages",
        )
