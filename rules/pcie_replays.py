"""A PCIe link that has to send its packets again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Floats, Rule, Story, Verdict
from detector.window import Window

from ._rates import per_second
from ._teams import board


@dataclass(frozen=True)
class PcieReplays(Rule):
    """Packets are sent again more often than the specification's bit error rate explains, for two minutes on end.

    One error in 10^12 bits is allowed, which makes 0.15 replays a minute and lane at generation 1 and 0.96 at generation 4, the figures
    that DCGM uses; it fails a card on a single minute above them, which healthy P5 nodes have (DCGM#184). l9gpu and kempnerpulse call any
    replay a fault. The link's highest generation counts, not the present one: it falls at rest. Counters are judged by what they rise.
    """

    hold: float = 120.0
    keep_firing: float = 120.0
    min_ratio: float = 1.0
    """Times the allowance."""
    lookback: float = 60.0

    needs: ClassVar = ("pcie_replay_total",)
    every: ClassVar = 10.0
    explained_by: ClassVar = ("pcie_degraded", "gpu_lost", "xid", "recovery_required")
    BIT_ERROR_RATE: ClassVar = 1e-12
    TRANSFERS_PER_SECOND: ClassVar = (2.5e9, 2.5e9, 5e9, 8e9, 16e9, 32e9, 64e9)
    """A lane, by generation; 0: not known."""
    USUAL_LINK: ClassVar = (5.0, 16.0)
    """Generation and lanes where they are not read: the most forgiving ones that are common."""

    def check(self, window: Window) -> Verdict:
        per_minute = 60.0 * per_second(window, "pcie_replay_total", self.lookback)
        if not (per_minute > 0).any():
            return Verdict(firing=per_minute > 0, value=per_minute)
        limit = self.min_ratio * self._allowance(window)
        firing = per_minute > limit
        return Verdict(
            firing=firing,
            value=per_minute,
            threshold=limit,
            group=[board(s) for s in window.subjects] if firing.any() else None,
        )

    def _allowance(self, window: Window) -> Floats:
        """Replays a minute that the link may have, a whole number, shape (rows,)."""
        generation, lanes = (
            np.nan_to_num(np.fmax(window.last(f"{metric}_max"), window.last(metric)), nan=usual)
            for metric, usual in zip(("pcie_link_generation", "pcie_link_width"), self.USUAL_LINK, strict=True)
        )
        last = len(self.TRANSFERS_PER_SECOND) - 1
        bits = np.array(self.TRANSFERS_PER_SECOND)[np.minimum(generation, last).astype(int)] * lanes * 60.0
        allowance: Floats = np.ceil(bits * self.BIT_ERROR_RATE)
        return allowance

    def tell(self, window: Window, verdict: Verdict) -> Story:
        limit = self.min_ratio * self._allowance(window)[0]
        return Story(
            summary=f"{verdict.value[0]:.0f} PCIe replays a minute; the link may have {limit:.0f}",
            action="Reseat the card or replace the riser or cable when drained; look for corrected errors of the port in `dmesg` (AER).",
            evidence=("pcie_replay_total",),
            unit="replays per minute",
        )
