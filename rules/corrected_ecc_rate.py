"""Corrected memory errors that come by the second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Floats, Rule, Story, Verdict
from detector.window import Window

from ._rates import per_second
from ._teams import board


@dataclass(frozen=True)
class CorrectedEccRate(Rule):
    """Corrected errors came at one a second or more throughout five minutes, ten times as fast as on this GPU before.

    What peers call too many differs by a factor of a million (1 to 50,000,000, gcm and Azure among them), and totals of other years say
    nothing, so the rate counts. A storm of 17,700 a second once kept a monitor from reporting anything (NVSentinel#1748). The GPU's usual
    rate is the median of its minutes; while a storm is older than half of what is remembered, the rule cannot tell, and the incident
    stays. A burst, such as a scrub, is not a rate.
    """

    hold: float = 300.0
    keep_firing: float = 600.0
    min_per_second: float = 1.0
    min_ratio: float = 10.0
    """Times the usual rate."""
    lookback: float = 120.0
    usual_lookback: float = 10_800.0
    """Where the usual rate is taken from."""

    uses: ClassVar = ("ecc_corrected_volatile_total", "ecc_corrected_aggregate_total")
    every: ClassVar = 30.0
    explained_by: ClassVar = ("row_remap_failure", "rising_double_bit_ecc", "row_remap_pending", "pages_retired", "gpu_lost", "xid")
    RECENT_MINUTES: ClassVar = 9
    """Those of the storm itself, which are not part of what is usual."""

    def check(self, window: Window) -> Verdict:
        rate = np.fmax(*(per_second(window, counter, self.lookback) for counter in self.uses))
        many = rate >= self.min_per_second
        threshold = np.full(len(window), self.min_per_second)
        if many.any():
            threshold[many] = np.maximum(self.min_per_second, self.min_ratio * self._usual(window.of(many)))
        firing = rate >= threshold
        return Verdict(
            firing=firing,
            value=rate,
            threshold=threshold,
            known=~np.isnan(rate) & (firing | ~many),
            group=[board(s) for s in window.subjects] if firing.any() else None,
        )

    def _usual(self, window: Window) -> Floats:
        """Errors a second in the median minute before now, shape (rows,); 0 where no minute before is known."""
        usual = np.zeros(len(window))
        for counter in self.uses:
            _, levels = window.filled(counter, self.usual_lookback)
            rises = np.diff(levels, axis=0)[: -self.RECENT_MINUTES]
            for n in range(len(window)):
                known = rises[:, n][~np.isnan(rises[:, n])]
                if len(known):
                    usual[n] = max(usual[n], float(np.median(np.maximum(known, 0.0))) / 60.0)
        return usual

    def tell(self, window: Window, verdict: Verdict) -> Story:
        usual = self._usual(window)[0]
        before = f"{usual:.2g} a second before" if usual > 0 else "hardly any before"
        return Story(
            summary=f"{verdict.value[0]:.1f} corrected memory errors a second, {before}",
            action="Results are right so far. Drain the GPU at the next chance and reset it, so that bad rows are remapped; have the board"
            " replaced if the errors return.",
            evidence=self.uses,
            unit="errors per second",
        )
