"""What every source yields: one sampling pass of one host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

EventKind = Literal["xid", "gpu_lost", "double_bit_ecc", "single_bit_ecc", "mig_config_change", "recovery_action"]
FaultKind = Literal[
    "gpu_lost", "reset_required", "library_not_found", "driver_not_loaded", "library_mismatch", "no_permission", "unknown", "hung"
]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU or a MIG instance. `uuid` is its identity; an index is a label and moves when a neighbour is lost.

    A device known only by its bus address has the uuid `PCI-00000000:3B:00.0`, only by its index `INDEX-0`, by nothing `DEVICE-0`.
    """

    uuid: str
    index: int | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    parent: str | None = None
    """uuid of the GPU that a MIG instance is a part of."""
    mig_profile: str | None = None
    power_state: Literal["active", "suspended"] | None = None
    """`suspended`: a laptop GPU asleep, neither lost nor idle."""

    @property
    def kind(self) -> Literal["gpu", "mig"]:
        return "mig" if self.parent is not None or self.uuid.startswith("MIG-") else "gpu"


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a device. None means not known, never "none"."""

    pid: int
    memory_used_bytes: float | None = None
    sm_utilization_percent: float | None = None
    command: str | None = None
    user: str | None = None
    container: str | None = None
    namespace: str | None = None
    pod: str | None = None
    job: str | None = None
    state: str | None = None
    """The letter of /proc/PID/stat (R, S, D, Z ...), or `dead` where the PID no longer exists."""
    started_at: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment: it has a time of its own and is counted, not averaged."""

    kind: EventKind
    uuid: str | None
    at: float
    code: int | None = None
    message: str = ""
    source: Literal["nvml", "kernel_log", "dcgm"] | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a device, or with no uuid the whole host, could not be read in this pass."""

    kind: FaultKind
    uuid: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """What a training job says of itself. NaN and infinity are values here (a diverged loss)."""

    job: str
    readings: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """One sampling pass of one host at `at` (Unix seconds, UTC).

    `values` is float64, shaped (devices, metrics): a row a device in the order of `devices`, a column a metric in the order of
    `metrics`. NaN is a reading that is missing. A frame without devices is a host that could not be seen (`faults` says why) or
    one that carries events only.
    """

    host: str
    at: float
    devices: tuple[Device, ...] = ()
    metrics: tuple[str, ...] = ()
    values: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    unavailable: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """uuid -> metric -> why it cannot be read (`not_supported`, `no_permission` ...)."""
    processes: Mapping[str, tuple[Process, ...]] = field(default_factory=dict)
    """uuid -> its processes. An absent uuid is "not known", an empty tuple "there are none"."""
    events: tuple[Event, ...] = ()
    faults: tuple[Fault, ...] = ()
    jobs: tuple[Job, ...] = ()
    driver_version: str | None = None
    boot_id: str | None = None
    simulated: bool = False

    def reading(self, uuid: str, metric: str) -> float:
        """One reading, NaN where it is missing. For tests and notebooks; the engine reads whole columns."""
        row = next((n for n, device in enumerate(self.devices) if device.uuid == uuid), None)
        if row is None or metric not in self.metrics:
            return float("nan")
        return float(self.values[row, self.metrics.index(metric)])


def pack(rows: Iterable[Mapping[str, float]], metrics: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Readings by name, one mapping a device, as the `metrics` and `values` of a Frame."""
    rows = list(rows)
    if metrics is None:
        metrics = tuple(dict.fromkeys(name for row in rows for name in row))
    values = np.full((len(rows), len(metrics)), np.nan)
    for n, row in enumerate(rows):
        for k, name in enumerate(metrics):
            value = row.get(name)
            if value is not None:
                values[n, k] = value
    return metrics, values
