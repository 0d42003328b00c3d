"""Scrapes of dcgm-exporter (or nvidia_gpu_exporter) in a file: Prometheus text, with or without a time behind each sample.

With times, samples of one host and moment are a frame; a file that stands series by series, as a database is dumped, is sorted first.
Without, a page is one look: it ends where a series or a HELP line comes a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from detector.frame import Frame
from detector.sources import prometheus_text
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.scrapes import Pile, Scrapes
from detector.sources.series import PREFIXES, Directory, Series
from detector.sources.text import Text
from detector.sources.timestamps import UNDATED

_OURS: Final = "|".join(PREFIXES)
_SNIFFED: Final = re.compile(rf'^[ \t]*(?:# (?:HELP|TYPE) )?(?:\{{__name__=")?(?:{_OURS})\w*["{{ ]', re.MULTILINE)
_OTHERS: Final = re.compile(rf"\s*(?!{_OURS})[A-Za-z_:][\w:]*\s*(?:\{{|$)")
"""The name of a series that is not about GPUs, whatever follows it."""
_TORN: Final = "not a sample; torn or cut off?"
_MEMO_LIMIT: Final = 50_000
"""So many series are remembered at once; pods and error codes make new ones for ever."""


def sniff(head: str) -> bool:
    return _SNIFFED.search(head) is not None


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """Frames in the order of time, as far as the file's own is near to it. A line that is no sample is a problem."""
    reader = _Reader(text, options, problems)
    yield from reader.frames()


FORMAT: Final = Format("dcgm", sniff, read)


class _Looks:
    """The time of what bears none: a second, or --interval, between two looks at a host."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._seen: set[str] = set()
        self._page = 0
        self._looks: dict[str, tuple[int, int]] = {}
        """host -> the page it was last on, and on how many it was before."""

    def saw(self, line: str) -> None:
        """A series or a HELP line, which stand on a page once."""
        if line in self._seen:
            self._seen.clear()
            self._page += 1
        self._seen.add(line)

    def at(self, host: str) -> float:
        page, looks = self._looks.get(host, (self._page, 0))
        if page != self._page:
            looks += 1
        self._looks[host] = self._page, looks
        return UNDATED + looks * self._step


class _Reader:
    """Knows each series by its text, which comes again with every scrape."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._directory = Directory(options.host)
        self._dated, disorderly = _arrangement(text.head)
        self._scrapes = Scrapes(self._directory, self._dated)
        self._looks = _Looks(options.interval or 1.0)
        self._pile = Pile() if disorderly else None
        self._known: dict[str, Series | None] = {}

    def frames(self) -> Iterator[Frame]:
        for block in self._text.blocks():
            last = None if block.complete else block.number + len(block.lines) - 1
            for number, line in enumerate(block.lines, block.number):
                if line and not line.isspace():
                    self._line(number, line, number == last)
            yield from self._scrapes.drain()
        if self._pile is not None:
            yield from self._pile.frames(self._scrapes)
        yield from self._scrapes.close()

    def _line(self, number: int, line: str, endless: bool) -> None:
        """Take a line; *endless*: it has no line end."""
        told = prometheus_text.split(line)
        if told is None:
            self._no_sample(number, line.strip())
            return
        key, value, time = told
        try:
            reading = float(value)
        except ValueError:
            self._problem(number, "the value is no number")
            return
        if key not in self._known:
            self._learn(number, key)
        series = self._known[key]
        if series is None:
            return
        at = self._at(key, series.host, time)
        if endless and not self._dated:
            self._problem(number, "the last line has no end: digits may be lost")
        elif at is None:
            self._problem(number, "the time behind the value is missing, torn, or such as others do not have")
        elif self._pile is not None:
            self._pile.add(series, [at], [reading])
        else:
            self._scrapes.add(series, at, reading)

    def _no_sample(self, number: int, line: str) -> None:
        if not line.startswith("#"):
            self._problem(number, "no value behind the labels" if line.endswith("}") else _TORN)
        elif not self._dated and line.startswith("# HELP "):
            self._looks.saw(line)

    def _learn(self, number: int, key: str) -> None:
        if len(self._known) >= _MEMO_LIMIT:
            self._known.clear()
        named = None
        if _OTHERS.match(key) is None:
            named = prometheus_text.series(key)
            if named is None:
                self._problem(number, _TORN)
        self._known[key] = None if named is None else self._directory.series(*named)

    def _at(self, key: str, host: str, time: str) -> float | None:
        if self._dated:
            return _moment(time)
        self._looks.saw(key)
        return None if time else self._looks.at(host)

    def _problem(self, number: int, text: str) -> None:
        self._problems.add(self._text.path, number, text)


def _arrangement(head: str) -> tuple[bool, bool]:
    """Whether the samples bear times, and whether they do not stand scrape after scrape: by what the beginning of the file shows."""
    directory, newest, timed, count = Directory(), dict[str, float](), 0, 0
    before, before_at, disorderly = "", 0.0, False
    for line in head.splitlines():
        told = prometheus_text.split(line)
        named = told and prometheus_text.series(told[0])
        series = named and directory.series(*named)
        if not told or not series:
            continue
        count += 1
        at = _moment(told[2])
        if at is None:
            continue
        timed += 1
        disorderly |= (told[0] == before and at != before_at) or at < newest.get(series.host, at) - 1.0
        before, before_at = told[0], at
        newest[series.host] = max(at, newest.get(series.host, at))
    return timed > 0 and timed * 2 >= count, disorderly


def _moment(text: str) -> float | None:
    try:
        return prometheus_text.moment(float(text))
    except ValueError:
        return None
