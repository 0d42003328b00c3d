"""Traces, gpuwarden's own recordings: JSON Lines, one frame a line, as `gpuwarden record` writes them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from detector.frame import Device, Event, EventKind, Fault, FaultKind, Frame, Job, Process, pack
from detector.metrics import METRICS, Entity
from detector.sources.format import LOCALHOST, Format, Problems, ReadOptions
from detector.sources.identity import device_uuid, pci_address
from detector.sources.text import Text
from detector.sources.timestamps import Timestamps

_FRAME: Final = re.compile(r'^[ \t]*\{.*"at"\s*:', re.MULTILINE)
_PART: Final = re.compile(r'"(?:devices|events|jobs|errors)"\s*:')
_EVENTS: Final[dict[str, EventKind]] = {kind: kind for kind in get_args(EventKind)}
_FAULTS: Final[dict[str, FaultKind]] = {kind: kind for kind in get_args(FaultKind)}
_SPELT: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BOUNDS: Final = {metric.name: (metric.low, metric.high) for metric in METRICS.values() if metric.entity == "device"}
_PLAIN: Final = (int, float)
_LATEST: Final = 1e11
"""Unix seconds of the year 5138; what is beyond counts something else, such as milliseconds."""


def sniff(head: str) -> bool:
    return _FRAME.search(head) is not None and _PART.search(head) is not None


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """Frames in the order of the file. A line that cannot be read is a problem, and so is a part of a frame."""
    reader = _Reader(text.path, options, problems)
    for block in text.blocks():
        for number, line in enumerate(block.lines, block.number):
            if line and not line.isspace() and (frame := reader.frame(number, line)) is not None:
                yield frame


FORMAT: Final = Format("trace", sniff, read)


class _Bad(Exception):
    """A line, or a part of one, that is not what the format says."""


class _Reader:
    """Remembers what a trace says of a device only once."""

    def __init__(self, path: Path, options: ReadOptions, problems: Problems) -> None:
        self._path = path
        self._problems = problems
        self._host = options.host or LOCALHOST
        self._times = Timestamps(options.timezone)
        self._devices: dict[tuple[str, str], Device] = {}
        self._unavailable: dict[tuple[str, str], dict[str, str]] = {}
        self._listed: dict[str, tuple[Device, ...]] = {}
        self._line = 0

    def frame(self, number: int, line: str) -> Frame | None:
        self._line = number
        try:
            return self._frame(line)
        except _Bad as bad:
            self._problem(str(bad))
            return None

    def _problem(self, text: str) -> None:
        self._problems.add(self._path, self._line, text)

    def _frame(self, line: str) -> Frame:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            raise _Bad("not a JSON object; torn or cut off?") from None
        if not isinstance(told, dict) or "at" not in told:
            raise _Bad("not a frame: no `at`")
        at = self._moment(told["at"])
        if at is None:
            raise _Bad("`at` is neither Unix seconds nor an RFC 3339 time")
        host = _text(told.get("host")) or self._host
        devices, rows, unavailable, processes = [], [], {}, {}
        for position, entry in enumerate(self._objects(told, "devices")):
            device = self._device(host, entry, position)
            devices.append(device)
            rows.append(self._readings(entry.get("readings"), "device"))
            if reasons := self._reasons(host, device.uuid, entry.get("unavailable")):
                unavailable[device.uuid] = reasons
            if entry.get("processes") is not None:
                processes[device.uuid] = tuple(self._processes(entry))
        metrics, values = _packed(rows)
        listed = tuple(devices)
        # The same objects as long as they are the same devices: whoever follows compares by identity first.
        if listed == self._listed.get(host):
            listed = self._listed[host]
        self._listed[host] = listed
        return Frame(
            host=host,
            at=at,
            devices=listed,
            metrics=metrics,
            values=values,
            unavailable=unavailable,
            processes=processes,
            events=tuple(self._events(told, at)),
            faults=tuple(self._faults(told)),
            jobs=tuple(self._jobs(told)),
            driver_version=_text(told.get("driver_version")),
            boot_id=_text(told.get("boot_id")),
            simulated=told.get("simulated") is True,
        )

    def _moment(self, told: object) -> float | None:
        at = self._times.read(told) if isinstance(told, str) else _number(told)
        return at if at is not None and 0.0 <= at < _LATEST else None

    def _objects(self, told: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
        entries = told.get(key)
        if entries is None:
            return
        if not isinstance(entries, list):
            self._problem(f"`{key}` is not a list")
            return
        for entry in entries:
            if isinstance(entry, dict):
                yield entry
            else:
                self._problem(f"an entry of `{key}` is not an object")

    def _device(self, host: str, entry: Mapping[str, Any], position: int) -> Device:
        address = _text(entry.get("pci_bus_id"))
        address = address and (pci_address(address) or address)
        index = _integer(entry.get("index"))
        uuid = device_uuid(_text(entry.get("uuid")), address, index, position)
        known = self._devices.get((host, uuid)) or Device(uuid)
        power_state = entry.get("power_state")
        device = Device(
            uuid=uuid,
            index=index if index is not None else known.index,
            name=_text(entry.get("name")) or known.name,
            pci_bus_id=address or known.pci_bus_id,
            parent=_text(entry.get("parent")) or known.parent,
            mig_profile=_text(entry.get("mig_profile")) or known.mig_profile,
            power_state=power_state if power_state in ("active", "suspended") else None,
        )
        if device == known:
            return known
        self._devices[host, uuid] = device
        return device

    def _readings(self, told: object, entity: Entity) -> dict[str, float]:
        """Readings by metric. NaN and infinity are values for a job, missing for a device."""
        if told is None:
            return {}
        if not isinstance(told, dict):
            self._problem("`readings` is not an object")
            return {}
        out = {}
        for name, value in told.items():
            bounds = _BOUNDS.get(name)
            if bounds is not None and entity == "device" and type(value) in _PLAIN and bounds[0] <= value <= bounds[1]:
                out[name] = value  # as nearly all are
                continue
            metric = METRICS.get(name)
            if metric is None or metric.entity != entity:
                self._problems.note(f"{self._path}: there is no {entity} metric called {name!r}: kept out")
                continue
            if value is None:
                continue
            number = _SPELT.get(value) if isinstance(value, str) else _number(value)
            if number is None:
                self._problem(f"{name} is not a number")
            elif metric.plausible(number) and (entity == "job" or math.isfinite(number)):
                out[name] = number
        return out

    def _reasons(self, host: str, uuid: str, told: object) -> dict[str, str]:
        if isinstance(told, dict):
            self._unavailable[host, uuid] = {name: str(reason) for name, reason in told.items() if name in METRICS}
        return self._unavailable.get((host, uuid), {})

    def _processes(self, entry: Mapping[str, Any]) -> Iterator[Process]:
        for told in self._objects(entry, "processes"):
            pid = _integer(told.get("pid"))
            if pid is None:
                self._problem("a process without a `pid`")
                continue
            yield Process(
                pid=pid,
                memory_used_bytes=_reading("process_memory_used_bytes", told.get("memory_used_bytes")),
                sm_utilization_percent=_reading("process_sm_utilization_percent", told.get("sm_utilization_percent")),
                **{key: _text(told.get(key)) for key in ("command", "user", "container", "namespace", "pod", "job", "state")},
                started_at=self._moment(told.get("started_at")),
            )

    def _events(self, told: Mapping[str, Any], at: float) -> Iterator[Event]:
        for entry in self._objects(told, "events"):
            named, source = _text(entry.get("kind")) or "", entry.get("source")
            kind = _EVENTS.get(named)
            if kind is None:
                self._problems.note(f"{self._path}: there is no kind of event called {named!r}: kept out")
                continue
            own = self._moment(entry.get("at"))
            yield Event(
                kind=kind,
                uuid=_text(entry.get("uuid")),
                at=at if own is None else own,
                code=_integer(entry.get("code")),
                message=_text(entry.get("message")) or "",
                source=source if source in ("nvml", "kernel_log", "dcgm") else None,
            )

    def _faults(self, told: Mapping[str, Any]) -> Iterator[Fault]:
        for entry in self._objects(told, "errors"):
            named = _text(entry.get("kind")) or ""
            kind, message = _FAULTS.get(named, "unknown"), _text(entry.get("message")) or ""
            yield Fault(kind, _text(entry.get("uuid")), message if named in _FAULTS else message or named)

    def _jobs(self, told: Mapping[str, Any]) -> Iterator[Job]:
        for entry in self._objects(told, "jobs"):
            if name := _text(entry.get("job")):
                yield Job(name, self._readings(entry.get("readings"), "job"))
            else:
                self._problem("a job without a name")


def _packed(rows: list[dict[str, float]]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """As `pack`; quicker where all devices have the same readings, as they mostly do."""
    names = tuple(rows[0]) if rows else ()
    if all(tuple(row) == names for row in rows):
        return names, np.array([tuple(row.values()) for row in rows], np.float64).reshape(len(rows), len(names))
    return pack(rows)


def _text(told: object) -> str | None:
    return told if isinstance(told, str) and told else None


def _integer(told: object) -> int | None:
    return told if isinstance(told, int) and not isinstance(told, bool) else None


def _number(told: object) -> float | None:
    if isinstance(told, (int, float)):
        try:
            return float(told)
        except OverflowError:
            return None
    return None


def _reading(metric: str, told: object) -> float | None:
    number = _number(told)
    return number if number is not None and math.isfinite(number) and METRICS[metric].plausible(number) else None
