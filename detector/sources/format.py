"""What a recording format is, what it is told, and where it says what it could not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detector.frame import Frame

if TYPE_CHECKING:
    from detector.sources.text import Text

LOCALHOST: Final = "localhost"
"""The host of a recording that names none."""

_SAMPLES: Final = 5
_KINDS: Final = 40
_NOTES: Final = 40
_REST: Final = "further problems of other kinds"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a recording does not say of itself."""

    format: str = "auto"
    host: str | None = None
    """The host of formats that carry none; None: `localhost`."""
    timezone: str | None = None
    """The zone of times without one; None: the machine's own."""
    interval: float | None = None
    """Seconds between two samples of a recording without times; None: what it says of itself, else one."""
    columns: tuple[str, ...] | None = None
    """The columns of a table whose header is missing or wrong."""


DEFAULTS: Final = ReadOptions()


class Problems:
    """What could not be read, and what should be known about what was. Memory is bounded: counts, and the first few places a kind."""

    def __init__(self) -> None:
        self._places: dict[str, list[tuple[str, int | None]]] = {}
        self._counts: dict[str, int] = {}
        self.notes: list[str] = []

    def add(self, path: str | Path, line: int | None, text: str) -> None:
        """Something at *line* of *path* was left out. *text* says what; equal texts are counted together."""
        if text not in self._counts and len(self._counts) >= _KINDS:
            text = _REST
        self._counts[text] = self._counts.get(text, 0) + 1
        places = self._places.setdefault(text, [])
        if len(places) < _SAMPLES:
            places.append((str(path), line))

    def note(self, text: str) -> None:
        """Something worth knowing that is no loss; said once."""
        if text not in self.notes and len(self.notes) < _NOTES:
            self.notes.append(text)

    def __len__(self) -> int:
        return sum(self._counts.values())

    def lines(self) -> list[str]:
        """All of it as lines for standard error, notes last."""
        return [*(self._line(text, count) for text, count in self._counts.items()), *(f"note: {note}" for note in self.notes)]

    def _line(self, text: str, count: int) -> str:
        where: dict[str, list[int]] = {}
        for path, line in self._places[text]:
            where.setdefault(path, []).extend(() if line is None else (line,))
        shown = "; ".join(
            f"{path}, line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}" if numbers else path
            for path, numbers in where.items()
        )
        more = count - len(self._places[text])
        return f"{shown}{f' and {more} more' if more else ''}: {text}"


@dataclass(frozen=True, slots=True)
class Format:
    """One format of recordings."""

    name: str
    sniff: Callable[[str], bool]
    """Whether the beginning of a file, decoded, looks like it."""
    read: Callable[[Text, ReadOptions, Problems], Iterator[Frame]]
    """The frames, in the order of the file. Raises SourceError where nothing can be read; a part that cannot is a problem."""
