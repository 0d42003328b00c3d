"""A learned model's seat: it scores the rows of a window, a rule turns scores into answers.

The engine asks the model before the rules and lays its scores on the window (`window.scores`); `rules/anomaly.py` reads them. Models
live in `models/`, one a file, and are found by name (`detector.discover.model_class`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from detector.window import Window

Floats = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scores:
    """How strange each row is, and why. Arrays are in the order of the window's rows; NaN is "not yet" or "cannot tell"."""

    rarity: Floats
    """(rows,): calibrated. How many hours of this row's own healthy history show something as strange once; higher is stranger."""
    share: Floats
    """(rows, metrics): how much of the strangeness each metric explains, summing to 1; NaN where nothing is."""
    value: Floats
    """(rows, metrics): what is seen, in the metric's unit."""
    usual: Floats
    """(rows, metrics): what would be usual instead."""
    swings: NDArray[np.bool_]
    """(rows, metrics): what is strange is how much the metric moves; `value` and `usual` are then the half of the
    range that the middle half of its readings takes."""
    metrics: tuple[str, ...]

    def of(self, places: NDArray[np.intp]) -> Scores:
        """The scores of some of the rows."""
        return Scores(self.rarity[places], self.share[places], self.value[places], self.usual[places], self.swings[places], self.metrics)


class Model(Protocol):
    """Scores windows of devices; learns as it goes. Deterministic: the same frames give the same scores, live or replayed.

    A row is known by its host and the uuid of its device; neither the other rows nor their order change what is said of it.
    """

    needs: ClassVar[tuple[str, ...]]
    """Metrics whose history it looks at; it copes with any of them missing."""
    every: ClassVar[float]
    """Seconds of observed time between two looks."""

    def score(self, window: Window) -> Scores:
        """Score the rows as of now, then learn from them."""
        ...

    def forget(self, host: str, uuid: str) -> None:
        """Drop what was learnt of a device that is gone."""
        ...

    def save(self, path: Path) -> None:
        """Write what was learnt, in one step: a reader finds the old file or the new one. OSError where that fails."""
        ...

    def load(self, path: Path) -> None:
        """Take up what was saved. A SourceError says why the file cannot be used; the model is then as it was before."""
        ...


class TrainingProcess(Executor):
    """Where a live model trains: a process of its own at low priority, started for a task and gone after it.

    It holds the heavy libraries, so that the service need not, and one that dies takes no later task with it.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        # Forking a process that has threads can deadlock the child, and would copy the service's memory.
        pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=os.nice, initargs=(10,))
        try:
            return pool.submit(fn, *args, **kwargs)
        finally:
            pool.shutdown(wait=False)


def train(model: str, tasks: list[Any]) -> list[Any]:
    """What the model's class makes of the *tasks* in its static `learn`; to be submitted to an executor.

    A model's own functions cannot be: where its module lies is known to `detector.discover` only, not to a fresh interpreter.
    """
    learn = _model_class(model).learn
    return [learn(task) for task in tasks]


def score_series(values: ArrayLike, *, period_seconds: float | None = None) -> Floats:
    """One score in [0, 1] for each row of a plain series, higher is stranger; row t is scored from rows <= t alone.

    *values* is shaped (n,) or (n, features), NaN is a missing value, *period_seconds* the time between two rows. 0 is also "no
    opinion": the first rows, from which it learns what is usual, and rows without a value. A ValueError says what is wrong.
    """
    return _model_class("isolation_forest").score_series(values, period_seconds=period_seconds)  # type: ignore[no-any-return]


def _model_class(name: str) -> type[Any]:
    # By name and late: discovery knows rules, rules know windows, and windows know this module.
    return import_module("detector.discover").model_class(name)  # type: ignore[no-any-return]
