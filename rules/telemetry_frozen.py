"""A GPU whose readings repeat to the last digit while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from detector.rule import Booleans, Rule, Story, Verdict
from detector.window import Window


@dataclass(frozen=True)
class TelemetryFrozen(Rule):
    """Power, temperature, utilisation and SM clock of a busy GPU were exactly the same in every sample of ten minutes (pai#889).

    The noise of a power sensor makes that impossible: somebody hands out old readings. At rest readings do repeat, and so may watts that
    a source rounds to whole numbers, hence the rule needs fractions of a watt, a GPU above rest, and many samples. An energy counter that
    still rises, or memory traffic that moves, proves that the readings are fresh.

    All frozen GPUs of a host are one incident: what hangs is nearly always the reader or the driver, not one card.
    """

    keep_firing: float = 60.0
    lookback: float = 600.0
    min_samples: int = 20
    """Fewer within `lookback` prove nothing: a host that is sampled every minute needs a longer look-back."""
    min_utilization_percent: float = 5.0
    """At or below this a GPU is at rest."""

    needs: ClassVar = ("power_watts", "temperature_celsius", "utilization_percent", "sm_clock_mhz")
    uses: ClassVar = ("memory_utilization_percent", "energy_joules_total")
    every: ClassVar = 30.0
    explained_by: ClassVar = ("gpu_lost", "xid", "recovery_required")

    def check(self, window: Window) -> Verdict:
        samples = window.count("power_watts", self.lookback)
        fresh = self._differs(window, "power_watts")
        still = ~fresh & (samples > 0)
        if not still.any():
            return Verdict(firing=still, value=samples, threshold=float(self.min_samples), known=fresh)
        for metric in (*self.needs[1:], "memory_utilization_percent"):
            fresh = fresh | self._differs(window, metric)
        fresh |= window.increase("energy_joules_total", self.lookback) > 0
        power, busy = window.min("power_watts", self.lookback), window.min("utilization_percent", self.lookback)
        enough = (samples >= self.min_samples) & (window.present("power_watts", self.lookback) >= 0.9)
        for metric in self.needs[1:]:
            enough &= window.count(metric, self.lookback) >= self.min_samples
        telling = still & enough & (power % 1.0 != 0)
        return Verdict(
            firing=telling & ~fresh & (busy > self.min_utilization_percent),
            value=samples,
            threshold=float(self.min_samples),
            known=(samples > 0) & (fresh | telling | (still & (busy <= self.min_utilization_percent))),
            group=["readings"] * len(window),
        )

    def _differs(self, window: Window, metric: str) -> Booleans:
        return window.min(metric, self.lookback) < window.max(metric, self.lookback)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        watts, degrees, percent, mhz = (window.last(metric)[0] for metric in self.needs)
        many = f"; {len(window)} GPUs of this host alike" if len(window) > 1 else ""
        count = f"all {verdict.value[0]:.0f} samples of {self.lookback / 60:.0f} minutes"
        return Story(
            summary=f"readings are frozen: {watts:.2f} W, {degrees:.0f} degC, {percent:.0f} %, {mhz:.0f} MHz in {count}{many}",
            action="Nothing that is said of this GPU can be trusted. Compare with `nvidia-smi` on the host; restart the exporter or agent,"
            " and if `nvidia-smi` repeats itself too, drain the node and reset the GPU.",
            evidence=("power_watts", "temperature_celsius", "utilization_percent", "sm_clock_mhz"),
            unit="samples",
        )
