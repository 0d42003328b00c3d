"""A process that is dead, or cannot be killed, and holds a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.frame import Process
from detector.rule import Rule, Story, Verdict
from detector.window import Window

GIB = 1024.0**3


@dataclass(frozen=True)
class ZombieProcess(Rule):
    """At every look of a minute a process on the GPU was a zombie (Z), gone from the process table, or in uninterruptible sleep (D).

    Peers: gpud and gcm look at the same letters (microsoft/pai#5528). A loader that reads from a slow disk is in D now and then, and a PID
    of another namespace looks gone: one that is at work, by its own share of the GPU or else by the GPU's, is neither. A process without a
    name (`Unknown Error`, mxnet#4242) is only a process without a name.

    The processes of one job, or one process on several GPUs, are one incident.
    """

    hold: float = 60.0
    keep_firing: float = 30.0
    max_idle_percent: float = 5.0
    """Above this the process, or the GPU where the process does not say, is at work."""
    lookback: float = 60.0

    needs: ClassVar = ("process_count",)
    uses: ClassVar = ("utilization_percent", "memory_used_bytes")
    every: ClassVar = 20.0
    wastes: ClassVar = True
    explained_by: ClassVar = ("gpu_lost", "xid", "recovery_required", "rising_double_bit_ecc", "driver_fault")
    STATES: ClassVar = {"Z": "is a zombie", "X": "is dead", "dead": "is gone", "D": "cannot be interrupted (state D)"}

    def check(self, window: Window) -> Verdict:
        count = window.last("process_count")
        listed = [subject.processes or () for subject in window.subjects]
        unread = np.array([bool(some) and all(p.state is None for p in some) for some in listed], bool)
        if not any(p.state in self.STATES for some in listed for p in some):
            return Verdict(firing=np.zeros(len(window), bool), value=count, known=~unread & ~np.isnan(count))
        dead = self._dead(window)
        return Verdict(
            firing=np.array([bool(some) for some in dead], bool),
            value=np.array([sum(p.memory_used_bytes or 0.0 for p in some) for some in dead], np.float64),
            known=~unread & ~np.isnan(count),
            group=[f"job:{some[0].job}" if some and some[0].job else f"pid:{some[0].pid}" if some else None for some in dead],
        )

    def _dead(self, window: Window) -> list[list[Process]]:
        """Of each row, the processes that are dead as far as can be seen."""
        busy = window.max("utilization_percent", self.lookback) > self.max_idle_percent
        return [
            [p for p in subject.processes or () if p.state == "Z" or (p.state in self.STATES and not self._works(p, works))]
            for subject, works in zip(window.subjects, busy.tolist(), strict=True)
        ]

    def _works(self, process: Process, device: bool) -> bool:
        return device if process.sm_utilization_percent is None else process.sm_utilization_percent > self.max_idle_percent

    def tell(self, window: Window, verdict: Verdict) -> Story:
        process = self._dead(window)[0][0]
        who = f"process {process.pid}" + (f" ({process.command})" if process.command else "")
        memory = f" and holds {verdict.value.sum() / GIB:.1f} GiB" if verdict.value.sum() > 0 else ""
        many = f" on {len(window)} GPUs" if len(window) > 1 else ""
        return Story(
            summary=f"{who} {self.STATES[process.state or 'dead']}{memory}{many}",
            action="End its parent or container first. In state D it waits for the driver or a disk (`cat /proc/PID/stack`, `dmesg`): if it"
            " stays, drain the node and reboot it.",
            evidence=("memory_used_bytes", "utilization_percent"),
            unit="bytes",
            pid=process.pid,
        )
