"""One table of a recording, under one header: what its columns are, and its rows as arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detector.errors import SourceError
from detector.frame import Device, FaultKind
from detector.metrics import METRICS
from detector.sources.columns import BAD, Cells, Column, column, doubt, missing_reason
from detector.sources.csv_lines import split
from detector.sources.format import Problems, ReadOptions
from detector.sources.identity import Devices, pci_address
from detector.sources.timestamps import UNDATED, Timestamps

SAMPLE: Final = 1000
"""So many rows say what the columns of a table are."""

_UUID: Final = re.compile(r"(?:GPU|MIG)-(?!0{8}-0{4}-)[\w/-]+", re.IGNORECASE)
_INDEX: Final = re.compile(r"[0-5]?\d|6[0-3]")
_WHOLE: Final = re.compile(r".*(?:[\"\]]|\d\s*(?:%|W|C|MHz|MiB|us))\s*")
"""A line that cannot go on: a unit, a bracket or a quotation ends it."""
_NAMELESS: Final = re.compile(r"\d+$|GPU-")
_CODES: Final = ("", "not_supported", "no_permission", "unknown", "gpu_lost", "reset_required")
_REMEMBERED: Final = 10_000
_MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Subject:
    """Which device a row is about; rows that say the same share it."""

    host: str | None
    device: Device | None
    """None: the row does not say."""
    driver: str | None


@dataclass(frozen=True, slots=True)
class Missing:
    """What a row says of the readings that it lacks; rows that say the same share it."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    """metric -> why."""
    fault: FaultKind | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as arrays; row n of each is about the same line."""

    at: NDArray[np.float64] | None
    """None: the table has no times."""
    subjects: list[Subject]
    values: NDArray[np.float64]
    """Shape (rows, metrics)."""
    missing: list[Missing]
    bad: dict[int, str]
    """Row -> why it cannot be read; the arrays hold nothing of use there."""


class Table:
    """Reads the rows under a header. What its columns are is settled once, by the first rows."""

    def __init__(
        self, names: Sequence[str], delimiter: str, devices: Devices, path: Path, options: ReadOptions, problems: Problems
    ) -> None:
        self.names = tuple(names)
        self.columns = [column(name) for name in names]
        self.delimiter = delimiter
        self.settled = False
        self.metrics: tuple[str, ...] = ()
        self.identified = False
        """Whether a column says which device a row is about."""
        self.at_once: Counter[str | None] = Counter()
        """Where none does: how many rows of one moment are of different devices, by the devices' name."""
        self.moment = 0.0
        """Seconds that one moment lasts."""
        self._path = path
        self._options = options
        self._problems = problems
        self._devices = devices
        self._times: list[int] = []
        """The column that is the time; two where day and hour have columns of their own."""
        self._zone = options.timezone
        self._timestamps = Timestamps(self._zone)
        self._second = 1.0
        """What a number of seconds since the start is multiplied with."""
        self._readings: dict[str, list[tuple[int, Cells]]] = {}
        self._bits: list[tuple[int, Cells]] = []
        self._facts: dict[str, int] = {}
        self._subjects: dict[tuple[str, ...], Subject] = {}
        self._missing: dict[bytes, Missing] = {}
        self._codes: dict[str, int] = {}

    @property
    def width(self) -> int:
        return len(self.columns)

    # -- what the columns are -----------------------------------------------------------------------------------------------
    def settle(self, lines: Sequence[str]) -> None:
        """Decide by the first rows, some of which may be torn or no rows at all; where none fits, it stays unsettled.

        Raises SourceError where there are times that cannot be read.
        """
        rows = [split(line, self.delimiter) for line in lines]
        self._fit(rows)
        cells = list(zip(*(row for row in rows if len(row) == self.width), strict=True))
        if not cells:
            return
        self.settled = True
        self._settle_time(cells)
        self._settle_facts(cells)
        self._settle_readings(cells)
        if not self.identified:
            self._settle_moment(cells)
        self._say()

    def _fit(self, rows: list[list[str]]) -> None:
        """Rows that all have a field more than the header: a comma at their end, or a second time that the header does not name."""
        width, often = Counter(map(len, rows)).most_common(1)[0] if rows else (self.width, 0)
        if often < 0.9 * len(rows):
            return
        if width == self.width + 1:
            if all(not row[-1].strip() for row in rows if len(row) == width):
                self.columns.append(column(""))
                return
            some = [row for row in rows[:100] if len(row) == width]
            style = Timestamps("UTC").style
            for n, told in enumerate(self.columns):
                if told.role == "time" and all(style(cell) in ("absolute", "naive") for row in some for cell in row[n : n + 2]):
                    self._note("rows have a time more than the header names: read as a second one")
                    self.columns.insert(n + 1, told)
                    return
        elif width == self.width - 1 and not self.columns[-1].name:
            self.columns.pop()

    def _settle_time(self, cells: Sequence[Sequence[str]]) -> None:
        """Of several times, one that needs no zone is best, then one with fractions of a second."""
        best: tuple[tuple[int, bool], int] | None = None
        places = [n for n, told in enumerate(self.columns) if told.role == "time"]
        for n in places:
            reader = Timestamps("UTC")
            styles = Counter(style for style in map(reader.style, cells[n][:100]) if style is not None)
            if styles.total() > 0.5 * len(cells[n][:100]):
                rank = ("elapsed", "naive", "absolute").index(styles.most_common(1)[0][0])
                score = (rank, any("." in cell for cell in cells[n][:100]))
                if best is None or score > best[0]:
                    best = (score, n)
        if best is not None:
            told = self.columns[best[1]]
            self._times = [best[1]]
            self._second = (told.factor or 1.0) if best[0][0] == 0 else 1.0
            self._zone = "UTC" if told.utc else self._zone
        elif len(places) == 2 and all(map(Timestamps("UTC").style, _joined([cells[n][:100] for n in places]))):
            self._times = places
        elif not places:
            said = "as --interval says" if self._options.interval else "and --interval would say otherwise"
            self._note(f"no column is a time: rows count as {self._options.interval or 1.0:g} s apart, {said}")
        elif self._options.interval is None:
            name, cell = self.columns[places[0]].name, cells[places[0]][0].strip()
            raise SourceError(f"{self._path}: times such as {cell!r} in column {name!r} cannot be read for sure; give --interval instead")
        self._timestamps = Timestamps(self._zone)

    def _settle_facts(self, cells: Sequence[Sequence[str]]) -> None:
        """Which columns say whose readings these are. Names lie, so what stands in a column decides."""
        indexes = []
        for n, told in enumerate(self.columns):
            if told.role in ("host", "driver", "name"):
                self._facts.setdefault(told.role, n)
            elif told.role == "identity":
                seen = [said for said in map(_said, cells[n]) if said is not None]
                if _mostly(_UUID.fullmatch, seen):
                    self._facts.setdefault("uuid", n)
                elif _mostly(pci_address, seen):
                    self._facts.setdefault("bus", n)
                elif _mostly(_INDEX.fullmatch, seen):
                    indexes.append((len(set(seen)), n))
                elif not _mostly(_NAMELESS.match, seen):
                    self._facts.setdefault("name", n)
        if indexes:
            # A column called index that never changes beside another one that does holds something else.
            most = max(count for count, _ in indexes)
            self._facts["index"] = next(n for count, n in indexes if count == most)
        self.identified = not self._facts.keys().isdisjoint(("uuid", "bus", "index"))

    def _settle_readings(self, cells: Sequence[Sequence[str]]) -> None:
        readers = {
            n: Cells(METRICS[told.metric], told.factor, told.bit, comma=self.delimiter != ",")
            for n, told in enumerate(self.columns)
            if told.role in ("metric", "bit")
        }
        unfit = {n: why for n, reader in readers.items() if (why := _unfit(self.columns[n], reader, cells[n]))}
        if any(METRICS[self.columns[n].metric].unit == "bytes" and self.columns[n].factor is None for n in unfit):
            # Whoever wrote one amount of memory in another unit than nvidia-smi's wrote them all so.
            bare = [n for n in readers if METRICS[self.columns[n].metric].unit == "bytes" and self.columns[n].factor is None]
            unfit |= {n: "its unit is not said, and another amount of memory is not in MiB" for n in bare if n not in unfit}
        found: dict[str, list[tuple[int, int, Cells]]] = {}
        for n, reader in readers.items():
            told = self.columns[n]
            if n in unfit:
                self._note(f"column {told.name!r} is kept out: {unfit[n]}")
            elif told.role == "bit":
                self._bits.append((n, reader))
            else:
                found.setdefault(told.metric, []).append((told.rank, n, reader))
        self._readings = {metric: [(n, reader) for _, n, reader in sorted(of, key=lambda one: one[:2])] for metric, of in found.items()}
        if self._is_occupancy(cells):
            self._note("a utilization of the memory that is its share in use is kept out: it should be how busy the memory is")
            del self._readings["memory_utilization_percent"]
        if "clock_event_reasons" in self._readings:
            self._bits = []
        self.metrics = tuple(self._readings) + (("clock_event_reasons",) if self._bits else ())
        if not self.metrics:
            why = "; ".join(f"column {self.columns[n].name!r}: {text}" for n, text in unfit.items())
            raise SourceError(f"{self._path} has no column that can be read for sure: {why}")

    def _is_occupancy(self, cells: Sequence[Sequence[str]]) -> bool:
        """Whether what people call memory utilization, by the other columns, is used of total."""
        names = ("memory_utilization_percent", "memory_used_bytes", "memory_total_bytes")
        firsts = [self._readings[name][0] for name in names if name in self._readings]
        if len(firsts) < len(names) or self.columns[firsts[0][0]].exact:
            return False
        busy, used, total = (np.array([reader[cell] for cell in cells[n]]) for n, reader in firsts)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = 100.0 * used / total
            telling = share > 2.0
        return bool(telling.any()) and bool((np.abs(share - busy)[telling] <= 1.0).mean() > 0.9)

    def _settle_moment(self, cells: Sequence[Sequence[str]]) -> None:
        """Whether rows come in groups of one moment, as many each time: then they are the devices, in their order."""
        at = self._at(cells)
        self._timestamps = Timestamps(self._zone)  # which begins with the first row once more
        if at is None or len(at) < 2 or np.isnan(at).any():
            return
        names = [_said(cell) for cell in cells[self._facts["name"]]] if "name" in self._facts else [None] * len(cells[0])
        gaps = np.diff(at)
        single = at[-1] - at[0] < 0.1 and len(at) <= _MOST_AT_ONCE
        moment = 0.1 if single else 0.05 * float(np.quantile(gaps, 0.98))
        starts = np.flatnonzero(np.concatenate(([True], np.abs(gaps) > moment)))
        sizes = np.diff(np.append(starts, len(at)))
        inner = sizes[:-1] if len(sizes) > 1 else sizes
        size = int(np.bincount(inner).argmax())
        if size > 1 and size <= _MOST_AT_ONCE and (inner == size).mean() >= 0.9:
            start = int(starts[np.flatnonzero(inner == size)[0]])
            self.at_once, self.moment = Counter(names[start : start + size]), moment
            self._note(f"{size} rows a moment and no column that tells GPUs apart: read as DEVICE-0 to DEVICE-{size - 1} by their order")
        elif size > 1:
            self._note("several rows at a moment, of varying number, and no column that tells GPUs apart: read as one GPU")

    def _say(self) -> None:
        used = {n for places in self._readings.values() for n, _ in places}
        meant = [f"{told.name} as {told.metric}" for n, told in enumerate(self.columns) if n in used and not told.exact]
        if meant:
            self._note(f"columns read by the meaning of their names: {', '.join(meant)}")
        others = [told.name for told in self.columns if told.role == "other" and told.name]
        if others:
            more = f" and {len(others) - 6} more" if len(others) > 6 else ""
            self._note(f"columns that hold no reading known here are kept out: {', '.join(others[:6])}{more}")

    def _note(self, text: str) -> None:
        self._problems.note(f"{self._path}: {text}")

    # -- rows ---------------------------------------------------------------------------------------------------------------
    def is_row(self, line: str) -> bool:
        """Whether the line has as many fields as the table."""
        if line.count(self.delimiter) == self.width - 1:
            return True
        return '"' in line and len(split(line, self.delimiter)) == self.width

    def whole(self, line: str) -> tuple[str, bool] | None:
        """What of a row without a line end can be relied on, and whether that is all; None: nothing.

        A number that nothing follows may have lost its last digits.
        """
        told = self.columns[-1]
        if told.role == "other" or _WHOLE.fullmatch(line):
            return line, True
        start = line.rfind(self.delimiter) + 1
        if told.role not in ("metric", "bit") or not line[start:].strip() or '"' in line:
            return None
        return line[:start], False

    def read(self, lines: Sequence[str]) -> Rows:
        """The rows of *lines*, each of which has as many fields as the table."""
        text = self.delimiter.join(lines)
        quoted = '"' in text
        flat = [cell for line in lines for cell in split(line, self.delimiter)] if quoted else text.split(self.delimiter)
        cells = [flat[n :: self.width] for n in range(self.width)]
        at = self._at(cells)
        values = self._values(cells, len(lines))
        bad: dict[int, str] = {}
        for n, k in zip(*np.nonzero(np.isinf(values)), strict=True):
            bad.setdefault(int(n), f"what stands under {self._told(self.metrics[k])} is no reading of it: torn?")
        if at is not None:
            bad.update(dict.fromkeys(np.flatnonzero(np.isnan(at)).tolist(), "no time where the time should be: torn?"))
        subjects = self._subjects_of(cells, len(lines))
        bad.update((n, "does not say which GPU it is about") for n, subject in enumerate(subjects) if subject.device is None)
        return Rows(at, subjects, values, self._missing_of(cells, values), bad)

    def _told(self, metric: str) -> str:
        return " and ".join(repr(self.columns[n].name) for n, _ in self._readings.get(metric, self._bits))

    def _at(self, cells: Sequence[Sequence[str]]) -> NDArray[np.float64] | None:
        if not self._times:
            return None
        at = self._timestamps.column(_joined([cells[n] for n in self._times]))
        return at if self._second == 1.0 else UNDATED + (at - UNDATED) * self._second

    def _values(self, cells: Sequence[Sequence[str]], count: int) -> NDArray[np.float64]:
        values = np.empty((count, len(self.metrics)))
        for k, places in enumerate(self._readings.values()):
            for rank, (n, reader) in enumerate(places):
                readings = np.fromiter(map(reader.__getitem__, cells[n]), np.float64, count)
                values[:, k] = readings if rank == 0 else np.where(np.isnan(values[:, k]), readings, values[:, k])
        if self._bits:
            bits = np.array([np.fromiter(map(reader.__getitem__, cells[n]), np.float64, count) for n, reader in self._bits])
            values[:, -1] = np.where(np.isnan(bits).all(axis=0), np.nan, np.nansum(bits, axis=0))
        return values

    def _subjects_of(self, cells: Sequence[Sequence[str]], count: int) -> list[Subject]:
        known = self._subjects
        if not self._facts:
            return [known.get(()) or self._subject(())] * count
        return [known.get(row) or self._subject(row) for row in zip(*(cells[n] for n in self._facts.values()), strict=True)]

    def _subject(self, row: tuple[str, ...]) -> Subject:
        if len(self._subjects) >= _REMEMBERED:
            self._subjects.clear()
        facts = {key: _said(cell) for key, cell in zip(self._facts, row, strict=True)}
        uuid, bus, index = facts.get("uuid"), facts.get("bus"), facts.get("index")
        uuid = uuid if uuid and _UUID.fullmatch(uuid) else None
        bus = pci_address(bus) if bus else None
        number = int(index) if index and _INDEX.fullmatch(index) else None
        device = None
        if not self.identified or uuid or bus or number is not None:
            device = self._devices.find(facts.get("host"), uuid, bus, number, facts.get("name"))
        subject = self._subjects[row] = Subject(facts.get("host"), device, facts.get("driver"))
        return subject

    def _missing_of(self, cells: Sequence[Sequence[str]], values: NDArray[np.float64]) -> list[Missing]:
        """Why readings are missing, a row; most rows say the same."""
        gaps = np.isnan(values)
        if not gaps.any():
            return [_NOTHING] * len(values)
        codes = np.zeros(values.shape, np.uint8)
        for k, places in enumerate([*self._readings.values(), self._bits][: len(self.metrics)]):
            if gaps[:, k].any():
                codes[:, k] = np.fromiter(map(self._code, cells[places[0][0]]), np.uint8, len(values)) * gaps[:, k]
        return [self._missing.get(row) or self._why(row) for row in map(bytes, codes)]

    def _code(self, cell: str) -> int:
        code = self._codes.get(cell)
        if code is None:
            if len(self._codes) >= _REMEMBERED:
                self._codes.clear()
            code = self._codes[cell] = _CODES.index(missing_reason(cell.strip('" ')) or "")
        return code

    def _why(self, row: bytes) -> Missing:
        if len(self._missing) >= _REMEMBERED:
            self._missing.clear()
        reasons = {metric: _CODES[code] for metric, code in zip(self.metrics, row, strict=True) if code}
        faults: list[FaultKind] = [kind for kind in ("gpu_lost", "reset_required") if kind in reasons.values()]
        missing = self._missing[row] = Missing(reasons, faults[0] if faults else None)
        return missing


_NOTHING: Final = Missing()


def _said(cell: str) -> str | None:
    text = cell.strip().strip('"')
    return text if missing_reason(text) is None else None


def _joined(columns: Sequence[Sequence[str]]) -> Sequence[str]:
    """A day and an hour in columns of their own, as one."""
    return columns[0] if len(columns) == 1 else [" ".join(map(str.strip, parts)) for parts in zip(*columns, strict=True)]


def _mostly(test: Callable[[str], object], cells: Sequence[str]) -> bool:
    return sum(test(cell) is not None for cell in cells) > 0.5 * len(cells)


def _unfit(told: Column, reader: Cells, cells: Sequence[str]) -> str | None:
    """Why a column cannot be what its name says, by some of its cells."""
    said = [cell.strip().strip('"').strip() for cell in cells if missing_reason(cell.strip('" ')) is None]
    if not said:
        return None
    values = np.array([reader[cell] for cell in said])
    example = said[0]
    if (values == BAD).mean() > 0.5:
        return f"{example!r} is no {told.metric}"
    if np.isnan(values).mean() > 0.5:
        return f"{example!r} cannot be {told.metric} in the unit {'it is said to have' if told.factor else 'nvidia-smi prints'}"
    bare = np.array([cell[-1:].isdigit() for cell in said]) & np.isfinite(values)
    if told.factor is None and doubt(METRICS[told.metric], values[bare]):
        return f"{example!r} cannot be {told.metric} in the unit nvidia-smi prints; --columns can name the unit, as in 'memory.used [GiB]'"
    return None
