"""Rows to frames: those of one moment belong together, and what bears no time gets a place in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from detector.frame import Device, Fault, Frame
from detector.sources.csv_table import Missing, Rows, Table
from detector.sources.format import LOCALHOST, ReadOptions
from detector.sources.identity import Devices, device_uuid
from detector.sources.timestamps import UNDATED


@dataclass(slots=True)
class Tick:
    """The rows of one moment and host, as they come."""

    host: str
    at: float
    newest: float
    metrics: tuple[str, ...]
    driver: str | None
    devices: list[Device] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    unavailable: dict[str, Mapping[str, str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    named: dict[str | None, int] = field(default_factory=dict)
    """How many of its rows bear a name, where the name is all that tells devices apart."""

    def add(self, device: Device, values: NDArray[np.float64], missing: Missing) -> None:
        self.seen.add(device.uuid)
        if missing.fault is not None:
            self.faults.append(Fault(missing.fault, device.uuid))
        if missing.fault == "gpu_lost":  # it is on the list no more
            return
        self.devices.append(device)
        self.values.append(values)
        if missing.reasons:
            self.unavailable[device.uuid] = missing.reasons


class Clock:
    """How far apart frames usually are: so a silent stretch can be filled, and rows of one moment be told from the next."""

    def __init__(self, interval: float | None) -> None:
        self.interval = interval or 1.0
        self.moment = 0.5
        """Rows further apart than this many seconds are not of one moment."""
        self._gaps: deque[float] = deque(maxlen=15)
        self._seen: dict[tuple[str, str], float] = {}

    def saw(self, host: str, uuid: str, at: float) -> None:
        """A frame began with this device."""
        gap = at - self._seen.get((host, uuid), at)
        self._seen[host, uuid] = at
        if gap > 0.0:
            self._gaps.append(gap)
            self.interval = sorted(self._gaps)[len(self._gaps) // 2]
            self.moment = max(0.5 * self.interval, 0.05)


class Ticks:
    """Puts rows together to frames, and gives a place in time to what has none."""

    def __init__(self, options: ReadOptions, devices: Devices) -> None:
        self._host = options.host or LOCALHOST
        self._step = options.interval or 1.0
        self._clock = Clock(options.interval)
        self._devices = devices
        self._open: dict[str, Tick] = {}
        self._blind: list[tuple[Fault, int]] = []
        self._newest: float | None = None
        """The time of the newest frame."""
        self._numbers: dict[str, dict[tuple[str | None, int], Device]] = {}
        """host -> (name, place among the rows of that name) -> the device."""
        self._listed: dict[str, tuple[Device, ...]] = {}

    def take(self, table: Table, rows: Rows, count: int) -> Iterator[Frame]:
        """The frames that the first *count* rows complete."""
        times: Iterable[float | None] = repeat(None) if rows.at is None else rows.at.tolist()
        for n, (subject, at, values, missing) in enumerate(zip(rows.subjects, times, rows.values, rows.missing, strict=False)):
            if n >= count:
                break
            if n in rows.bad or subject.device is None:
                continue
            if self._blind:
                yield from self._place_blind(at)
            host = subject.host or self._host
            tick = self._open.get(host)
            device = subject.device if table.identified else self._numbered(table, tick, host, subject.device.name, at)
            if tick is None or self._is_over(tick, table, device, at):
                yield from self._close_before(host, at)
                tick = self._begin(host, table, device, at, subject.driver)
            tick.add(device, values, missing)
            if not table.identified:
                tick.named[device.name] = tick.named.get(device.name, 0) + 1
            if at is not None:
                tick.newest = at

    def blind(self, fault: Fault) -> Iterator[Frame]:
        """A sentence in the place of rows. Its frame waits until its time is known."""
        yield from self._close_all()
        if fault.uuid is not None:
            fault = replace(fault, uuid=self._devices.best(None, fault.uuid))
        if self._blind and self._blind[-1][0] == fault:
            self._blind[-1] = (fault, self._blind[-1][1] + 1)
        else:
            self._blind.append((fault, 1))

    def end(self) -> Iterator[Frame]:
        yield from self._close_all()
        yield from self._place_blind(None)

    def _is_over(self, tick: Tick, table: Table, device: Device, at: float | None) -> bool:
        if device.uuid in tick.seen or tick.metrics is not table.metrics:
            return True
        return at is not None and abs(at - tick.newest) > self._clock.moment

    def _begin(self, host: str, table: Table, device: Device, at: float | None, driver: str | None) -> Tick:
        if at is None:
            at = UNDATED if self._newest is None else self._newest + self._step
        else:
            self._clock.saw(host, device.uuid, at)
        self._newest = at
        tick = self._open[host] = Tick(host, at, at, table.metrics, driver)
        return tick

    def _numbered(self, table: Table, tick: Tick | None, host: str, name: str | None, at: float | None) -> Device:
        """Without an identity, the device is its place among the rows of the moment that bear its name."""
        nth = 0
        if tick is not None and at is not None and abs(at - tick.newest) <= table.moment:
            before = tick.named.get(name, 0)
            nth = before if before < table.at_once[name] else 0
        numbers = self._numbers.setdefault(host, {})
        if (name, nth) not in numbers:
            numbers[name, nth] = Device(device_uuid(None, position=len(numbers)), name=name)
        return numbers[name, nth]

    def _close_all(self) -> Iterator[Frame]:
        for host in list(self._open):
            yield self._close(host)

    def _close_before(self, host: str, at: float | None) -> Iterator[Frame]:
        """Close the host's frame, and those of hosts that have fallen silent."""
        for other, tick in list(self._open.items()):
            if other == host or (at is not None and at - tick.newest > self._clock.moment):
                yield self._close(other)

    def _close(self, host: str) -> Frame:
        tick = self._open.pop(host)
        devices = tuple(tick.devices)
        # The same objects as long as they are the same devices: whoever follows compares by identity first.
        if devices == self._listed.get(host):
            devices = self._listed[host]
        self._listed[host] = devices
        return Frame(
            host=host,
            at=tick.at,
            devices=devices,
            metrics=tick.metrics,
            values=np.array(tick.values) if tick.values else np.empty((0, len(tick.metrics))),
            unavailable=tick.unavailable,
            faults=tuple(tick.faults),
            driver_version=tick.driver,
        )

    def _place_blind(self, until: float | None) -> Iterator[Frame]:
        """Sentences bear no time: they follow the newest frame at the usual interval, closer where rows at *until* leave less room."""
        waiting, self._blind = self._blind, []
        count = sum(times for _, times in waiting)
        step = self._clock.interval
        if self._newest is None:
            self._newest = (UNDATED if until is None else until - count * step) - step
        elif until is not None and until > self._newest:
            step = min(step, (until - self._newest) / (count + 1))
        for fault, times in waiting:
            for _ in range(times):
                self._newest += step
                yield Frame(host=self._host, at=self._newest, faults=(fault,))
