"""What the NVIDIA driver says in the kernel log: Xids, GPUs that are lost, and which address is which GPU.

Logs of support archives are copies of copies, in any order. So what matters is collected, put in the order of time and told once: a
line that stands in two styles within a second is one event, and so is one that only counts from boot where a dated one says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Literal

from detector.errors import SourceError
from detector.frame import Event, Frame
from detector.sources.format import LOCALHOST, Format, Problems, ReadOptions
from detector.sources.identity import pci_address
from detector.sources.kernel_stamps import LINE, SAID, UNSTAMPED, UPTIME, Clock, Said
from detector.sources.text import Block, Text

_WORDS: Final = ("NVRM", "GPU-", "Linux version ", "device handle")
"""A line with none of them is of no concern."""
_XID: Final = re.compile(r"NVRM: (?:GPU at )?Xid(?: \((?P<gpu>[^)]*)\))?: (?P<code>\d{1,4})(?P<rest>,.*|$)", re.DOTALL)
_UNKNOWN: Final = re.compile(r"(?:pid='?<unknown>'?, )?(?:name=<unknown>, )?")
_UUID: Final = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ADDRESS: Final = re.compile(
    r"(?<![0-9a-f])(?<![0-9a-f]:)[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?(?![0-9a-f]|:[0-9a-f])", re.IGNORECASE
)
_OLD_ADDRESS: Final = re.compile(r"[0-9a-f]{2}([0-9a-f]{2}:[0-9a-f]{2})", re.IGNORECASE)
"""Bus and slot, as drivers before 190 wrote them: `0003:00`."""
_LOST: Final = re.compile(r"fallen off the bus|RmInitAdapter failed|Unable to determine the device handle for GPU")
_LOADED: Final = re.compile(r"NVRM: loading NVIDIA UNIX .*?Kernel Module(?: for \S+)?\s+(\d+\.[\d.]+)")
_BOOT: Final = re.compile(r"-- (?:Boot (?P<id>[0-9a-f]{32})|Reboot) --")
_BANNER: Final = re.compile(r"Linux version \d")
_DMESG: Final = re.compile(r"\S+T\S+,\d{6}\S+")
_KERNEL: Final = re.compile(r"Linux version \d|\bnvidia\b|\bpcieport |\bsegfault at |\baudit: |\busb \d|\bACPI: |systemd\[1\]")

_TOGETHER: Final = 1.0
"""Copies of a line differ by up to so many seconds, as some are cut to whole ones."""
_ONE_LOSS: Final = 2.0
_ONE_BOOT: Final = 60.0
"""A kernel that starts and the driver that is loaded soon after are one boot."""
_BATCH: Final = 100_000
"""So many lines of concern are put in order at a time, which bounds the memory; hardly a log has more."""
_OFF_THE_BUS: Final = 79
_MEMORY: Final = 10_000
"""So many lines are remembered before those are forgotten that are too old to have copies."""
_NEAR: Final = 20
"""So many lines from either end of a block are looked at for one of the kernel's."""


def sniff(head: str) -> bool:
    """Lines as the kernel logs them, or any that the driver wrote into some log."""
    return any(_is_kernel_line(line) for line in head.splitlines()[:2000])


def _is_kernel_line(line: str) -> bool:
    match = LINE.match(line)
    if match is None:
        return line.lstrip().startswith("NVRM: ")
    rest = match["rest"]
    if "NVRM: " in rest or match["facility"] or SAID.match(rest) or (match["uptime"] and len(match["uptime"].partition(".")[2]) == 6):
        return True
    # Others write such times too: dmesg's are believed where the words are the kernel's.
    return bool(match["ctime"] or _DMESG.fullmatch(match["full"] or "")) and _KERNEL.search(rest) is not None


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """Frames in the order of time: of each moment at which something happened or a boot began, and of some at which nothing did."""
    reader = _Reader(text, options, problems)
    for block in text.blocks():
        reader.block(block)
        if len(reader.batch) >= _BATCH:
            yield from reader.frames()
    yield from reader.frames()


FORMAT: Final = Format("kernel-log", sniff, read)


@dataclass(slots=True)
class _Entry:
    """A line of concern."""

    style: str
    at: float
    host: str | None
    kind: Literal["xid", "gpu_lost", "boot", "nothing"]
    about: str | None = None
    """The GPU, by its bus address until its uuid is known; None: the line does not say."""
    code: int | None = None
    message: str = ""
    boot_id: str | None = None
    driver_version: str | None = None

    @property
    def key(self) -> tuple[str | None, str, int | None, str]:
        """What it says, whenever and however it says so."""
        return self.about, self.kind, self.code, self.message


class _Reader:
    """Collects what a log says, a batch of lines at a time."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._path = text.path
        self._problems = problems
        try:
            self._modified = text.path.stat().st_mtime
        except OSError as error:
            raise SourceError(f"{text.path} cannot be read: {error.strerror or error}") from None
        self._clock = Clock(options.timezone, self._modified)
        self._story = _Story()
        self._host = options.host or LOCALHOST
        """Of lines that name none: of a file that names one anywhere, it."""
        self._uuids: dict[str, str] = {}
        self._about: str | None = None
        self._boots = 0
        self._boot_ahead: re.Match[str] | None = None
        self._shift: float | None = None
        self._newest: float | None = None
        self.batch: list[_Entry] = []

    def block(self, block: Block) -> None:
        """Take the lines that matter, and the ends of a block: they say that the log goes on, though nothing happens."""
        edges = (_kernel_line(block.lines, 1), _kernel_line(block.lines, -1))
        for n, line in enumerate(block.lines):
            if n in edges or self._boot_ahead or any(word in line for word in _WORDS):
                entry = self._line(block.number + n, line, whole=block.complete or n + 1 < len(block.lines))
                if entry.kind != "nothing" or n in edges:
                    self.batch.append(entry)
            elif line.startswith("-- "):
                self._boot_ahead = _BOOT.match(line)

    def frames(self) -> Iterator[Frame]:
        """What was collected, in order."""
        batch, self.batch = self.batch, []
        for entry in batch:
            entry.host = entry.host or self._host
            entry.about = entry.about and self._uuids.get(entry.about, entry.about)
        yield from self._story.tell(self._placed(batch))

    def _line(self, number: int, line: str, whole: bool) -> _Entry:
        said = self._clock.read(line)
        self._host = said.host or self._host
        entry = self._entry(number, said, whole)
        if (self._boot_ahead and LINE.match(line)) or self._clock.boots != self._boots:
            boot_id = self._boot_ahead["id"] if self._boot_ahead else None
            self.batch.append(_Entry(said.style, said.at, said.host, "boot", boot_id=boot_id))
            self._boot_ahead, self._boots = None, self._clock.boots
        return entry

    def _entry(self, number: int, said: Said, whole: bool) -> _Entry:
        """What the line says, beside which GPU it named, which those after it may be about."""
        text = said.text
        address, uuid = _ADDRESS.search(text), _UUID.search(text)
        about = self._about
        if address and ("NVRM" in text or "device handle" in text or uuid):
            about = self._about = f"PCI-{pci_address(address[0])}"
            if uuid:
                self._uuids[about] = uuid[0]
        if (xid := _XID.search(text)) and (whole or xid["rest"]):
            message = _UNKNOWN.sub("", xid["rest"].lstrip(", "), count=1).strip()
            return _Entry(said.style, said.at, said.host, "xid", _gpu(xid["gpu"] or "") or about, int(xid["code"]), message)
        if "NVRM: Xid" in text:
            self._problems.add(self._path, number, "an Xid that cannot be read; torn or cut off?")
        if _LOST.search(text):
            return _Entry(said.style, said.at, said.host, "gpu_lost", about, message=text.removeprefix("NVRM: ").strip())
        if (loaded := _LOADED.search(text)) or _BANNER.match(text):
            return _Entry(said.style, said.at, said.host, "boot", driver_version=loaded[1] if loaded else None)
        return _Entry(said.style, said.at, said.host, "nothing")

    # -- time -------------------------------------------------------------------------------------------------------------------
    def _placed(self, batch: list[_Entry]) -> list[_Entry]:
        """The entries in the order of time. Those that only count from boot end where the dated ones do, or with the file."""
        dated = [entry for entry in batch if entry.style not in (UPTIME, UNSTAMPED)]
        loose = [entry for entry in batch if entry.style in (UPTIME, UNSTAMPED)]
        if dated:
            self._newest = max(self._newest or 0.0, *(entry.at for entry in dated))
        if self._newest is not None:
            known = {entry.key for entry in dated}
            loose = [entry for entry in loose if entry.kind in ("xid", "gpu_lost") and entry.key not in known]
        if loose:
            self._place(loose)
        self._tell_guesses(bool(loose))
        return sorted(dated + loose, key=lambda entry: entry.at)

    def _place(self, loose: list[_Entry]) -> None:
        end = self._modified if self._newest is None else self._newest
        if self._shift is None:
            self._shift = end - max(entry.at for entry in loose)
        for entry in loose:
            entry.at += self._shift

    def _tell_guesses(self, loose: bool) -> None:
        if self._clock.guessed_year is not None:
            self._problems.note(f"{self._path}: its times have no year: the file's, {self._clock.guessed_year}, is taken")
        if loose:
            end = "as late as the file itself" if self._newest is None else "as late as the last dated one"
            self._problems.note(f"{self._path}: some lines have no date: the last of them is taken to be {end}")


class _Story:
    """Tells what happened, in order, each thing once."""

    def __init__(self) -> None:
        self._told: dict[tuple[object, ...], tuple[float, str]] = {}
        """host and what was said -> when and in which style last."""
        self._full = _MEMORY
        self._lost_at: dict[tuple[str | None, str | None], float] = {}
        self._booted_at: dict[str | None, float] = {}

    def tell(self, entries: list[_Entry]) -> Iterator[Frame]:
        for (at, host), some in groupby(entries, key=lambda entry: (entry.at, entry.host)):
            events, boot_id, driver_version = [], None, None
            for entry in some:
                if entry.kind == "boot":
                    driver_version = entry.driver_version or driver_version
                    boot_id = entry.boot_id or f"kernel log, {at:.0f}" if self._is_boot(entry) else boot_id
                elif entry.kind != "nothing" and self._is_news(entry):
                    events.append(Event(entry.kind, entry.about, at, entry.code, entry.message, "kernel_log"))
            if boot_id is not None:
                # A boot only shows where its id is another than the one before, which no log tells.
                yield Frame(host or LOCALHOST, at, boot_id=f"before {boot_id}")
            yield Frame(host or LOCALHOST, at, events=tuple(events), boot_id=boot_id, driver_version=driver_version)

    def _is_boot(self, entry: _Entry) -> bool:
        began = entry.at - self._booted_at.get(entry.host, -_ONE_BOOT) >= _ONE_BOOT
        if began:
            self._booted_at[entry.host] = entry.at
        return began

    def _is_news(self, entry: _Entry) -> bool:
        """Neither a copy of a line nor another line of one message about a lost GPU."""
        key = (entry.host, *entry.key)
        at, style = self._told.get(key, (-_TOGETHER - 1.0, ""))
        if entry.at == at or (style != entry.style and entry.at - at <= _TOGETHER):
            return False
        if len(self._told) >= self._full:
            self._told = {told: last for told, last in self._told.items() if entry.at - last[0] <= _TOGETHER}
            self._full = max(_MEMORY, 2 * len(self._told))
        self._told[key] = entry.at, entry.style
        gpu = (entry.host, entry.about)
        lost_before = entry.at - self._lost_at.get(gpu, -_ONE_LOSS - 1.0) <= _ONE_LOSS
        if entry.kind == "gpu_lost" or entry.code == _OFF_THE_BUS:
            self._lost_at[gpu] = entry.at
        return entry.kind != "gpu_lost" or not lost_before


def _kernel_line(lines: list[str], step: Literal[1, -1]) -> int | None:
    """The place of the first, or last, line that the kernel logged, if it is near that end."""
    near = range(len(lines))[::step][:_NEAR]
    return next((n for n in near if LINE.match(lines[n]) and _is_kernel_line(lines[n])), None)


def _gpu(about: str) -> str | None:
    """The GPU that stands in the brackets of an Xid: `PCI:0000:3b:00`, `0003:00`, with an instance behind it, or a uuid."""
    if address := _ADDRESS.search(about):
        return f"PCI-{pci_address(address[0])}"
    if old := _OLD_ADDRESS.fullmatch(about.removeprefix("PCI:")):
        return f"PCI-{pci_address(old[1])}"
    uuid = _UUID.search(about)
    return uuid[0] if uuid else None
