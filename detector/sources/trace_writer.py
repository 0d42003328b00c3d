"""Writes frames as a trace: JSON Lines, one frame a line, compressed where the name ends in `.gz`."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from detector.errors import SourceError
from detector.frame import Device, Event, Fault, Frame, Process
from detector.metrics import METRICS

_STATIC: Final = ("index", "name", "pci_bus_id", "parent", "mig_profile")
_EVENT: Final = tuple(field.name for field in fields(Event))
_FAULT: Final = tuple(field.name for field in fields(Fault))
_PROCESS: Final = tuple(field.name for field in fields(Process))
_HELD: Final = frozenset(name for name, metric in METRICS.items() if metric.held)


def write_trace(frames: Iterable[Frame], path: str | Path) -> int:
    """Write *frames* to *path* as they come and say how many. Raises SourceError where *path* cannot be written."""
    written = 0
    with TraceWriter(path) as trace:
        for frame in frames:
            trace.write(frame)
            written += 1
    return written


class TraceWriter:
    """A trace being written. What comes before a break-off stays readable.

    What a device is, its limits, and why it lacks readings are written when they first come up and when they change.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._told: dict[tuple[str, str], dict[str, Any]] = {}
        with self._explained():
            if self._path.suffix == ".gz":
                self._file = gzip.open(self._path, "wt", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
            else:
                self._file = self._path.open("w", encoding="utf-8", buffering=1)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._explained():
            self._file.close()

    def write(self, frame: Frame) -> None:
        """Add one frame."""
        line = json.dumps(self._frame(frame), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        with self._explained():
            self._file.write(line + "\n")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SourceError(f"{self._path} cannot be written: {error.strerror or error}; name a file in a folder with room") from error

    def _frame(self, frame: Frame) -> dict[str, Any]:
        told: dict[str, Any] = {"at": frame.at, "host": frame.host, "simulated": frame.simulated}
        told |= _given(frame, ("driver_version", "boot_id"))
        told["devices"] = [self._device(frame, row, device) for row, device in enumerate(frame.devices)]
        told["events"] = [_given(event, _EVENT) for event in frame.events]
        told["jobs"] = [{"job": job.job, "readings": {name: _plain(value) for name, value in job.readings.items()}} for job in frame.jobs]
        told["errors"] = [_given(fault, _FAULT) for fault in frame.faults]
        return {name: value for name, value in told.items() if value or name in ("at", "devices")}

    def _device(self, frame: Frame, row: int, device: Device) -> dict[str, Any]:
        known = self._told.setdefault((frame.host, device.uuid), {"unavailable": {}})
        told: dict[str, Any] = {"uuid": device.uuid}
        told |= _news(known, _given(device, _STATIC))
        told |= _given(device, ("power_state",))
        readings = {
            name: _plain(value) for name, value in zip(frame.metrics, frame.values[row].tolist(), strict=True) if not math.isnan(value)
        }
        news = _news(known, {name: value for name, value in readings.items() if name in _HELD})
        told["readings"] = {name: value for name, value in readings.items() if name not in _HELD or name in news}
        told |= _news(known, {"unavailable": dict(frame.unavailable.get(device.uuid, {}))})
        if device.uuid in frame.processes:
            told["processes"] = [_given(process, _PROCESS) for process in frame.processes[device.uuid]]
        return told


def _given(thing: object, names: tuple[str, ...]) -> dict[str, Any]:
    """What *thing* knows of *names*."""
    return {name: _plain(value) for name in names if (value := getattr(thing, name)) not in (None, "")}


def _news(known: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """What of *facts* is not *known* yet; it is afterwards."""
    news = {name: value for name, value in facts.items() if name not in known or known[name] != value}
    known.update(news)
    return news


def _plain(value: Any) -> Any:
    """A value in JSON, which has neither NaN nor infinity."""
    if not isinstance(value, float):
        return value
    if math.isfinite(value):
        return int(value) if value.is_integer() else value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0.0 else "-Infinity"
