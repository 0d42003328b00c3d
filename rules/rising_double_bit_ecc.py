"""New uncorrectable memory errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class RisingDoubleBitEcc(Rule):
    """An uncorrected-error counter, volatile or aggregate, rose within the look-back.

    The first value seen is history, not news (gpud#108), and a fall is a driver reload or a reset (candle#733): only a rise counts.
    """

    severity: Severity = "critical"
    keep_firing: float = 0.0
    lookback: float = 3600.0
    """How long a rise stays an open incident."""

    uses: ClassVar = ("ecc_uncorrected_volatile_total", "ecc_uncorrected_aggregate_total")

    def check(self, window: Window) -> Verdict:
        rise = np.fmax(*(window.increase(counter, self.lookback) for counter in self.uses))
        read = ~np.isnan(np.fmax(*(window.last(counter) for counter in self.uses)))
        return Verdict(firing=rise > 0, known=read, value=rise, threshold=0.0, group=[board(subject) for subject in window.subjects])

    def tell(self, window: Window, verdict: Verdict) -> Story:
        count = np.nanmax(verdict.value)
        errors = "error" if count == 1 else "errors"
        return Story(
            summary=f"{count:.0f} new uncorrectable (double-bit) memory {errors} within {self.lookback / 60:.0f} minutes",
            action="Results of the running job may be wrong: stop it, drain the node and reset the GPU; replace the board if errors"
            " return.",
            evidence=self.uses,
            unit="errors",
        )
