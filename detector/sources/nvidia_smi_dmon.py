"""The scrolling lists of `nvidia-smi dmon` (GPUs) and `nvidia-smi pmon` (processes), whatever columns and times were asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from detector.frame import Device, Frame, Process
from detector.metrics import METRICS
from detector.sources.columns import missing_reason
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.identity import device_uuid
from detector.sources.pages import Entry, Pages, numbered
from detector.sources.sentences import fault_of, is_sentence
from detector.sources.text import Text
from detector.sources.timestamps import UNDATED, Timestamps

_MIB: Final = 1024.0 * 1024.0
_COLUMNS: Final[dict[str, tuple[str, str, float]]] = {
    "pwr": ("power_watts", "W", 1.0),
    "temp": ("temperature_celsius", "C", 1.0),
    "gtemp": ("temperature_celsius", "C", 1.0),
    "mtemp": ("memory_temperature_celsius", "C", 1.0),
    "sm": ("utilization_percent", "%", 1.0),
    "mem": ("memory_utilization_percent", "%", 1.0),
    "enc": ("encoder_utilization_percent", "%", 1.0),
    "dec": ("decoder_utilization_percent", "%", 1.0),
    "mclk": ("memory_clock_mhz", "MHz", 1.0),
    "pclk": ("sm_clock_mhz", "MHz", 1.0),
    "fb": ("memory_used_bytes", "MB", _MIB),
    "bar1": ("bar1_used_bytes", "MB", _MIB),
    "sbecc": ("ecc_corrected_aggregate_total", "errs", 1.0),
    "dbecc": ("ecc_uncorrected_aggregate_total", "errs", 1.0),
    "pci": ("pcie_replay_total", "errs", 1.0),
    "rxpci": ("pcie_rx_bytes_per_second", "MB/s", 1e6),
    "txpci": ("pcie_tx_bytes_per_second", "MB/s", 1e6),
}
"""Column -> metric, the unit that the second line of the header names, and what turns it into ours."""
_OF_PROCESSES: Final = {
    "sm": ("process_sm_utilization_percent", "%", 1.0),
    "fb": ("process_memory_used_bytes", "MB", _MIB),
}

_HEADER: Final = re.compile(r"#\s*(?:date\b|time\b|gpu\b)", re.IGNORECASE)
_UNITS: Final = re.compile(r"#\s*(?:YYYYMMDD|HH:MM:SS|Idx\b)")
_SNIFF: Final = re.compile(r"^#[ \t]*(?:Date[ \t,]+)?(?:Time[ \t,]+)?gpu[ \t,]+(.*)$", re.MULTILINE | re.IGNORECASE)
_SEPARATOR: Final = re.compile(r"\s*,\s*|\s+")
_NUMBER: Final = re.compile(r"-?\d{1,18}(?:\.\d{1,9})?")
_PID: Final = re.compile(r"\d{1,10}")
_TIME_OF_DAY: Final = re.compile(r"(\d{2}):(\d{2}):(\d{2})")
_LONGEST: Final = 4000
_DAY: Final = 86_400.0


def _sniff(head: str, *, processes: bool) -> bool:
    """Whether there is a header of dmon, or of pmon."""
    header = _SNIFF.search(head)
    if header is None:
        return False
    names = set(_SEPARATOR.split(header[1].strip()))
    return "pid" in names if processes else "pid" not in names and not names.isdisjoint(_COLUMNS)


def sniff_dmon(head: str) -> bool:
    return _sniff(head, processes=False)


def sniff_pmon(head: str) -> bool:
    return _sniff(head, processes=True)


def read_dmon(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame for each round over the GPUs."""
    return _Dmon(text, options, problems).frames()


def read_pmon(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame for each round over the GPUs: their processes, and nothing of the GPUs themselves."""
    return _Pmon(text, options, problems).frames()


DMON: Final = Format("nvidia-smi-dmon", sniff_dmon, read_dmon)
PMON: Final = Format("nvidia-smi-pmon", sniff_pmon, read_pmon)


class _Header:
    """What the columns are."""

    def __init__(self, names: Sequence[str], known: Mapping[str, tuple[str, str, float]]) -> None:
        self.names = tuple(name.lower() for name in names)
        self.readings = {n: known[name] for n, name in enumerate(self.names) if name in known}
        """Place -> metric, unit and factor."""

    def check(self, units: Sequence[str]) -> list[str]:
        """Forget columns that are in another unit than dmon's; which they are."""
        if len(units) != len(self.names):
            return []
        strange = [n for n, (_, unit, _) in self.readings.items() if units[n].lower() != unit.lower()]
        for n in strange:
            del self.readings[n]
        return [f"{self.names[n]} [{units[n]}]" for n in strange]

    def cell(self, name: str, cells: Sequence[str]) -> str | None:
        return cells[self.names.index(name)] if name in self.names else None

    def read(self, cells: Sequence[str]) -> tuple[dict[str, float], dict[str, str]] | None:
        """The readings of a row and why others are missing; None where a cell is neither."""
        readings, unavailable = {}, {}
        for n, (metric, _, factor) in self.readings.items():
            readings[metric] = np.nan
            if _NUMBER.fullmatch(cells[n]):
                value = float(cells[n]) * factor
                if METRICS[metric].plausible(value):
                    readings[metric] = value
            elif (reason := missing_reason(cells[n])) is None:
                return None
            elif reason:
                unavailable[metric] = reason
        return readings, unavailable


class _Reader:
    """Puts rows together to rounds: a GPU that was in the round begins the next."""

    known: ClassVar[Mapping[str, tuple[str, str, float]]]

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._pages = Pages(options)
        self._step = options.interval or 1.0
        self._times = _Times(options.timezone)
        self._header: _Header | None = None
        self._round: dict[int, Entry] = {}
        self._at: float | None = None

    def frames(self) -> Iterator[Frame]:
        for number, line, complete in numbered(self._text):
            if len(line) > _LONGEST:
                self._problem(number, "longer than any row: torn?")
            elif line.startswith("#"):
                yield from self._names(line)
            elif line and not line.isspace():
                yield from self._row(number, line, complete or line[-1].isspace())
        yield from self._close(whole=False)
        yield from self._pages.end()

    def _problem(self, number: int, text: str) -> None:
        self._problems.add(self._text.path, number, text)

    def _note(self, text: str) -> None:
        self._problems.note(f"{self._text.path}: {text}")

    def _close(self, *, whole: bool = True) -> Iterator[Frame]:
        entries, self._round = self._round, {}
        if entries:
            yield from self._pages.page(list(entries.values()), self._at, whole=whole)

    def _names(self, line: str) -> Iterator[Frame]:
        """A line of the header, which is repeated now and then."""
        words = _SEPARATOR.split(line[1:].strip(" \t,"))
        if _HEADER.match(line) and "gpu" in map(str.lower, words):
            header = _Header(words, self.known)
            if self._header is None or header.names != self._header.names:
                yield from self._close()
                self._header = header
                if "time" not in header.names:
                    self._note(f"no column is a time of day: rounds count as {self._step:g} s apart, --interval would say otherwise")
        elif _UNITS.match(line) and self._header is not None and (strange := self._header.check(words)):
            self._note(f"columns in an unexpected unit are kept out: {', '.join(strange)}")

    def _row(self, number: int, line: str, complete: bool) -> Iterator[Frame]:
        header = self._header
        if header is None:
            if (fault := fault_of(line)) is not None:
                yield from self._pages.blind(fault)
            elif not is_sentence(line):
                self._problem(number, "stands before the header")
            return
        # A command may have spaces in it; it stands last.
        most = len(header.names) - 1 if header.names[-1] == "command" else 0
        cells = _SEPARATOR.split(line.strip(" \t,"), maxsplit=most)
        gpu = header.cell("gpu", cells) if len(cells) == len(header.names) else None
        if gpu is None or not gpu.isdecimal() or len(gpu) > 3:
            if (fault := fault_of(line)) is not None:
                yield from self._close()
                yield from self._pages.blind(fault)
            elif not is_sentence(line):
                self._problem(number, f"not the {len(header.names)} columns that the header names: torn?")
            return
        if not complete:
            self._problem(number, "the row is cut off")
            return
        at = self._times.read(header.cell("date", cells), header.cell("time", cells))
        if at is not None and at != at:
            self._problem(number, "no time where the time should be: torn?")
            return
        if self._begins(int(gpu), cells, header):
            yield from self._close()
        first = not self._round
        if not self._take(int(gpu), cells, header):
            self._problem(number, "what stands in a column is no reading of it: torn?")
        elif first:
            self._at = at

    def _begins(self, gpu: int, cells: Sequence[str], header: _Header) -> bool:
        """Whether the row begins the next round."""
        raise NotImplementedError

    def _take(self, gpu: int, cells: Sequence[str], header: _Header) -> bool:
        """Whether the row could be read."""
        raise NotImplementedError


class _Dmon(_Reader):
    known = _COLUMNS

    def _begins(self, gpu: int, cells: Sequence[str], header: _Header) -> bool:
        return gpu in self._round

    def _take(self, gpu: int, cells: Sequence[str], header: _Header) -> bool:
        read = header.read(cells)
        if read is None:
            return False
        self._round[gpu] = Entry(_device(gpu), *read)
        return True


class _Pmon(_Reader):
    """A GPU has a row for each of its processes, or one of dashes."""

    known = _OF_PROCESSES

    def _begins(self, gpu: int, cells: Sequence[str], header: _Header) -> bool:
        if gpu not in self._round:
            return gpu < max(self._round, default=0)
        listed = [str(process.pid) for process in self._round[gpu].processes or ()]
        return gpu != max(self._round) or not listed or header.cell("pid", cells) in (None, "-", *listed)

    def _take(self, gpu: int, cells: Sequence[str], header: _Header) -> bool:
        read, pid = header.read(cells), header.cell("pid", cells)
        if read is None or pid is None or not (pid == "-" or _PID.fullmatch(pid)):
            return False
        entry = self._round.setdefault(gpu, Entry(_device(gpu), {}, processes=()))
        if pid != "-":
            command = header.cell("command", cells)
            process = Process(
                int(pid),
                memory_used_bytes=_known(read[0], "process_memory_used_bytes"),
                sm_utilization_percent=_known(read[0], "process_sm_utilization_percent"),
                command=command if command is not None and missing_reason(command) is None else None,
            )
            entry.processes = (*(entry.processes or ()), process)
        return True


def _known(readings: Mapping[str, float], metric: str) -> float | None:
    value = readings.get(metric, np.nan)
    return value if value == value else None


def _device(gpu: int) -> Device:
    return Device(device_uuid(None, None, gpu), index=gpu)


class _Times:
    """Times of rows: date and time (`-o DT`), or the time of day alone (`-o T`), which starts anew each midnight."""

    def __init__(self, zone: str | None) -> None:
        self._stamps = Timestamps(zone)
        self._days = 0
        self._last = 0.0

    def read(self, date: str | None, time: str | None) -> float | None:
        """Unix seconds, or seconds after UNDATED; NaN where it is no time, None where rows have none."""
        if time is None:
            return None
        if date is not None:
            return self._stamps.read(f"{date} {time}")
        match = _TIME_OF_DAY.fullmatch(time)
        if match is None:
            return float("nan")
        seconds = int(match[1]) * 3600.0 + int(match[2]) * 60.0 + int(match[3])
        if seconds < self._last - _DAY / 2:
            self._days += 1
        self._last = seconds
        return UNDATED + self._days * _DAY + seconds
