"""NVLinks that are down, or that fail all the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES
from detector.rule import CRITICAL, Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

from ._rates import per_second


@dataclass(frozen=True)
class NvlinkDegraded(Rule):
    """Fewer links are up than were before: critical. Fewer than the GPU has, from the start, or errors without end: a warning.

    A card without NVLink has no links and no broken ones (NVSentinel#1481, gpud#1085). Cards that are joined by bridges (PCIe, NVL) have
    links that no bridge serves, and a card without a bridge has none up: for them only a fall counts. DCGM fails a card at its first
    recovery, which each reset brings; its limit of 100 errors a second is kept.

    The two ends of a broken link, or all GPUs of a failed switch, are one incident.
    """

    hold: float = 30.0
    keep_firing: float = 60.0
    best_lookback: float = 10_800.0
    """Within this time a link that was up counts as one that should be."""
    max_errors_per_second: float = 100.0
    lookback: float = 20.0
    """Where the rate of errors is taken from."""

    uses: ClassVar = ("nvlink_links_active", "nvlink_errors_total")
    every: ClassVar = 10.0
    explained_by: ClassVar = ("gpu_lost", "xid", "recovery_required")
    BRIDGED: ClassVar = ("PCIE", "NVL")
    """In the name of a card whose links are joined by bridges."""

    def check(self, window: Window) -> Verdict:
        active, total = window.last("nvlink_links_active"), window.last("nvlink_links_total")
        few = (active < total) & (active > 0)
        maybe = ~(active >= total) & ~np.isnan(active)
        best = window.max("nvlink_links_active", self.best_lookback) if maybe.any() else active
        down = maybe & (active < best)
        rate = per_second(window, "nvlink_errors_total", self.lookback)
        failing = rate >= self.max_errors_per_second
        if few.any():
            few &= ~self._bridged(window, few)
        return Verdict(
            firing=down | few | failing,
            value=active,
            threshold=np.fmax(best, total),
            known=self._fresh(window, active, 0) & self._fresh(window, rate, 1) & (window.ever(self.uses[0]) | window.ever(self.uses[1])),
            severity=np.where(down, CRITICAL, SEVERITIES.index(self.severity)).astype(np.int8),
            group=["links"] * len(window),
        )

    def _fresh(self, window: Window, now: Floats, n: int) -> Booleans:
        """Where the metric is read now, or never was."""
        return ~np.isnan(now) | ~window.ever(self.uses[n])

    def _bridged(self, window: Window, rows: Booleans) -> Booleans:
        bridged = np.zeros(len(window), bool)
        for n in np.flatnonzero(rows).tolist():
            device = window.subjects[n].device
            name = (device.name or "").upper() if device else ""
            bridged[n] = any(word in name for word in self.BRIDGED)
        return bridged

    def tell(self, window: Window, verdict: Verdict) -> Story:
        active, usual = verdict.value, np.broadcast_to(verdict.threshold, len(window))
        worst = int(np.argmax(np.nan_to_num(usual - active)))
        many = f"on {len(window)} GPUs; on the worst " if len(window) > 1 else ""
        if active[worst] < usual[worst]:
            summary = f"NVLink degraded: {many}{usual[worst] - active[worst]:.0f} of {usual[worst]:.0f} links down"
        else:
            summary = f"NVLink degraded: {many}{self.max_errors_per_second:.0f} errors a second or more, all links up"
        return Story(
            summary=summary,
            action="Jobs that span GPUs fail or fall back to PCIe: drain the node, see `nvidia-smi nvlink -s` and `-e`, then reset the"
            " GPUs; with switches, look at the fabric manager. If it stays, reseat or replace board, bridge or cable.",
            evidence=self.uses,
            unit="links",
            suspect=(worst, "most links down") if len(window) > 1 else None,
        )
