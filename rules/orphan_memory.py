"""Device memory that nobody holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Booleans, Rule, Story, Verdict
from detector.window import Window

GIB = 1024.0**3


@dataclass(frozen=True)
class OrphanMemory(Rule):
    """Much memory is in use, the list of processes can be read, and it is empty.

    Some tens of MiB stay behind after many a job (nvshare#23), ECC and the driver reserve some hundreds, so a GiB makes the difference
    (gpu-watchman complains from 256 MiB, vllm-dashboard#182 of 4 GiB). A list is not to be trusted where the GPU is or was at work while it
    was empty: a container without the host's PIDs sees no process at all. Nor is a partitioned GPU's own list: processes run on instances.

    What a dead job leaves on several GPUs of a host is one incident.
    """

    hold: float = 300.0
    keep_firing: float = 60.0
    min_held_bytes: float = 1.0 * GIB
    lookback: float = 60.0
    trust_lookback: float = 10_800.0
    """Work without a process within this time shows that the list hides some."""
    max_idle_percent: float = 5.0
    """Above this somebody is at work."""

    needs: ClassVar = ("memory_used_bytes", "process_count")
    uses: ClassVar = ("utilization_percent",)
    every: ClassVar = 30.0
    wastes: ClassVar = True
    explained_by: ClassVar = ("gpu_lost", "xid", "recovery_required", "driver_fault")

    def check(self, window: Window) -> Verdict:
        memory, processes = window.last("memory_used_bytes"), window.last("process_count")
        known = ~np.isnan(memory) & ~np.isnan(processes)
        firing = (processes == 0) & (memory >= self.min_held_bytes)
        if firing.any():
            firing &= window.max("process_count", self.lookback) == 0
            firing &= window.min("memory_used_bytes", self.lookback) >= self.min_held_bytes
            hidden = (window.last("mig_mode") == 1) | self._hides(window, firing)
            firing, known = firing & ~hidden, known & ~(firing & hidden)
        return Verdict(firing=firing, value=memory, threshold=self.min_held_bytes, known=known, group=["left behind"] * len(window))

    def _hides(self, window: Window, rows: Booleans) -> Booleans:
        """Where the GPU was at work while no process was listed."""
        some = window.of(rows)
        _, load = some.values("utilization_percent", self.trust_lookback)
        _, listed = some.values("process_count", self.trust_lookback, "max")
        hides = np.zeros(len(window), bool)
        hides[rows] = ((load > self.max_idle_percent) & (listed == 0)).any(axis=0)
        return hides

    def tell(self, window: Window, verdict: Verdict) -> Story:
        many = f" on {len(window)} GPUs" if len(window) > 1 else ""
        return Story(
            summary=f"{verdict.value.sum() / GIB:.1f} GiB of memory in use{many}, and no process holds it",
            action="Look for what is left: `fuser -v /dev/nvidia*`, processes in state D, containers half removed. If there is nothing,"
            " reset the GPU.",
            evidence=("memory_used_bytes", "process_count", "utilization_percent"),
            unit="bytes",
        )
