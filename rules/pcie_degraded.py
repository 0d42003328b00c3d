"""A PCIe link that is narrower or slower than it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import SEVERITIES
from detector.rule import INFO, Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

from ._teams import board


@dataclass(frozen=True)
class PcieDegraded(Rule):
    """Under load the link has fewer lanes, or a lower generation, than it had before: a warning; than card and slot name: a note.

    At rest the generation falls to save power, and may go up and down a thousand times (rtx6kpro#88), so only a loaded GPU is judged; one
    that is degraded and rests, cannot be. Peers that warn of any link below its maximum (gpumedic) report cards that sit in a slot with
    eight lanes by design: what was so from the start is a note, a fall is a fault.
    """

    hold: float = 30.0
    keep_firing: float = 60.0
    min_utilization_percent: float = 50.0
    """Load, in every sample of `lookback`."""
    lookback: float = 30.0
    best_lookback: float = 10_800.0
    """Where the link's own best is taken from."""

    uses: ClassVar = ("pcie_link_width", "pcie_link_generation", "utilization_percent")
    explained_by: ClassVar = ("gpu_lost", "xid", "recovery_required")
    LINK: ClassVar = uses[:2]

    def check(self, window: Window) -> Verdict:
        now = [window.last(metric) for metric in self.LINK]
        nominal = [window.last(f"{metric}_max") for metric in self.LINK]
        known = self._readable(window, now)
        share = _bandwidth(now, nominal)
        maybe = known & ((share < 1.0) | np.isnan(nominal).any(axis=0))
        loaded = maybe.copy()
        if maybe.any():
            loaded &= window.min("utilization_percent", self.lookback) >= self.min_utilization_percent
        known &= loaded | ~maybe
        if not loaded.any():
            return Verdict(firing=loaded, value=share, threshold=1.0, known=known)
        own = np.ones(len(window))
        own[loaded] = self._own(window.of(loaded))
        share = np.minimum(share, own)
        return Verdict(
            firing=loaded & (share < 1.0),
            value=share,
            threshold=1.0,
            known=known,
            severity=np.where(own < 1.0, SEVERITIES.index(self.severity), INFO).astype(np.int8),
            group=[board(s) for s in window.subjects],
        )

    def _own(self, window: Window) -> Floats:
        """Share of the bandwidth that the link itself had before."""
        best = [window.max(metric, self.best_lookback) for metric in self.LINK]
        return _bandwidth([window.last(metric) for metric in self.LINK], best)

    def _readable(self, window: Window, now: list[Floats]) -> Booleans:
        """Where at least one of width and generation was ever read, and what was, is."""
        ever = [window.ever(metric) for metric in self.LINK]
        readable: Booleans = np.any(ever, axis=0) & ~np.any([was & np.isnan(value) for was, value in zip(ever, now, strict=True)], axis=0)
        return readable

    def tell(self, window: Window, verdict: Verdict) -> Story:
        now = [window.last(metric) for metric in self.LINK]
        own = [window.max(metric, self.best_lookback) for metric in self.LINK]
        best = _link([np.fmax(window.last(f"{metric}_max"), before) for metric, before in zip(self.LINK, own, strict=True)])
        since = f"it had been {_link(own)}" if self._own(window)[0] < 1.0 else f"card and slot can do {best}, and it was never seen better"
        return Story(
            summary=f"PCIe link runs at {_link(now)} under load; {since}",
            action="Look for PCIe errors (`dmesg`, `lspci -vv`); when drained reseat the card or replace the riser; check the slot's"
            " setting in the BIOS.",
            evidence=self.uses,
            unit="share",
        )


def _bandwidth(now: list[Floats], best: list[Floats]) -> Floats:
    """Share of the best bandwidth, shape (rows,): each generation doubles it. What is not known makes no difference."""
    (lanes, generation), (most_lanes, highest) = now, best
    share: Floats = np.nan_to_num(lanes / most_lanes, nan=1.0) * 2.0 ** np.nan_to_num(generation - highest, nan=0.0)
    return share


def _link(link: list[Floats]) -> str:
    """Lanes and generation of the first row in words."""
    lanes, generation = (values[0] for values in link)
    parts = [f"x{lanes:.0f}"] * bool(np.isfinite(lanes)) + [f"generation {generation:.0f}"] * bool(np.isfinite(generation))
    return " ".join(parts)
