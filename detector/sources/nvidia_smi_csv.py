"""What `nvidia-smi --query-gpu=... --format=csv` prints in a loop, as people record, rename, cut and mix it.

Rows of one moment are a frame. Where nvidia-smi prints a sentence instead of rows, the frame has no devices and a fault that says why.
MB and GB are read as MiB and GiB, which is what nvidia-smi and those who divide its numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from detector.errors import SourceError
from detector.frame import Frame
from detector.sources.columns import column, is_value
from detector.sources.csv_lines import delimiter_of, header_of, is_names
from detector.sources.csv_table import SAMPLE, Table
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.identity import Devices
from detector.sources.sentences import fault_of, is_sentence
from detector.sources.text import Block, Text
from detector.sources.ticks import Ticks
from detector.sources.timestamps import Timestamps

_EXAMPLE: Final = "timestamp,index,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw"
_HEADERS: Final = 64
"""So many different headers in a file are believed."""


def sniff(head: str) -> bool:
    """A header that names a reading, a sentence of nvidia-smi, or rows of values."""
    lines = [line for line in islice(head.splitlines(), 100) if line.strip("\0 \t")]
    if any(header_of(line) is not None or is_sentence(line) for line in lines):
        return True
    return _tabular(lines[:20])


def _tabular(lines: Sequence[str]) -> bool:
    """Whether most lines are rows of values that only lack a header, or have one that says nothing."""
    found = delimiter_of(lines) if lines else None
    rows = [line.split(found[0]) if found else [line] for line in lines]
    times = Timestamps("UTC")

    def is_row(row: list[str]) -> bool:
        values = sum(not cell.strip() or is_value(cell.strip()) or times.style(cell) is not None for cell in row)
        return values > 0.5 * len(row) and any(cell.strip() for cell in row)

    return sum(map(is_row, rows)) >= max(1.0, 0.9 * (len(rows) - 1))


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """Frames in the order of the file. Raises SourceError where the columns cannot be told for sure."""
    reader = _Reader(text, options, problems)
    for block in text.blocks():
        yield from reader.block(block)
    yield from reader.end()


FORMAT: Final = Format("nvidia-smi-csv", sniff, read)


class _Reader:
    """Tells headers, rows, sentences and rubbish apart."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._path = text.path
        self._options = options
        self._problems = problems
        self._devices = Devices()
        self._ticks = Ticks(options, self._devices)
        self._table: Table | None = None
        self._headers: dict[str, Table] = {}
        """By the line that the header is."""
        self._lines: list[str] = []
        self._numbers: list[int] = []
        """Rows that wait to be read together, and their line numbers."""

    def block(self, block: Block) -> Iterator[Frame]:
        before_header: list[str] = []
        hopeless = False
        last = block.number + len(block.lines) - 1
        for number, line in enumerate(block.lines, block.number):
            if (known := self._headers.get(line)) is not None:
                if known is not self._table:
                    yield from self._flush()
                    self._table = known
                continue
            table = self._table or self._given(block, number)
            if table is None:
                if line and not line.isspace():
                    yield from self._odd(number, line)
                    before_header += [line] if self._table is None else []
                continue
            if not table.settled and not hopeless:
                table.settle(self._sample(block, number))
                hopeless = not table.settled
            if table.settled and table.is_row(line) and not (table.width == 1 and is_sentence(line)):
                self._take(table, number, line, cut=number == last and not block.complete)
            elif line and not line.isspace():
                yield from self._odd(number, line)
        yield from self._flush()
        if self._table is None and not all(map(is_sentence, before_header)):
            raise SourceError(self._refusal(before_header))
        if hopeless and self._table is not None and not any(table.settled for table in self._headers.values()):
            raise SourceError(
                f"{self._path} has rows that do not have the {self._table.width} fields that its header names; "
                f"name all of theirs with --columns as nvidia-smi does: {_EXAMPLE}"
            )

    def end(self) -> Iterator[Frame]:
        yield from self._ticks.end()

    def _sample(self, block: Block, number: int) -> list[str]:
        lines = block.lines[number - block.number :]
        return list(islice((line for line in lines if line and line not in self._headers and not is_sentence(line)), SAMPLE))

    def _problem(self, number: int, text: str) -> None:
        self._problems.add(self._path, number, text)

    def _note(self, text: str) -> None:
        self._problems.note(f"{self._path}: {text}")

    # -- tables -------------------------------------------------------------------------------------------------------------
    def _given(self, block: Block, number: int) -> Table | None:
        """The table whose columns were given by the caller."""
        names = self._options.columns
        if names is None:
            return None
        sample = [line for line in self._sample(block, number) if not is_names(line)]
        if not sample:
            return None
        found = delimiter_of(sample, len(names))
        if found is None:
            fields = delimiter_of(sample)
            raise SourceError(
                f"{self._path} has rows of {fields[1] if fields else 'varying numbers of'} fields, and --columns names {len(names)}: "
                f"name every one, with a word such as skip for those to leave out (first row: {sample[0]!r})"
            )
        self._table = self._new_table(names, found[0])
        return self._table

    def _use(self, line: str, names: tuple[str, ...], delimiter: str) -> None:
        """Read what follows under this header."""
        same = (table for table in self._headers.values() if table.names == names and table.delimiter == delimiter)
        self._table = self._headers[line] = next(same, None) or self._new_table(names, delimiter)

    def _new_table(self, names: tuple[str, ...], delimiter: str) -> Table:
        told = [column(name) for name in names]
        if any(one.role == "process" for one in told):
            raise SourceError(f"{self._path} is a table of processes (--query-compute-apps), which is not supported yet")
        if not any(one.role in ("metric", "bit") for one in told):
            raise SourceError(f"none of the columns {', '.join(names)} of {self._path} is a reading; nvidia-smi calls them {_EXAMPLE}")
        return Table(names, delimiter, self._devices, self._path, self._options, self._problems)

    def _new_header(self, line: str) -> tuple[tuple[str, ...], str] | None:
        return header_of(line) if self._options.columns is None and len(self._headers) < _HEADERS else None

    def _refusal(self, lines: list[str]) -> str:
        line = next((line for line in lines if not is_names(line)), None)
        if is_names(lines[0]) and len(lines) > 1:
            return (
                f"{self._path} has the columns {lines[0].strip()}, and what they measure cannot be told for sure; "
                f"name them with --columns as nvidia-smi does: {_EXAMPLE}"
            )
        return (
            f"{self._path} has no header, and what its columns are cannot be told for sure "
            f"(first row: {(line or lines[0]).strip()[:120]!r}); name them with --columns as nvidia-smi does: {_EXAMPLE}"
        )

    # -- rows ---------------------------------------------------------------------------------------------------------------
    def _take(self, table: Table, number: int, line: str, *, cut: bool) -> None:
        if cut:
            whole = table.whole(line)
            if whole is None:
                self._problem(number, "the line is cut off")
                return
            line, complete = whole
            if not complete:
                self._note(f"line {number} has no line end: its last value may be cut off and is left out")
        self._lines.append(line)
        self._numbers.append(number)

    def _flush(self) -> Iterator[Frame]:
        """The frames of the rows that wait."""
        lines, numbers = self._lines, self._numbers
        self._lines, self._numbers = [], []
        while lines and self._table is not None:
            table = self._table
            rows = table.read(lines)
            header = None
            end = len(lines)
            for n in sorted(rows.bad):
                if (header := self._new_header(lines[n])) is not None:
                    end = n
                    break
                if self._options.columns is None or not is_names(lines[n]):
                    self._problem(numbers[n], rows.bad[n])
            yield from self._ticks.take(table, rows, end)
            if header is not None:
                self._use(lines[end], *header)
            lines, numbers = lines[end + 1 :], numbers[end + 1 :]
            if lines and not self._table.settled:
                self._table.settle(lines[:SAMPLE])
                lines = lines if self._table.settled else []

    def _odd(self, number: int, line: str) -> Iterator[Frame]:
        """A line that is no row of the table."""
        if (header := self._new_header(line)) is not None:
            yield from self._flush()
            self._use(line, *header)
        elif (fault := fault_of(line)) is not None:
            yield from self._flush()
            yield from self._ticks.blind(fault)
        elif is_sentence(line) or (self._options.columns and is_names(line)):
            return
        elif self._table is None:
            self._problem(number, "stands before the header")
        elif self._table.delimiter in line:
            self._problem(number, f"not the {self._table.width} fields that the header names: torn?")
        else:
            self._problem(number, "a line that is no row")
