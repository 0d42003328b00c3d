"""The table that plain `nvidia-smi` prints, in a loop or with `-l`: one page a look, as drivers draw it since 2013."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from detector.frame import Frame
from detector.sources.columns import missing_reason
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.identity import pci_address
from detector.sources.pages import evenly, numbered
from detector.sources.sentences import is_sentence
from detector.sources.smi_page import Gpu, Page, Said, SmiPages
from detector.sources.text import Text
from detector.sources.timestamps import Timestamps

_TITLE: Final = re.compile(r"^\|[ \t]+NVIDIA-SMI[ \t]+\d[^\n|]*\|[ \t]*$", re.MULTILINE)
_DRIVER: Final = re.compile(r"Driver Version:\s*(\d[\d.]*)")
_LONGEST: Final = 1000

_NAMED: Final = re.compile(r"\s*(\d{1,3})\s+(\S.*?)\s+(On|Off|WDDM|TCC|MCDM|N/A|ERR!)\s*")
"""Index, name, and persistence mode or the driver model of Windows."""
_CELL: Final = r"(Unknown Error|\S+)"
_GAUGES: Final = re.compile(rf"\s*{_CELL}\s+{_CELL}\s+{_CELL}\s+{_CELL}\s*/\s*{_CELL}\s*")
"""Fan, temperature, performance state, power and its limit."""
_SHARE: Final = re.compile(rf"\s*{_CELL}\s*/\s*{_CELL}\s*")
_INSTANCE: Final = re.compile(r"\s*(\d{1,3})\s+(\d+)\s+(\d+)\s+(\d+)\s*")
"""GPU, GPU instance, compute instance, number."""
_PROCESS: Final = re.compile(
    r"\s*(\d{1,3})\s+(?:(\d+|N/A)\s+(\d+|N/A)\s+)?(\d+)\s+(?:[CGM](?:\+[CGM])*\s+)?(?:(\S.*?)\s+)?(\d+\s*Mi?B|N/A|Not Supported|\[N/A\])\s*"
)
"""GPU, its instances (from driver 450 on), process id, name, memory."""
_NONE: Final = re.compile(r"\s*No running (?:compute )?processes found\s*", re.IGNORECASE)
_HIDDEN: Final = re.compile(r"\s*(\d{1,3})\s+(?:Not Supported|ERROR.*)\s*", re.IGNORECASE)
_MODES: Final = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}

_Section = Literal["gpus", "instances", "processes"]
_SECTIONS: Final[tuple[tuple[re.Pattern[str], _Section], ...]] = (
    (re.compile(r"\|\s+GPU\s+Name\b"), "gpus"),
    (re.compile(r"\|\s+MIG devices:"), "instances"),
    (re.compile(r"\|\s+(?:Compute processes|Processes):"), "processes"),
)


def sniff(head: str) -> bool:
    return _TITLE.search(head) is not None


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame a table."""
    return evenly(_Reader(text, options, problems).frames())


FORMAT: Final = Format("nvidia-smi-table", sniff, read)


class _Reader:
    """Goes through the boxes of a table. Rows of a box follow its line of `=`."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._text = text
        self._pages = SmiPages(text.path, options, problems)
        self._clock = Timestamps("UTC")
        self._stamp = ""
        """The newest line that is a time; a table follows it."""
        self._page: Page | None = None
        self._section: _Section | None = None
        self._rows = False
        self._gpu: Gpu | None = None
        """The one that the next row goes on about."""
        self._under_border = False
        """The line before this one is a border: the rows above it are complete."""
        self._hidden: set[int] = set()
        """GPUs whose processes are not shown."""
        self._listed: dict[int, list[Said]] = {}
        self._lists = False
        """The page lists processes, or says that there are none."""

    def frames(self) -> Iterator[Frame]:
        for number, line, _ in numbered(self._text):
            line = line.strip()
            if line.startswith("|"):
                yield from self._row(number, line)
            elif line.startswith("+"):
                yield from self._border()
            else:
                self._leave_box()
                if line:
                    yield from self._between(line)
        yield from self._close()
        yield from self._pages.end()

    def _between(self, line: str) -> Iterator[Frame]:
        """A line outside of all boxes."""
        if len(line) < _LONGEST and self._clock.style(line) in ("naive", "absolute"):
            yield from self._close()
            self._stamp = line
        elif is_sentence(line):
            yield from self._close()
            yield from self._pages.sentence(line, self._stamp)
            self._stamp = ""
        else:
            self._pages.note("lines between the tables are left out")

    # -- boxes --------------------------------------------------------------------------------------------------------------
    def _row(self, number: int, line: str) -> Iterator[Frame]:
        self._under_border = False
        if len(line) > _LONGEST:
            self._pages.problem(number, "longer than any row of the table: torn?")
        elif _TITLE.fullmatch(line):
            yield from self._close()
            driver = _DRIVER.search(line)
            self._page = Page(number, self._stamp, driver[1] if driver else None, cut=True)
            self._stamp = ""
        elif self._page is None:
            self._pages.problem(number, "a row before the head of its table")
        elif line.startswith("|="):
            self._rows = self._section is not None
        elif (section := next((name for opening, name in _SECTIONS if opening.match(line)), None)) is not None:
            self._section, self._rows, self._gpu = section, False, None
            if section != "gpus":
                self._page.cut = False
        elif self._rows and not self._take(self._page, number, line):
            self._pages.problem(number, "a row of the table that cannot be read: torn?")

    def _take(self, page: Page, number: int, line: str) -> bool:
        """Whether the row says something that is understood."""
        if not line.endswith("|"):
            return False
        cells = line[1:-1].split("|")
        if self._section == "processes":
            return self._take_process(line[1:-1])
        if self._section == "instances":
            return len(cells) == 1 or self._take_instance(page, cells)
        return len(cells) == 3 and self._take_gpu(page, number, cells)

    def _border(self) -> Iterator[Frame]:
        """A line under rows. Under processes it is the end of the table."""
        self._gpu, self._under_border = None, True
        if self._section == "processes" and self._rows:
            yield from self._close()

    def _leave_box(self) -> None:
        """Something else follows: all rows of the box have been seen."""
        if self._section == "gpus" and self._rows and self._under_border and self._page is not None and self._page.gpus:
            self._page.cut = False
        self._rows = False

    def _close(self) -> Iterator[Frame]:
        """The frame of the table, as far as it has come."""
        page, self._page = self._page, None
        if page is not None:
            if self._lists or self._listed:
                for gpu in page.gpus:
                    if gpu.index not in self._hidden and gpu.index is not None:
                        gpu.processes = self._listed.get(gpu.index, [])
            yield from self._pages.frames(page)
        self._section, self._rows, self._gpu, self._lists = None, False, None, False
        self._hidden, self._listed = set(), {}

    # -- rows ---------------------------------------------------------------------------------------------------------------
    def _take_gpu(self, page: Page, number: int, cells: Sequence[str]) -> bool:
        """A GPU has two rows, or three where the driver knows MIG."""
        if (named := _NAMED.fullmatch(cells[0])) is not None:
            gpu = self._gpu = Gpu(number, cells[1].split()[0] if cells[1].strip() else "", index=int(named[1]))
            page.gpus.append(gpu)
            gpu.said["product_name"] = named[2]
            if named[3] in ("On", "Off"):
                gpu.said["persistence_mode"] = named[3]
            _take_ecc(gpu.said, cells[2].strip())
            return pci_address(gpu.bus) is not None
        if self._gpu is None:
            return False
        if not cells[0].strip():
            mode = cells[2].strip()
            self._gpu.said["mig_mode/current"] = mode.rstrip("*")
            return True
        return _take_gauges(self._gpu.said, cells)

    def _take_instance(self, page: Page, cells: Sequence[str]) -> bool:
        share = _SHARE.fullmatch(cells[1])
        if share is None:
            return False
        if (ids := _INSTANCE.fullmatch(cells[0])) is None:  # the second row, about BAR1
            return not cells[0].strip()
        gpu = next((gpu for gpu in page.gpus if gpu.index == int(ids[1])), None)
        if gpu is None:
            return False
        said = {"gpu_instance_id": ids[2], "compute_instance_id": ids[3], "index": ids[4]}
        gpu.instances.append({**said, "fb_memory_usage/used": share[1], "fb_memory_usage/total": share[2]})
        return True

    def _take_process(self, row: str) -> bool:
        if _NONE.fullmatch(row):
            self._lists = True
        elif (hidden := _HIDDEN.fullmatch(row)) is not None:
            self._hidden.add(int(hidden[1]))
        elif (told := _PROCESS.fullmatch(row)) is not None:
            names = ("gpu_instance_id", "compute_instance_id", "process_id", "name", "used_gpu_memory")
            said = {name: text for name, text in zip(names, told.groups()[1:], strict=True) if text is not None}
            self._listed.setdefault(int(told[1]), []).append(said)
        else:
            return False
        return True


def _take_ecc(said: Said, cell: str) -> None:
    """The column counts uncorrected errors, or says whether ECC is on."""
    if cell.isdecimal():
        said["ecc_errors/volatile/double_bit/total"], said["ecc_mode/current"] = cell, "On"
    elif cell in ("On", "Off"):
        said["ecc_mode/current"] = cell
    else:
        said["ecc_errors/volatile/double_bit/total"] = cell


def _take_gauges(said: Said, cells: Sequence[str]) -> bool:
    """The second row of a GPU."""
    gauges, memory = _GAUGES.fullmatch(cells[0]), _SHARE.fullmatch(cells[1])
    load, _, mode = cells[2].strip().partition(" ")
    if cells[2].strip().startswith("Unknown Error"):
        load, mode = "Unknown Error", cells[2].strip().removeprefix("Unknown Error")
    if gauges is None or not load:
        return False
    said["fan_speed"], said["temperature/gpu"], said["performance_state"] = gauges[1], gauges[2], gauges[3]
    said["gpu_power_readings/power_draw"], said["gpu_power_readings/current_power_limit"] = gauges[4], gauges[5]
    said["utilization/gpu"] = load
    if mode.strip():
        said["compute_mode"] = _MODES.get(mode.strip(), mode.strip())
    if memory is not None:
        said["fb_memory_usage/used"], said["fb_memory_usage/total"] = memory[1], memory[2]
    return memory is not None or missing_reason(cells[1]) is not None
