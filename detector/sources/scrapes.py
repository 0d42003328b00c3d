"""Samples of series to frames: those of one host and moment are a scrape."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detector.frame import Device, Event, Frame, pack
from detector.sources.series import Directory, Series, blank

_MOMENT: Final = 0.5
"""Samples of one scrape may bear times that differ by so many seconds."""
_HIGHEST_XID: Final = 9999
_SLICE: Final = 16_384

Readings = dict[str, float]
"""By metric."""


@dataclass(slots=True)
class _Scrape:
    """The samples of one host and moment, as they come."""

    at: float
    rows: dict[str, Readings] = field(default_factory=dict)
    """uuid -> readings by metric. Of series that differ in a pod only, the last one counts: they are one GPU, and no sum."""
    devices: dict[str, Device] = field(default_factory=dict)
    """uuid -> the device, as it was known when the scrape began."""
    gauges: dict[str, dict[int, str]] = field(default_factory=dict)
    """uuid -> the Xids that its gauge shows, each with what is said of it; none where it shows 0."""
    counts: dict[str, dict[int, float]] = field(default_factory=dict)
    """uuid -> how many of each Xid are counted."""
    driver_version: str | None = None


class Scrapes:
    """Puts samples together to frames, which lie in `ready` as soon as they are whole.

    *dated*: the samples bear times. Without times nothing can be said of when a gauge of Xids changed.
    """

    def __init__(self, directory: Directory, dated: bool) -> None:
        self.ready: list[Frame] = []
        self._directory = directory
        self._dated = dated
        self._open: dict[str, _Scrape] = {}
        self._newest = 0.0
        self._xids = _Xids()
        self._listed: dict[str, tuple[Device, ...]] = {}

    def add(self, series: Series, at: float, value: float) -> None:
        """Take a sample. One that belongs to a later moment than a scrape says that the scrape is whole."""
        scrape = self._open.get(series.host)
        if scrape is None or (at != scrape.at and not self._belongs(scrape, series, at)):
            scrape = self._begin(series.host, at)
        row = scrape.rows.get(series.uuid)
        if row is None:
            row = scrape.rows[series.uuid] = {}
            scrape.devices[series.uuid] = self._directory.devices[series.host, series.uuid]
        if series.kind == "xid" or series.kind == "xid_count":
            self._take_xid(scrape, series, value)
            return
        scrape.driver_version = series.driver_version or scrape.driver_version
        reading = series.reading(value)
        if reading is not None and series.metric is not None:
            if series.preferred:
                row[series.metric.name] = reading
            else:
                row.setdefault(series.metric.name, reading)

    def drain(self) -> list[Frame]:
        """The frames that became ready since the last call."""
        ready, self.ready = self.ready, []
        return ready

    def close(self) -> list[Frame]:
        """The rest: nothing more will come."""
        self._finish([*self._open])
        return self.drain()

    def _belongs(self, scrape: _Scrape, series: Series, at: float) -> bool:
        known = scrape.rows.get(series.uuid, {})
        return abs(at - scrape.at) <= _MOMENT and (series.metric is None or series.metric.name not in known)

    def _begin(self, host: str, at: float) -> _Scrape:
        """A new scrape of a host; it ends the one before, and those of hosts that are silent since."""
        ended = [host] if host in self._open else []
        if at > self._newest:
            self._newest = at
            ended = [name for name, scrape in self._open.items() if name == host or scrape.at < at - _MOMENT]
        self._finish(ended)
        scrape = self._open[host] = _Scrape(at)
        return scrape

    def _take_xid(self, scrape: _Scrape, series: Series, value: float) -> None:
        if blank(value) or value < 0.0:
            return
        if series.kind == "xid":
            shown = scrape.gauges.setdefault(series.uuid, {})
            if 0 < value <= _HIGHEST_XID:
                shown[int(value)] = series.message
        elif series.code:
            counted = scrape.counts.setdefault(series.uuid, {})
            counted[series.code] = max(value, counted.get(series.code, 0.0))

    def _finish(self, hosts: list[str]) -> None:
        for host in sorted(hosts, key=lambda name: self._open[name].at):
            self.ready.append(self._frame(host, self._open.pop(host)))

    def _frame(self, host: str, scrape: _Scrape) -> Frame:
        devices = tuple(self._directory.since(host, device) for device in scrape.devices.values())
        # The same objects as long as they are the same devices: whoever follows compares by identity first.
        if devices == self._listed.get(host):
            devices = self._listed[host]
        self._listed[host] = devices
        metrics, values = _packed([_completed(row) for row in scrape.rows.values()])
        events = tuple(self._xids.events(host, scrape)) if self._dated else ()
        return Frame(host, scrape.at, devices, metrics, values, events=events, driver_version=scrape.driver_version)


class _Xids:
    """Tells when an Xid happened, from series that only tell that it did, once, at some time.

    What the first scrape shows is history, what stays is no news, and a gauge that goes back to 0 neither.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], dict[int, str]] = {}
        self._counted: dict[tuple[str, str], dict[int, float]] = {}
        self._rows: dict[str, dict[str, Readings]] = {}

    def events(self, host: str, scrape: _Scrape) -> Iterator[Event]:
        """The Xids that are new in a scrape."""
        rows, self._rows[host] = self._rows.get(host, {}), scrape.rows
        for uuid, row in scrape.rows.items():
            # Exporters may leave out a series until there is something to show. One that answers another question (a query for
            # the Xids alone) has no readings in common with the scrape before, and its first answer is history.
            seen = not row.keys().isdisjoint(rows.get(uuid, {}))
            shown, counted = scrape.gauges.get(uuid), scrape.counts.get(uuid, {} if seen else None)
            codes: dict[int, str] = {}
            if shown is not None:
                before = self._shown.get((host, uuid), {} if seen else shown)
                codes.update((code, message) for code, message in shown.items() if code not in before)
                self._shown[host, uuid] = shown
            if counted is not None:
                so_far = self._counted.get((host, uuid), {} if seen else counted)
                codes.update((code, "") for code, count in counted.items() if count > so_far.get(code, 0.0) and code not in codes)
                self._counted[host, uuid] = counted
            for code in sorted(codes):
                yield Event("xid", uuid, scrape.at, code, codes[code], "dcgm")


class Pile:
    """Samples in any order, to be put into the order of time. Takes 20 bytes a sample."""

    def __init__(self) -> None:
        self._series: list[Series] = []
        self._places: dict[int, int] = {}
        """id of a series, which the list keeps alive -> its place there."""
        self._which = array("I")
        self._times = array("d")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, series: Series, times: Sequence[float], values: Sequence[float]) -> None:
        """Samples of one series, as many *times* as *values*."""
        place = self._places.setdefault(id(series), len(self._series))
        if place == len(self._series):
            self._series.append(series)
        self._which.extend([place] * len(times))
        self._times.extend(times)
        self._values.extend(values)

    def frames(self, scrapes: Scrapes) -> Iterator[Frame]:
        """All of it as frames, in order; once."""
        order = np.argsort(np.array(self._times), kind="stable")
        for start in range(0, len(order), _SLICE):
            for n in order[start : start + _SLICE].tolist():
                scrapes.add(self._series[self._which[n]], self._times[n], self._values[n])
            yield from scrapes.drain()
        yield from scrapes.close()


def _completed(row: dict[str, float]) -> dict[str, float]:
    """The readings with the size of the memory, where only its parts are exported."""
    if "memory_total_bytes" not in row and "memory_used_bytes" in row and "memory_free_bytes" in row:
        row["memory_total_bytes"] = row["memory_used_bytes"] + row["memory_free_bytes"] + row.get("memory_reserved_bytes", 0.0)
    return row


def _packed(rows: list[dict[str, float]]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """As `pack`; quicker where all devices have the same readings, as they mostly do."""
    names = tuple(rows[0])
    if all(tuple(row) == names for row in rows):
        return names, np.array([tuple(row.values()) for row in rows], np.float64).reshape(len(rows), len(names))
    return pack(rows)
