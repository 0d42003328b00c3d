"""What `gpustat` prints, with whichever options, in a loop: its text, and its `--json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np

from detector.frame import Device, Fault, Frame, Process
from detector.metrics import METRICS
from detector.sources.columns import BAD, Cells, column, missing_reason
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.identity import Devices, device_uuid
from detector.sources.pages import Entry, Pages, evenly, numbered
from detector.sources.text import Text
from detector.sources.timestamps import Timestamps

_MIB: Final = 1024.0 * 1024.0
_LONGEST: Final = 64 * 1024
_LONGEST_HEADER: Final = 300
_FIRST: Final = 200
"""So many lines are looked at to tell whether it is gpustat's."""
_LARGEST: Final = 16 * 1024 * 1024
"""No JSON document of gpustat has so many characters."""

_COLOUR: Final = re.compile("\x1b(?:\\[[0-9;?]*[A-Za-z]|\\(B)")
_ROW: Final = re.compile(r"\[(\d{1,3})\] ([^|]*)\|([^|]*)\| *(\d+|\?+) */ *(\d+|\?+) *MB *(?:\|(.*))?")
_TEMPERATURE: Final = re.compile(r"\s*(-?\d{1,4}|\?+)\s?[^\s\d,]{0,4}C\b")
_CODECS: Final = re.compile(r"\([^()]{0,60}\)")
_ONE_CODEC: Final = re.compile(r"([ED]): *(\d{1,4}|\?\??) *%")
_PERCENT: Final = re.compile(r"(?<!\d)(\d{1,4}|\?\??) *%")
_POWER: Final = re.compile(r"(?<!\d)(\d{1,6}|\?\??) */ *(\d{1,6}|\?\??) *W\b")
_PROCESS: Final = re.compile(r"(?:([^\s:()/]{1,64}):)?([^\s()]{1,256}?)(?:/(\d{1,10}))?\((\d{1,9}|\?)M\)")
_HEADER: Final = re.compile(r"(\S+)\s{2,}(\S.*?)(?:\s{2,}(\d+\.[\d.]+|None))?")
_ENGLISH: Final = re.compile(r"([A-Z][a-z]{2}) (\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d{1,2}):(\d{2}:\d{2}) ([AP]M)(?: (\S+))?")
_FULL_COMMAND: Final = re.compile(r"\s*[\u251c\u2514]")
_LOST: Final = re.compile(r"\(\((?:GPU is lost|Unknown Error)\)\)", re.IGNORECASE)

_OTHERS: Final = "lines that are not gpustat's are left out"
_FAILED: Final = re.compile(r"Error on (?:calling NVML|querying NVIDIA devices)")


def sniff(head: str) -> bool:
    if head.lstrip()[:1] == "{":
        return '"gpus"' in head and ('"query_time"' in head or '"utilization.gpu"' in head)
    lines = (_COLOUR.sub("", line).strip() for line in islice(head.splitlines(), _FIRST))
    return any(row is not None and _TEMPERATURE.match(row[3]) is not None for row in map(_ROW.fullmatch, lines))


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame a look."""
    as_json = text.head.lstrip()[:1] == "{"
    return evenly((_Json if as_json else _Lines)(text, options, problems).frames())


FORMAT: Final = Format("gpustat", sniff, read)


class _Reader:
    """What both forms share."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._pages = Pages(options)
        self._times = Timestamps(options.timezone)
        self._devices = Devices()
        self._step = options.interval or 1.0

    def frames(self) -> Iterator[Frame]:
        raise NotImplementedError

    def _problem(self, number: int, text: str) -> None:
        self._problems.add(self._text.path, number, text)

    def _note(self, text: str) -> None:
        self._problems.note(f"{self._text.path}: {text}")

    def _moment(self, said: str) -> float | None:
        at = self._times.read(said)
        if at == at:
            return at
        self._note(f"times such as {said[:40]!r} cannot be read: looks count as {self._step:g} s apart, --interval would say otherwise")
        return None


# -- text -------------------------------------------------------------------------------------------------------------------
class _Lines(_Reader):
    """A line that names the host and the time, unless it was asked not to be there, and one a GPU."""

    def frames(self) -> Iterator[Frame]:
        header: re.Match[str] | None = None  # of the look that is open
        ahead: re.Match[str] | None = None
        entries: dict[int, Entry] = {}
        for number, line, complete in numbered(self._text):
            if len(line) > _LONGEST:
                self._problem(number, "longer than any line of gpustat")
                continue
            line = _COLOUR.sub("", line).strip() if "\x1b" in line else line.strip()
            row = _ROW.fullmatch(line)
            entry = None if row is None else self._entry(row, complete)
            if entry is not None:
                index = entry.device.index or 0
                if ahead is not None or index in entries:
                    yield from self._look(header, entries)
                    header, ahead, entries = ahead, None, {}
                entries[index] = entry
            elif line.startswith("[") and "|" in line:
                self._problem(number, "a line of a GPU that cannot be read: torn?")
            elif not _FULL_COMMAND.match(line):
                ahead = self._header(line)
                if _FAILED.match(line):
                    yield from self._look(header, entries)
                    header, ahead, entries = None, None, {}
                    yield from self._pages.blind(Fault("unknown", None, line))
                elif ahead is None and line:
                    self._note(_OTHERS)
        yield from self._look(header, entries, whole=False)
        yield from self._pages.end()

    def _header(self, line: str) -> re.Match[str] | None:
        """Host, time and driver (which early versions leave out), if that is what the line says."""
        match = _HEADER.fullmatch(line) if len(line) < _LONGEST_HEADER else None
        if match is None or (match[3] is None and self._times.style(_plain(match[2])) in (None, "elapsed")):
            return None
        return match

    def _look(self, header: re.Match[str] | None, entries: Mapping[int, Entry], *, whole: bool = True) -> Iterator[Frame]:
        if not entries:
            return
        if header is None:
            self._note(f"looks without a time count as {self._step:g} s apart, --interval would say otherwise")
            yield from self._pages.page(list(entries.values()), whole=whole)
            return
        driver = header[3] if header[3] != "None" else None
        yield from self._pages.page(list(entries.values()), self._moment(_plain(header[2])), host=header[1], driver=driver, whole=whole)

    def _entry(self, row: re.Match[str], complete: bool) -> Entry | None:
        """What a line says; None where it is torn."""
        index, name = int(row[1]), row[2].strip()
        device = Device(device_uuid(None, None, index), index=index, name=None if _LOST.fullmatch(name) else name or None)
        if device.name is None and name:
            return Entry(device, {}, fault=Fault("gpu_lost", device.uuid, name.strip("()")))
        temperature, gauges = _TEMPERATURE.match(row[3]), _CODECS.sub("", row[3])
        percents, power = _PERCENT.findall(gauges), _POWER.search(gauges)
        if temperature is None or len(percents) not in (1, 2):
            return None
        said = {
            "temperature_celsius": (temperature[1], 1.0),
            "utilization_percent": (percents[-1], 1.0),
            "memory_used_bytes": (row[4], _MIB),
            "memory_total_bytes": (row[5], _MIB),
        }
        if len(percents) == 2:
            said["fan_speed_percent"] = (percents[0], 1.0)
        if power is not None:
            said["power_watts"], said["power_limit_watts"] = (power[1], 1.0), (power[2], 1.0)
        for codec, share in _ONE_CODEC.findall(row[3]):
            said["encoder_utilization_percent" if codec == "E" else "decoder_utilization_percent"] = (share, 1.0)
        entry = Entry(device, {metric: _reading(metric, text, factor) for metric, (text, factor) in said.items()})
        if row[6] is not None and complete:
            self._processes(entry, row[6].strip())
        return entry

    def _processes(self, entry: Entry, listed: str) -> None:
        """Processes without a process id can only be counted."""
        found = list(_PROCESS.finditer(listed))
        if _PROCESS.sub("", listed).strip():  # such as `(Not Supported)`
            return
        if all(one[3] is not None for one in found):
            entry.processes = [
                Process(
                    int(one[3]),
                    memory_used_bytes=None if one[4] == "?" else int(one[4]) * _MIB,
                    command=_word(one[2]) if one[1] else None,  # alone it may as well be the user
                    user=_word(one[1]),
                )
                for one in found
            ]
        else:
            entry.readings["process_count"] = float(len(found))


def _plain(said: str) -> str:
    """A time as the C locale writes it, if it is one of the English locales'."""
    match = _ENGLISH.fullmatch(said)
    if match is None:
        return said
    day, number, month, year, hour, rest, half, zone = match.groups()
    return f"{day} {month} {number} {int(hour) % 12 + 12 * (half == 'PM'):02d}:{rest} {f'{zone} ' if zone in ('UTC', 'GMT') else ''}{year}"


def _reading(metric: str, text: str, factor: float) -> float:
    value = float(text) * factor if text.lstrip("-").isdecimal() and len(text) < 16 else np.nan
    return value if METRICS[metric].plausible(value) else np.nan


def _word(text: object) -> str | None:
    return text if isinstance(text, str) and missing_reason(text) is None else None


# -- JSON -------------------------------------------------------------------------------------------------------------------
class _Json(_Reader):
    """One document a look, over many lines or on one."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        super().__init__(text, options, problems)
        self._cells: dict[str, Cells] = {}

    def frames(self) -> Iterator[Frame]:
        pieces: list[str] = []
        start, size = 0, 0
        for number, line, _ in numbered(self._text):
            if line[:1] == "{":  # at the left edge: a document, not an object in one
                if pieces:
                    self._problem(start, "a document that is cut off")
                pieces, start, size = [], number, 0
            elif not pieces:
                if _FAILED.match(line):
                    yield from self._pages.blind(Fault("unknown", None, line.strip()))
                elif line and not line.isspace():
                    self._note(_OTHERS)
                continue
            pieces.append(line)
            size += len(line)
            if line[:1] == "}" or (len(pieces) == 1 and line.rstrip()[-1] == "}"):
                yield from self._document(start, "\n".join(pieces))
                pieces = []
            elif size > _LARGEST:
                self._problem(start, "longer than any document of gpustat")
                pieces = []
        if pieces:
            self._problem(start, "a document that is cut off")
        yield from self._pages.end()

    def _document(self, number: int, document: str) -> Iterator[Frame]:
        try:
            told = json.loads(document)
        except (ValueError, RecursionError):
            told = None
        listed = told.get("gpus") if isinstance(told, dict) else None
        if not isinstance(told, dict) or not isinstance(listed, list):
            self._problem(number, "not a document of gpustat: torn?")
            return
        host = _word(told.get("hostname"))
        stamp = told.get("query_time")
        at = self._moment(stamp) if isinstance(stamp, str) else None
        entries = [self._gpu(number, host, gpu, n) for n, gpu in enumerate(listed) if isinstance(gpu, dict)]
        entries = [entry for entry in entries if entry.readings or entry.fault is not None]
        if not entries:
            self._problem(number, "a document that lists no GPU with a reading")
        else:
            yield from self._pages.page(entries, at, host=host, driver=_word(told.get("driver_version")))

    def _gpu(self, number: int, host: str | None, gpu: Mapping[str, Any], position: int) -> Entry:
        index, name = gpu.get("index"), _word(gpu.get("name"))
        if not isinstance(index, int):
            index = position
        lost = name is not None and _LOST.fullmatch(name) is not None
        device = self._devices.find(host, _word(gpu.get("uuid")), None, index, None if lost else name)
        if lost:
            return Entry(device, {}, fault=Fault("gpu_lost", device.uuid, str(name).strip("()")))
        entry = Entry(device, {})
        for key, value in gpu.items():
            told = column(key)
            if told.role != "metric" or not (value is None or isinstance(value, (int, float, str))):
                continue
            reading = np.nan if value is None else self._cell(key)[str(value)]
            if reading == BAD:
                self._problem(number, f"{key!r} of a GPU is no reading")
            entry.readings[told.metric] = reading if reading != BAD else np.nan
        entry.processes = _listed(gpu.get("processes"))
        return entry

    def _cell(self, key: str) -> Cells:
        told = column(key)
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = Cells(METRICS[told.metric], told.factor)
        return cells


def _listed(told: object) -> Sequence[Process] | None:
    if not isinstance(told, list):
        return None
    processes = []
    for one in told:
        if not isinstance(one, dict) or not isinstance(one.get("pid"), int):
            return None
        memory, line = one.get("gpu_memory_usage"), one.get("full_command")
        command = " ".join(line) if isinstance(line, list) and all(isinstance(word, str) for word in line) else one.get("command")
        processes.append(
            Process(
                one["pid"],
                memory_used_bytes=memory * _MIB if isinstance(memory, int) and 0 <= memory < 2**30 else None,
                command=_word(command),
                user=_word(one.get("username")),
            )
        )
    return processes
