"""What a page of nvidia-smi shows, whichever way it is printed, and the frames that follow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from detector.frame import Device, Fault, Frame, Process
from detector.metrics import METRICS
from detector.sources.columns import BAD, Cells, missing_reason
from detector.sources.format import Problems, ReadOptions
from detector.sources.identity import Devices, pci_address
from detector.sources.pages import Entry, Pages
from detector.sources.sentences import fault_of
from detector.sources.smi_fields import Fields
from detector.sources.timestamps import Timestamps

_UUID: Final = re.compile(r"GPU-(?!0{8}-0{4}-)[\w-]+", re.IGNORECASE)
_PID: Final = ("process_id", "pid")
_NAME: Final = ("name", "process_name")
_MEMORY: Final = ("used_gpu_memory", "used_memory")

Said = dict[str, str]
"""What a section says: place -> text."""


@dataclass(slots=True)
class Gpu:
    """One GPU of a page."""

    line: int
    bus: str
    said: Said = field(default_factory=dict)
    instances: list[Said] = field(default_factory=list)
    """Its MIG instances."""
    processes: list[Said] | None = None
    """None: the page does not say."""
    index: int | None = None


@dataclass(slots=True)
class Page:
    """One look at a host."""

    line: int
    stamp: str = ""
    """Its time as it is printed; empty: none."""
    driver: str | None = None
    attached: int | None = None
    """How many GPUs the page says there are."""
    gpus: list[Gpu] = field(default_factory=list)
    cut: bool = False
    """The end of the page is missing."""


class SmiPages:
    """Makes frames of pages, and problems of what is wrong with them."""

    def __init__(self, path: Path, options: ReadOptions, problems: Problems) -> None:
        self._path = path
        self._problems = problems
        self._pages = Pages(options)
        self._step = options.interval or 1.0
        self._times = Timestamps(options.timezone)
        self._devices = Devices()
        self._fields = Fields()
        self._memory = Cells(METRICS["process_memory_used_bytes"], None)

    def frames(self, page: Page) -> Iterator[Frame]:
        """The frame of a page; none where it shows no GPU."""
        whole = not self._damage(page)
        if not page.gpus:
            return
        entries: list[Entry] = []
        for n, gpu in enumerate(page.gpus):
            entries += self._gpu(gpu, n, whole)
        yield from self._pages.page(entries, self._at(page), driver=page.driver, whole=whole)

    def sentence(self, line: str, stamp: str = "") -> Iterator[Frame]:
        """The frame of a line where nvidia-smi says that it can see nothing, if that is what it says."""
        fault = fault_of(line)
        if fault is not None:
            if fault.uuid is not None:
                fault = replace(fault, uuid=self._devices.best(None, fault.uuid))
            at = self._times.read(stamp) if stamp else float("nan")
            yield from self._pages.blind(fault, at if at == at else None)

    def end(self) -> Iterator[Frame]:
        """Frames that waited for a time that does not come."""
        return self._pages.end()

    def problem(self, line: int, text: str) -> None:
        self._problems.add(self._path, line, text)

    def note(self, text: str) -> None:
        self._problems.note(f"{self._path}: {text}")

    def _damage(self, page: Page) -> bool:
        """Whether GPUs may be missing from the page for its own sake."""
        shown = len(page.gpus)
        if page.attached is not None and shown < page.attached:
            why = "cut off, or asked about some only; the others count as not looked at"
            self.problem(page.line, f"the page shows {shown} of {page.attached} attached GPUs: {why}")
            return True
        if page.cut:
            self.problem(page.line, "the page is cut off; what it does not show counts as not looked at")
        return page.cut

    def _at(self, page: Page) -> float | None:
        if not page.stamp:
            self.note(f"pages without a time count as {self._step:g} s apart, --interval would say otherwise")
            return None
        at = self._times.read(page.stamp)
        if at == at:
            return at
        self.problem(page.line, "the time of the page cannot be read; it is placed behind the page before it")
        return None

    # -- devices ------------------------------------------------------------------------------------------------------------
    def _gpu(self, gpu: Gpu, place: int, whole: bool) -> Iterator[Entry]:
        """What the page says of a GPU, and of its instances. GPUs stand in the order of their index, so on a whole page its place tells."""
        said = gpu.said
        uuid = _word(said, "gpu_uuid", "uuid")
        if uuid is not None and not _UUID.fullmatch(uuid):
            uuid = None
        index, bus = gpu.index if gpu.index is not None else place, pci_address(gpu.bus)
        device = self._devices.find(None, uuid, bus, None if uuid or bus else index, _word(said, "product_name"))
        device = replace(device, index=index if whole or gpu.index is not None else None)
        instances = {self._ids(one): one for one in gpu.instances}
        processes = None if gpu.processes is None else self._processes(gpu, gpu.processes)
        own = None if processes is None or instances else [process for _, process in processes]
        entry = self._entry(gpu, device, said, own)
        yield entry
        if entry.fault is not None and entry.fault.kind == "gpu_lost":
            return
        for ids, one in instances.items():
            instance = Device(
                # The form that NVIDIA's guide to MIG documents for drivers before 470; pages still do not name instances otherwise.
                uuid=_word(one, "gpu_uuid", "uuid", "mig_device_uuid") or f"MIG-{device.uuid}/{ids[0]}/{ids[1]}",
                index=_number(one, "index"),
                name=device.name,
                pci_bus_id=device.pci_bus_id,
                parent=device.uuid,
            )
            on_it = None if processes is None else [process for where, process in processes if where == ids]
            yield self._entry(gpu, instance, one, on_it)

    def _entry(self, gpu: Gpu, device: Device, said: Mapping[str, str], processes: Sequence[Process] | None) -> Entry:
        reading = self._fields.read(said, instance=device.kind == "mig")
        for metric in reading.bad:
            self.problem(gpu.line, f"what stands in the place of {metric} is no reading of it: torn?")
        fault = None if reading.fault is None else Fault(reading.fault, device.uuid)
        return Entry(device, reading.readings, reading.unavailable, processes, fault)

    def _ids(self, said: Mapping[str, str]) -> tuple[int, int]:
        return _number(said, "gpu_instance_id") or 0, _number(said, "compute_instance_id") or 0

    def _processes(self, gpu: Gpu, listed: Sequence[Said]) -> list[tuple[tuple[int, int], Process]]:
        """Processes, each with the instance that it runs on; (0, 0) is also the whole GPU."""
        out = []
        for said in listed:
            pid = _number(said, *_PID)
            if pid is None:
                self.problem(gpu.line, "a process without a process id")
                continue
            memory = self._memory[text] if (text := _word(said, *_MEMORY)) is not None and not text[-1].isdigit() else float("nan")
            process = Process(pid, memory_used_bytes=memory if memory == memory and memory != BAD else None, command=_word(said, *_NAME))
            out.append((self._ids(said), process))
        return out


def _word(said: Mapping[str, str], *places: str) -> str | None:
    """What stands in the first of *places* that says something."""
    return next((text for place in places if (text := said.get(place)) is not None and missing_reason(text) is None), None)


def _number(said: Mapping[str, str], *places: str) -> int | None:
    text = _word(said, *places)
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else None
