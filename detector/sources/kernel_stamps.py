"""Lines of a kernel log: when, on which host, and what was said, in the styles of dmesg, journalctl and syslog.

A line without a year takes the year nearest to the last line that has one, else that of the file, and never lies in the future. Lines
that only count from boot (`[   12.345678]`) are in order among themselves; where they belong is for the reader to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from detector.sources.timestamps import Timestamps

UPTIME: Final = "uptime"
UNSTAMPED: Final = "none"

LINE: Final = re.compile(
    r"""\s*(?:<\d{1,3}>|(?P<facility>[a-z0-9]+\s*:[a-z]+\s*:\s))?\s*
    (?:
        \[?(?:[A-Z][a-z]{2}\ )?
        (?P<full>\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:\ ?(?:Z|UTC|[-+]\d\d:?\d\d))?)(?:\ [A-Z]{2,5})?\]?
      | (?P<unix>\d{10}\.\d{3,9})
      | \[?(?P<ctime>[A-Z][a-z]{2}\ [A-Z][a-z]{2}\ {1,2}\d{1,2}\ \d\d:\d\d:\d\d\ (?:[A-Z]{2,5}\ )?\d{4})\]?
      | (?P<month>[^\W\d]{3,9}\.?|\d{1,2}[月월])\ +(?P<day>\d{1,2})\ (?P<time>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)
      | \[\s*(?P<uptime>\d{1,9}\.\d{1,9})\]
    )\ (?P<rest>.*)""",
    re.VERBOSE | re.DOTALL,
)
SAID: Final = re.compile(r"(?:(?P<host>[^\s:]+) )?kernel(?:\[\d+\])?: (?:\[\s*\d+\.\d+\] ?)?", re.DOTALL)
"""What stands between the time of a line and what the kernel said."""

_MONTHS: Final = {
    word: number
    for number, words in enumerate(
        ("jan janv ene gen sty янв", "feb févr fev lut фев", "mar mär mars mrt marz мар", "apr avr avril abr kwi апр",
         "may mai mei maj mag май мая", "jun juin giu cze июн", "jul juil lug lip июл", "aug août ago sie авг",
         "sep sept set wrz сен", "oct okt out ott paź окт", "nov lis ноя", "dec dez déc dic gru дек"), 1)
    for word in words.split()
}  # fmt: skip
"""Abbreviations of months as systems in English, German, French, Spanish, Italian, Portuguese, Dutch, Polish and Russian write them."""

_DAY: Final = 86_400.0
_LEAP_YEAR: Final = 2000


@dataclass(frozen=True, slots=True)
class Said:
    """What a line says."""

    style: str
    """How its time is written: copies of a line are told from repeats by it."""
    at: float
    """Unix seconds; for UPTIME seconds since the first boot of the file that counts so; for UNSTAMPED nothing, no line had a time yet."""
    host: str | None
    text: str


class Clock:
    """Gives each line its time. *modified*: the time of the file itself."""

    def __init__(self, timezone: str | None, modified: float) -> None:
        self._times = Timestamps(timezone)
        self._modified = modified
        self._dated: float | None = None
        self._years: dict[tuple[int, int], int] = {}
        self._booted = 0.0
        self._uptime = 0.0
        self._before: tuple[str, float] = (UNSTAMPED, 0.0)
        self.boots = 0
        """How often the time since boot began again."""
        self.guessed_year: int | None = None
        """The year that the file gave to lines without one."""

    def read(self, line: str) -> Said:
        """A line without a time of its own is of the moment of the one before."""
        match = LINE.match(line)
        told = match and self._told(match)
        if not match or told is None:
            return Said(*self._before, None, line.strip())
        self._before = told
        rest = match["rest"]
        said = SAID.match(rest)
        return Said(*told, said["host"] if said else None, rest[said.end() :] if said else rest)

    def _told(self, match: re.Match[str]) -> tuple[str, float] | None:
        if match["uptime"] is not None:
            return UPTIME, self._since_boot(float(match["uptime"]))
        if match["month"] is not None:
            at = self._yearless(match["month"], int(match["day"]), match["time"])
            return None if at is None else (f"yearless {len(match['time'])}", at)
        stamp = match["full"] or match["unix"] or match["ctime"]
        at = self._times.read(stamp)
        if at != at:
            return None
        self._dated = at
        return f"dated {len(stamp)}", at

    def _since_boot(self, uptime: float) -> float:
        # Processors stamp their lines before they queue them: a little backwards is no boot.
        if uptime < self._uptime - 1.0:
            self._booted += self._uptime
            self.boots += 1
            self._uptime = uptime
        self._uptime = max(uptime, self._uptime)
        return self._booted + uptime

    def _yearless(self, word: str, day: int, time: str) -> float | None:
        number = word[:-1] if word[-1] in "月월" else ""
        month = int(number) if number else _MONTHS.get(word.rstrip(".").lower(), 0)
        year = self._year(month, day)
        if year is None:
            return None
        at = self._times.read(f"{year:04d}-{month:02d}-{day:02d}T{time}")
        return at if at == at else None

    def _year(self, month: int, day: int) -> int | None:
        if _midnight(_LEAP_YEAR, month, day) is None:
            return None
        year = self._years.get((month, day))
        if year is None:
            near = self._modified if self._dated is None else self._dated
            latest = datetime.fromtimestamp(near, UTC).year
            starts = {y: start for y in range(latest + 1, 1969, -1) if (start := _midnight(y, month, day)) is not None}
            if self._dated is None:
                year = self.guessed_year = next((y for y, start in starts.items() if start <= self._modified + _DAY), latest)
            else:
                year = min(starts, key=lambda y: abs(starts[y] - near))
            self._years[month, day] = year
        return year


def _midnight(year: int, month: int, day: int) -> float | None:
    try:
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:  # the 29th of February, the 13th month
        return None
