"""What `nvidia-smi -q` prints, whole or some sections of it (`-d`), once or in a loop: one page a look."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from detector.frame import Frame
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.identity import pci_address
from detector.sources.pages import evenly, numbered
from detector.sources.sentences import is_sentence
from detector.sources.smi_fields import PLACES
from detector.sources.smi_page import Gpu, Page, SmiPages
from detector.sources.text import Text

_TITLE: Final = re.compile(r"={5,40}NVSMI LOG={5,40}")
_GPU: Final = re.compile(r"GPU +((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*")
_FIRST: Final = 60
"""A page begins in so many lines: far down it is a part of something else, such as a bug report with the kernel's log."""
_IDENTITY: Final = frozenset({"gpu_uuid", "product_name"})
_INSTANCE: Final = frozenset({"index", "gpu_instance_id", "compute_instance_id", "mig_device_uuid", "uuid", "gpu_uuid"})
_PROCESS_LISTS: Final = ("processes", "compute_processes")
_MOST_GPUS: Final = 1024


def sniff(head: str) -> bool:
    lines = list(islice((line for line in head.splitlines() if line.strip()), _FIRST))
    return any(
        _TITLE.search(line) is not None or (_GPU.fullmatch(line) is not None and following.startswith("    "))
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
    )


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """A frame a page."""
    return evenly(_Reader(text, options, problems).frames())


FORMAT: Final = Format("nvidia-smi-query", sniff, read)


class _Reader:
    """Follows the sections of a page by their indentation."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._text = text
        self._pages = SmiPages(text.path, options, problems)
        self._page: Page | None = None
        self._gpu: Gpu | None = None
        self._sections: list[tuple[int, str]] = []
        """Indentation and name of those that the line is in."""

    def frames(self) -> Iterator[Frame]:
        for number, line, complete in numbered(self._text):
            if "NVSMI LOG" in line and (title := _TITLE.search(line)) is not None:  # also where a torn line runs into it
                yield from self._turn(number)
                line = line[title.end() :]
            if not line or line.isspace() or not complete:  # the value of a line without an end may have lost its tail
                continue
            if (gpu := _GPU.fullmatch(line)) is not None:
                yield from self._begin(number, gpu[1])
            elif line[0] != " ":
                yield from self._outside(number, line)
            elif self._gpu is not None:
                self._inside(self._gpu, line)
            else:
                self._pages.note("lines that belong to no GPU are left out")
        yield from self._turn(0)
        yield from self._pages.end()

    def _turn(self, number: int) -> Iterator[Frame]:
        """Close the page, and open the next."""
        if self._page is not None:
            yield from self._pages.frames(self._page)
        self._page, self._gpu = Page(number) if number else None, None

    def _begin(self, number: int, bus: str) -> Iterator[Frame]:
        bus = pci_address(bus) or bus
        if self._page is None or len(self._page.gpus) >= _MOST_GPUS or any(gpu.bus == bus for gpu in self._page.gpus):
            yield from self._turn(number)
        assert self._page is not None
        self._gpu = Gpu(number, bus)
        self._page.gpus.append(self._gpu)
        self._sections = []

    def _outside(self, number: int, line: str) -> Iterator[Frame]:
        """A line of the page's own, or one between pages."""
        key, value = _field(line)
        if value is None or key not in ("timestamp", "driver_version", "cuda_version", "attached_gpus"):
            if is_sentence(line):
                yield from self._turn(0)
                yield from self._pages.sentence(line)
            else:
                self._pages.note("lines that belong to no GPU are left out")
            return
        if self._page is None or self._page.gpus or (key == "timestamp" and self._page.stamp):
            yield from self._turn(number)
        assert self._page is not None
        if key == "timestamp":
            self._page.stamp = value
        elif key == "driver_version":
            self._page.driver = value
        elif key == "attached_gpus" and value.isdecimal():
            self._page.attached = int(value[:6])

    def _inside(self, gpu: Gpu, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        name, value = _field(line)
        while self._sections and self._sections[-1][0] >= indent:
            self._sections.pop()
        parents = [section for _, section in self._sections]
        self._sections.append((indent, name))
        if not parents and name == "mig_device":
            gpu.instances.append({})
        elif not parents and name in _PROCESS_LISTS:
            if value is None or value.lower() == "none":
                gpu.processes = gpu.processes or []
        elif value is None:
            return
        elif not parents and name in _IDENTITY:
            gpu.said[name] = value
        elif parents and parents[0] in _PROCESS_LISTS:
            self._process(gpu, name, value)
        elif parents and parents[0] == "mig_device":
            place = "/".join((*parents[1:], name))
            if place in PLACES or place in _INSTANCE:
                gpu.instances[-1][place] = value
        elif (place := "/".join((*parents, name))) in PLACES:
            gpu.said[place] = value

    def _process(self, gpu: Gpu, name: str, value: str) -> None:
        """Processes follow one another without a line between them: one that repeats what is known begins the next."""
        listed = gpu.processes = gpu.processes if gpu.processes is not None else []
        if not listed or name in listed[-1]:
            listed.append({})
        listed[-1][name] = value


def _field(line: str) -> tuple[str, str | None]:
    """Name and value; a section has no value."""
    name, colon, value = line.partition(" :")
    return name.strip().lower().replace(" ", "_"), value.strip() if colon else None
