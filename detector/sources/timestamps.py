"""Moments as recordings write them, read as Unix seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from detector.errors import ConfigError

UNDATED: Final = 946_684_800.0
"""2000-01-01T00:00:00Z: where the clock of a recording starts that says no date, whether it counts seconds or says nothing."""

Style = Literal["absolute", "naive", "elapsed"]

_DATE_TIME = re.compile(
    r"(\d{4})([-/.]?)(\d{1,2})\2(\d{1,2})[T _]+(\d{1,2}):?(\d{2})(?::?(\d{2})(?:[.,](\d{1,9}))?)?\s*(Z|UTC|GMT|[-+]\d{2}:?(?:\d{2})?)?",
    re.IGNORECASE,
)
_CTIME = re.compile(r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d{2}):(\d{2}):(\d{2}) (?:([A-Z]{2,5}) )?(\d{4})")
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_OFFSET = re.compile(r"([-+])(\d{2}):?(\d{2})?")
_MONTHS = {name: n for n, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)}

_EARLIEST: Final = 631_152_000.0
_LATEST: Final = 4_102_444_800.0
"""1990 to 2100: a number that is such a moment in seconds, milli-, micro- or nanoseconds is one; below, it counts from a start."""
_NAN: Final = float("nan")
_MEMO_LIMIT: Final = 10_000


def zone_of(name: str) -> tzinfo:
    """The time zone called *name* (`Europe/Berlin`, `UTC`, `+02:00`). Raises ConfigError where there is none."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if offset := _OFFSET.fullmatch(name):
        return _fixed(offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"time zone {name!r} is not known; give one such as Europe/Berlin, UTC or +02:00") from None


def _fixed(offset: re.Match[str]) -> timezone:
    ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    return timezone(ahead if offset[1] == "+" else -ahead)


class Timestamps:
    """Reads moments in any of the styles that GPU logs come in, of one recording and mostly in its order.

    Naive times are in *zone*, else in the machine's own (the environment's TZ included). In the hour that a clock shows twice in
    autumn, a time that would run backwards by more than a minute is the second one.
    """

    def __init__(self, zone: str | None = None) -> None:
        self._zone = zone_of(zone) if zone is not None else None
        self._last = -np.inf
        self._minutes: dict[str, float] = {}
        self._suffix = ""

    def read(self, text: str) -> float:
        """Unix seconds, or seconds after UNDATED where the number can only count from a start; NaN where it is no moment."""
        at = self._moment(text.strip())
        if at == at:
            self._last = at
        return at

    def style(self, text: str) -> Style | None:
        """How *text* says a moment: on its own (`absolute`), in some zone (`naive`), since a start (`elapsed`); None: not at all."""
        text = text.strip()
        if np.isnan(self._moment(text)):
            return None
        if _NUMBER.fullmatch(text):
            return "elapsed" if abs(float(text)) < _EARLIEST else "absolute"
        match = _DATE_TIME.fullmatch(text)
        return "absolute" if match and match[9] else "naive"

    def column(self, cells: Sequence[str]) -> NDArray[np.float64]:
        """Many moments at once, shape (cells,); NaN where a cell is none."""
        out = []
        minutes, suffix, cut = self._minutes, self._suffix, -len(self._suffix) or None
        for cell in map(str.strip, cells):
            # `2026/03/02 08:00:` has been seen before nearly always, and what follows are seconds.
            minute = minutes.get(cell[:17])
            if minute is not None and cell.endswith(suffix):
                try:
                    seconds = float(cell[17:cut])
                except ValueError:
                    seconds = _NAN
                if 0.0 <= seconds < 61.0:
                    self._last = minute + seconds
                    out.append(self._last)
                    continue
            at = self.read(cell)
            if suffix != self._suffix:
                suffix, cut = self._suffix, -len(self._suffix) or None
            out.append(at)
        return np.array(out, np.float64)

    def _moment(self, text: str) -> float:
        if _NUMBER.fullmatch(text):
            return _number(float(text))
        try:
            if match := _DATE_TIME.fullmatch(text):
                at = self._date_time(text, match)
            elif match := _CTIME.fullmatch(text):
                at = self._ctime(match)
            else:
                return _NAN
        except (ValueError, LookupError, OverflowError, OSError):  # the 31st of February, the month "Foo", the year 0
            return _NAN
        return at if 0.0 <= at <= _LATEST else _NAN

    def _date_time(self, text: str, match: re.Match[str]) -> float:
        year, month, day, hour, minute = (int(match[n]) for n in (1, 3, 4, 5, 6))
        seconds = float(f"{match[7] or 0}.{match[8] or 0}")
        if seconds >= 61.0:
            return _NAN
        when = datetime(year, month, day, hour, minute)
        offset = (match[9] or "").upper()
        if offset:
            start, twice = when.replace(tzinfo=zone_of(offset)).timestamp(), False
        else:
            start, twice = self._naive(when, seconds)
        if match.start(7) == 17 and not twice:
            self._remember(text[:17], text[match.start(9) :] if offset else "", start)
        return start + seconds

    def _naive(self, when: datetime, seconds: float) -> tuple[float, bool]:
        """The moment of a naive time, and whether the clock shows it twice."""
        first = when.replace(tzinfo=self._zone).timestamp()
        second = when.replace(tzinfo=self._zone, fold=1).timestamp()
        # Where the clock skips an hour in spring, fold=1 is the earlier of the two; such a time does not exist.
        if second <= first:
            return first, False
        return (second if first + seconds < self._last - 60.0 else first), True

    def _ctime(self, match: re.Match[str]) -> float:
        when = datetime(int(match[7]), _MONTHS[match[1]], int(match[2]), int(match[3]), int(match[4]))
        seconds = float(match[5])
        if match[6] in ("UTC", "GMT"):
            return when.replace(tzinfo=UTC).timestamp() + seconds
        return self._naive(when, seconds)[0] + seconds

    def _remember(self, minute: str, suffix: str, start: float) -> None:
        if suffix != self._suffix or len(self._minutes) >= _MEMO_LIMIT:
            self._suffix = suffix
            self._minutes.clear()
        self._minutes[minute] = start


def _number(value: float) -> float:
    if abs(value) < _EARLIEST:
        return UNDATED + value
    return next((value / scale for scale in (1.0, 1e3, 1e6, 1e9) if _EARLIEST <= value / scale <= _LATEST), _NAN)
