"""Rows that belong together: the ranks of a job, a GPU and its instances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from detector.rule import Booleans, Floats
from detector.window import Subject, Window


class Teams:
    """The rows of *window*, of which those with the same name on the same host are a team. A row without a name is a team of its own."""

    def __init__(self, window: Window, names: Sequence[str | None]) -> None:
        numbers: dict[tuple[str, str | int], int] = {}
        keys = ((subject.host, n if name is None else name) for n, (subject, name) in enumerate(zip(window.subjects, names, strict=True)))
        self._team = np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), np.intp, len(window))
        self._count = len(numbers)

    def count(self, rows: Booleans) -> NDArray[np.intp]:
        """How many of *rows* are in each row's team, shape (rows,)."""
        return np.bincount(self._team, weights=rows, minlength=self._count).astype(np.intp)[self._team]

    def any(self, rows: Booleans) -> Booleans:
        """Whether any of *rows* is in a row's team."""
        return self.count(rows) > 0

    def most(self, values: Floats) -> Floats:
        """The largest of *values* in each row's team; they are 0 or more, none of them NaN."""
        most = np.zeros(self._count)
        np.maximum.at(most, self._team, values)
        return most[self._team]


def board(subject: Subject) -> str | None:
    """The GPU that a row is, or is an instance of: what a board has one of (a temperature, memory cells) is one incident."""
    return None if subject.device is None else subject.device.parent or subject.device.uuid
