"""A GPU that somebody holds and nobody uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from detector.rule import Booleans, Floats, Rule, Story, Verdict
from detector.window import Window

from ._teams import Teams, board

MIB = 1024.0**2


@dataclass(frozen=True)
class IdleGpu(Rule):
    """Memory or a process is held, yet the busiest sample of every minute stays at rest and power confirms it.

    The maximum decides, not the mean: short bursts of inference are work, and so is memory that fills (a model being loaded). A counter
    that says 0 while the board draws the power of a working GPU, with none of its MIG instances at work, lies (dcgm-exporter#662 is one
    without permission); that is no idle GPU. Where utilisation is not supported, the GPU is partitioned, or its power meter fell silent,
    the rule cannot tell. A GPU joins the idle ones of its owner once it has been idle as long as they.
    """

    hold: float = 1200.0
    keep_firing: float = 60.0
    max_activity_percent: float = 2.0
    min_held_bytes: float = 1024 * MIB
    """Memory that counts as held where no process is seen; less is a display or the driver's own."""
    max_power_fraction: float = 0.5
    """Share of the power limit above which a GPU is at work whatever its utilisation says. Small boards rest at 0.4 of it."""
    lookback: float = 60.0

    uses: ClassVar = ("utilization_percent", "graphics_engine_active_percent", "sm_active_percent", "memory_utilization_percent",
                      "encoder_utilization_percent", "decoder_utilization_percent", "memory_used_bytes", "process_count", "mig_mode",
                      "power_watts")  # fmt: skip
    every: ClassVar = 60.0
    wastes: ClassVar = True
    explained_by: ClassVar = ("stuck_training", "gpu_lost", "xid", "rising_double_bit_ecc", "telemetry_frozen", "orphan_memory",
                              "zombie_process")  # fmt: skip
    CONTEXT_BYTES: ClassVar = 64 * MIB
    """Less than a CUDA context takes: a display server's process, or noise."""

    def check(self, window: Window) -> Verdict:
        activity = self._activity(window)
        memory, processes, power = window.last("memory_used_bytes"), window.last("process_count"), window.max("power_watts", self.lookback)
        held = (memory >= self.min_held_bytes) | ((processes >= 1) & ~(memory < self.CONTEXT_BYTES))
        fills = window.max("memory_used_bytes", self.lookback) - window.min("memory_used_bytes", self.lookback) >= self.CONTEXT_BYTES
        boards = Teams(window, [board(subject) for subject in window.subjects])
        powered = boards.any(power > self.max_power_fraction * window.last("power_limit_watts"))
        lies = powered & ~boards.any(activity > self.max_activity_percent)
        asleep = np.array([s.device is not None and s.device.power_state == "suspended" for s in window.subjects], bool)
        silent_meter = np.isnan(power) & window.ever("power_watts")
        idle = (activity <= self.max_activity_percent) & held & ~fills & ~lies
        owners = [subject.owner for subject in window.subjects]
        return Verdict(
            firing=self._as_long_as_their_peers(window, idle, owners),
            known=~np.isnan(activity) & (~np.isnan(memory) | (processes >= 1)) & ~asleep & ~self._partitioned(window) & ~silent_meter,
            value=activity,
            threshold=self.max_activity_percent,
            group=owners,
        )

    def _activity(self, window: Window) -> Floats:
        """The busiest any engine was, in percent; NaN where the compute engine is not seen."""
        activity = window.max("utilization_percent", self.lookback)
        for other in ("graphics_engine_active_percent", "sm_active_percent"):
            activity = np.where(np.isnan(activity), window.max(other, self.lookback), activity)
        for engine in ("memory_utilization_percent", "encoder_utilization_percent", "decoder_utilization_percent"):
            activity = np.where(np.isnan(activity), np.nan, np.fmax(activity, window.max(engine, self.lookback)))
        return activity

    def _partitioned(self, window: Window) -> Booleans:
        """GPUs that are cut into instances: each of those is judged, not the whole."""
        devices = [subject.device for subject in window.subjects]
        cut = {device.parent for device in devices if device is not None}
        whole = np.array([device is not None and device.kind == "gpu" for device in devices], bool)
        parent = np.array([device is not None and device.uuid in cut for device in devices], bool)
        partitioned: Booleans = whole & (parent | (window.last("mig_mode") == 1))
        return partitioned

    def _as_long_as_their_peers(self, window: Window, idle: Booleans, owners: list[str | None]) -> Booleans:
        """The idle rows, without those that began to rest minutes after the first of their owner's: they may be about to go on."""
        _, busiest = window.of(idle).values("utilization_percent", min(self.hold, 3600.0), "max")
        awake = busiest > self.max_activity_percent
        rested = np.zeros(len(window))
        rested[idle] = np.where(awake.any(axis=0), awake[::-1].argmax(axis=0), len(awake))
        buckets_apart = 2
        return idle & (rested >= Teams(window, owners).most(rested) - buckets_apart)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        memory, power = window.last("memory_used_bytes"), window.last("power_watts")
        many = f"{len(window)} GPUs" if len(window) > 1 else "GPU"
        count = int(np.nansum(window.last("process_count")))
        by = "1 process" if count == 1 else f"{count} processes"
        held = f"{np.nansum(memory) / 1024**3:.1f} GiB" if np.isfinite(memory).any() else by
        watts = f", drawing {np.nansum(power):.0f} W" if np.isfinite(power).any() else ""
        return Story(
            summary=f"{many} held ({held}) but not used: at most {np.nanmax(verdict.value):.0f} % busy for {self.hold / 60:.0f} minutes"
            + watts,
            action="Ask the owner whether the GPU is still needed; release it, or lower its reservation. Nothing is done by itself.",
            evidence=("utilization_percent", "graphics_engine_active_percent", "memory_used_bytes", "power_watts"),
            unit="percent",
        )
