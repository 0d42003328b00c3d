"""Pages to frames: a page is one look at a host, and what bears no time gets a place in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Final

from detector.frame import Device, Fault, Frame, Process, pack
from detector.metrics import METRICS
from detector.sources.format import LOCALHOST, ReadOptions
from detector.sources.text import Text
from detector.sources.ticks import Clock
from detector.sources.timestamps import UNDATED

CONTEXT_BYTES: Final = 64 * 1024.0**2
"""Less than a CUDA context takes."""
_MOST_A_SECOND: Final = 64


def numbered(text: Text) -> Iterator[tuple[int, str, bool]]:
    """Line number, line, and whether it has its end; without one, its tail may be missing."""
    for block in text.blocks():
        last = len(block.lines) - 1
        for n, line in enumerate(block.lines):
            yield block.number + n, line, block.complete or n < last


def evenly(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The same frames, those of one second spread over it: pages are stamped with whole seconds, and people look more often."""
    for at, alike in groupby(frames, key=lambda frame: frame.at):
        while group := list(islice(alike, _MOST_A_SECOND)):
            yield from (replace(frame, at=at + n / len(group)) if n else frame for n, frame in enumerate(group))


@dataclass(slots=True)
class Entry:
    """What a page says of one device."""

    device: Device
    readings: dict[str, float]
    """NaN: it has the reading in question, but not this time."""
    unavailable: dict[str, str] = field(default_factory=dict)
    processes: Sequence[Process] | None = None
    """None: the page does not say."""
    fault: Fault | None = None
    """Why the device cannot be read. One that is lost is on no list any more."""


class Pages:
    """Makes frames of pages, in their order.

    A page without a time follows the one before it at the usual distance: what the times around it show, else --interval, else a second.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._host = options.host or LOCALHOST
        self._clock = Clock(options.interval)
        self._newest: float | None = None
        self._blind: list[tuple[Fault, int]] = []
        self._known: dict[str, dict[str, Device]] = {}
        """host -> the devices that pages have shown; a whole page shows all there are."""
        self._listed: dict[str, tuple[Device, ...]] = {}
        self._shows_processes = False

    def page(
        self, entries: Sequence[Entry], at: float | None = None, *, host: str | None = None, driver: str | None = None, whole: bool = True
    ) -> Iterator[Frame]:
        """The frame of a page, after those of blind looks before it.

        On a page that is not *whole*, devices that it does not show count as not looked at: they are listed, without readings.
        """
        yield from self._place_blind(at)
        host = host or self._host
        if at is None:
            at = UNDATED if self._newest is None else self._newest + self._clock.interval
        else:
            self._clock.saw(host, "", at)
        self._newest = at
        first: dict[str, Entry] = {}
        for entry in entries:
            first.setdefault(entry.device.uuid, entry)
        present = [entry for entry in first.values() if entry.fault is None or entry.fault.kind != "gpu_lost"]
        devices = self._devices(host, [entry.device for entry in present], whole)
        told = {name for entry in present for name in (*entry.readings, *entry.unavailable)}
        rows = [*(entry.readings for entry in present), *({} for _ in devices[len(present) :])]
        metrics, values = pack(rows, tuple(name for name in METRICS if name in told))
        yield Frame(
            host=host,
            at=at,
            devices=devices,
            metrics=metrics,
            values=values,
            unavailable={entry.device.uuid: entry.unavailable for entry in present if entry.unavailable},
            processes={entry.device.uuid: shown for entry in present if (shown := self._processes(entry)) is not None},
            faults=tuple(entry.fault for entry in first.values() if entry.fault is not None),
            driver_version=driver,
        )

    def blind(self, fault: Fault, at: float | None = None) -> Iterator[Frame]:
        """A look that saw nothing. Without a time, its frame waits until the next page tells one."""
        if at is not None:
            yield from self._place_blind(at)
            self._newest = at
            yield Frame(host=self._host, at=at, faults=(fault,))
        elif self._blind and self._blind[-1][0] == fault:
            self._blind[-1] = (fault, self._blind[-1][1] + 1)
        else:
            self._blind.append((fault, 1))

    def end(self) -> Iterator[Frame]:
        yield from self._place_blind(None)

    def _devices(self, host: str, shown: Sequence[Device], whole: bool) -> tuple[Device, ...]:
        known = self._known.setdefault(host, {})
        uuids = {device.uuid for device in shown}
        if whole:
            known.clear()
        devices = (*shown, *(device for uuid, device in known.items() if uuid not in uuids))
        known.update((device.uuid, device) for device in shown)
        # The same objects as long as they are the same devices: whoever follows compares by identity first.
        if devices != self._listed.get(host):
            self._listed[host] = devices
        return self._listed[host]

    def _processes(self, entry: Entry) -> tuple[Process, ...] | None:
        """The processes, None where an empty list proves nothing.

        A container sees no process of the host, yet the memory that they hold. The list is to be believed where it has shown any, or
        where there is no memory for one to hold.
        """
        if entry.processes is None:
            return None
        self._shows_processes |= bool(entry.processes)
        if entry.processes or self._shows_processes or entry.readings.get("memory_used_bytes", CONTEXT_BYTES) < CONTEXT_BYTES:
            return tuple(entry.processes)
        return None

    def _place_blind(self, until: float | None) -> Iterator[Frame]:
        waiting, self._blind = self._blind, []
        if not waiting:
            return
        count, step = sum(times for _, times in waiting), self._clock.interval
        if self._newest is None:
            self._newest = (UNDATED if until is None else until - count * step) - step
        elif until is not None and until > self._newest:
            step = min(step, (until - self._newest) / (count + 1))
        for fault, times in waiting:
            for _ in range(times):
                self._newest += step
                yield Frame(host=self._host, at=self._newest, faults=(fault,))
