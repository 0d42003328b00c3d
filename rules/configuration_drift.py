"""Settings of a GPU that changed, or will change at the next reset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.incident import Severity
from detector.rule import Rule, Story, Verdict
from detector.window import Window


@dataclass(frozen=True)
class ConfigurationDrift(Rule):
    """The ECC or MIG mode differs from the one that waits for a reset, or a mode changed within the look-back.

    A job that starts after the next reboot finds another GPU than the one before it: less memory, no ECC, no partitions. Peers do not tell
    (NVIDIA's mig-manager aside), or call persistence mode off a fault, which is normal on desktops (gpud#137 is about the noise): so it is
    a note, and only about what differs, not about what ought to be. What changes on several GPUs of a host is one note.
    """

    severity: Severity = "info"
    keep_firing: float = 60.0
    lookback: float = 1800.0
    """How long a change is told."""

    uses: ClassVar = ("ecc_mode", "ecc_mode_pending", "mig_mode", "mig_mode_pending", "persistence_mode", "compute_mode")
    every: ClassVar = 60.0
    explained_by: ClassVar = ("gpu_lost",)
    WAITS: ClassVar = (("ecc_mode", "ecc_mode_pending"), ("mig_mode", "mig_mode_pending"))
    MODES: ClassVar = {"ecc_mode": "ECC", "mig_mode": "MIG", "persistence_mode": "persistence mode", "compute_mode": "compute mode"}

    def check(self, window: Window) -> Verdict:
        waiting = [np.abs(window.last(mode) - window.last(pending)) > 0 for mode, pending in self.WAITS]
        changed = [window.min(mode, self.lookback) < window.max(mode, self.lookback) for mode in self.MODES]
        differences = np.sum([*waiting, *changed], axis=0).astype(float)
        readable = np.any([~np.isnan(window.last(mode)) for mode in self.MODES], axis=0)
        return Verdict(firing=differences > 0, value=differences, threshold=0.0, known=readable, group=["modes"] * len(window))

    def tell(self, window: Window, verdict: Verdict) -> Story:
        said = []
        for mode, pending in self.WAITS:
            now, then = window.last(mode), window.last(pending)
            for n in np.flatnonzero(np.abs(now - then) > 0)[:1]:
                said.append(f"{self.MODES[mode]} is {_word(mode, now[n])} and will be {_word(mode, then[n])} after the next reset")
        for mode, name in self.MODES.items():
            now, low, high = window.last(mode), window.min(mode, self.lookback), window.max(mode, self.lookback)
            for n in np.flatnonzero(low < high)[:1]:
                said.append(f"{name} is {_word(mode, now[n])}, it was {_word(mode, low[n] if now[n] == high[n] else high[n])}")
        many = f" ({len(window)} GPUs)" if len(window) > 1 else ""
        return Story(
            summary="; ".join(said) + many,
            action="If nobody meant it, set it back (`nvidia-smi -e`, `-mig`, `-pm`, `-c`); else plan the reset.",
            evidence=self.uses,
            unit="settings",
        )


def _word(mode: str, value: float) -> str:
    if np.isnan(value):
        return "unknown"
    words = ("default", "exclusive to a thread", "prohibited", "exclusive to a process") if mode == "compute_mode" else ("off", "on")
    return words[int(value)]
