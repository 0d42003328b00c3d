"""What is asked of every device in one step, and under which conditions. Workloads make it, faults bend it, physics answers it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detector.frame import Event

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(slots=True)
class Tick:
    """One step. Arrays are shaped (devices,) unless said; shares are 0..1."""

    at: float
    dt: float
    """Seconds since the step before; 0 in the first one."""
    busy: Floats
    """Share of time with a kernel running."""
    intensity: Floats
    """Share of the power that the board could draw for it."""
    bandwidth: Floats
    pcie: Floats
    nvlink: Floats
    memory: Floats
    """Allocated bytes."""
    context: Booleans
    """Whether a process holds the device."""
    heating: Floats
    """Factor on the heat sink's thermal resistance; 1: air flows as it should."""
    clock_limit: Floats
    """Share of the highest clock that something outside of the GPU allows."""
    reasons: NDArray[np.int64]
    """Clock event reasons from outside, as NVML bits."""
    visible: Booleans
    progress: Floats
    """(teams,) Share of its usual pace at which a job makes steps."""
    diverged: Booleans
    """(teams,) Whether the loss is no number any more."""
    events: list[tuple[int, Event]] = field(default_factory=list)
    """What happened, with the row it happened to."""
