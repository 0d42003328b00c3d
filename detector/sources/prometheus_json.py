"""Answers of the Prometheus API about GPU series, kept in a file: of `query` and `query_range`, one or many, one after another.

Whatever is around them, the objects that hold a `metric` with its `value` or `values` are read, so that an answer which was cut off
loses its last series only. All samples are in memory, 20 bytes each, since an answer lists series after series. What VictoriaMetrics
exports, `values` beside `timestamps`, is read too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from detector.frame import Frame
from detector.sources.format import Format, Problems, ReadOptions
from detector.sources.prometheus_text import moment
from detector.sources.scrapes import Pile, Scrapes
from detector.sources.series import Directory
from detector.sources.text import Text

_SERIES: Final = re.compile(r'\{\s*"metric"\s*:\s*\{')
_ERROR: Final = re.compile(r'"status"\s*:\s*"error"[^{}]{0,2000}?"error"\s*:\s*"((?:[^"\\]|\\.){0,300})')
_ANSWER: Final = re.compile(r'[\s\[]*\{\s*"(?:status|metric|data|resultType)"\s*:')
_LONGEST: Final = 32 * 1024 * 1024
"""A series of more characters is not one that Prometheus answers: it stops at 11,000 samples."""
_OPENING: Final = 4096
"""So many characters may still turn out to be the beginning of a series, or of an error."""


def sniff(head: str) -> bool:
    return _ANSWER.match(head) is not None and (_SERIES.search(head) is not None or _ERROR.search(head) is not None)


def read(text: Text, options: ReadOptions, problems: Problems) -> Iterator[Frame]:
    """Frames in the order of time. A series that cannot be read is a problem, and so is an answer that is an error."""
    reader = _Reader(text, options, problems)
    for number, series in reader.objects():
        reader.take(number, series)
    yield from reader.frames()


FORMAT: Final = Format("prometheus-json", sniff, read)


class _Bad(Exception):
    """A series that is not what the API promises."""


class _Reader:
    """Finds the series of a text and collects their samples."""

    def __init__(self, text: Text, options: ReadOptions, problems: Problems) -> None:
        self._text = text
        self._problems = problems
        self._directory = Directory(options.host)
        self._pile = Pile()
        self._decode = json.JSONDecoder().raw_decode

    def objects(self) -> Iterator[tuple[int, Any]]:
        """Each object that begins like a series, decoded, with the number of its line."""
        held, number = "", 1
        for block in self._text.blocks():
            held += "\n".join(block.lines) + ("\n" if block.complete else "")
            start = 0
            while (match := _SERIES.search(held, start)) is not None:
                try:
                    series, end = self._decode(held, match.start())
                except (ValueError, RecursionError):
                    if _SERIES.search(held, match.end()) is None and len(held) - match.start() < _LONGEST:
                        break  # its rest may come with the next block
                    series, end = None, match.end()
                self._tell_errors(held, start, match.start(), number)
                number += held.count("\n", start, match.start())
                yield number, series
                number += held.count("\n", match.start(), end)
                start = end
            keep = match.start() if match is not None else max(start, len(held) - _OPENING)
            self._tell_errors(held, start, keep, number)
            number += held.count("\n", start, keep)
            held = held[keep:]
        self._tell_errors(held, 0, len(held), number)
        if _SERIES.search(held) is not None:
            yield number, None

    def take(self, number: int, series: Any) -> None:
        try:
            if series is None:
                raise _Bad("a series is cut off or damaged")
            self._take(number, series)
        except _Bad as bad:
            self._problems.add(self._text.path, number, str(bad))

    def frames(self) -> Iterator[Frame]:
        return self._pile.frames(Scrapes(self._directory, dated=True))

    def _tell_errors(self, held: str, start: int, end: int, number: int) -> None:
        """An answer that is an error says so where series would be: here those that begin between *start* and *end*."""
        for error in _ERROR.finditer(held, start, end + _OPENING):
            if error.start() >= end:
                break
            line = number + held.count("\n", start, error.start())
            self._problems.add(self._text.path, line, f"Prometheus answered with an error: {error[1]}")

    def _take(self, number: int, told: dict[str, Any]) -> None:
        labels = {name: value for name, value in told["metric"].items() if isinstance(value, str)}
        name = labels.pop("__name__", None)
        if name is None:
            raise _Bad("a series without a name, as the result of an expression is: ask for the metric itself")
        series = self._directory.series(name, labels)
        if series is None:
            return
        times, values = [], []
        for sample in self._samples(told):
            try:
                at, value = moment(float(sample[0])), float(sample[1])
            except (TypeError, ValueError, LookupError, OverflowError):
                at = None
            if at is None:
                self._problems.add(self._text.path, number, "a sample that is not a time and a number")
            else:
                times.append(at)
                values.append(value)
        self._pile.add(series, times, values)

    def _samples(self, told: dict[str, Any]) -> Iterator[Any]:
        listed = [told["value"]] if "value" in told else told.get("values")
        if not isinstance(listed, list):
            raise _Bad("a series without values")
        times = told.get("timestamps")
        return zip(times, listed, strict=False) if isinstance(times, list) else iter(listed)
