"""An isolation forest per device, grown from that device's own work, whose scores are calibrated to "once in so many hours"."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from detector.model import Scores, train
from detector.window import Window

from . import _calibration, _features, _series
from ._features import FEATURES, METRICS, READ
from ._forest import INNER, LEAVES, PATHS, TREES, Forests
from ._learning import Usual, explain, learn, score
from ._table import Column, Key, Table

log = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Slots = NDArray[np.intp]

SAMPLE: Final = 1024
"""Looks that are kept of a device to grow its next forest from."""
SAMPLE_LOOKS: Final = 17_280.0
"""They are drawn from about so many looks back, three days of them: a habit that ended is forgotten."""
LEAST_SAMPLE: Final = 256

HOUR: Final = 3600.0
FIRST_TRAINING: Final = 2 * HOUR
LONGEST_BETWEEN: Final = 24 * HOUR
"""At work. In between, a forest is grown anew whenever the device has worked twice as long as at the last time."""
PHASE: Final = 0.25 * HOUR
"""Hosts that start together train one after another within this time."""
DELAY: Final = 60.0
"""Observed seconds from asking for a forest to using it: a live service has to have it by then, a replay must not have it before."""
PATIENCE: Final = 30.0
"""Seconds that a live service waits for a forest that is overdue, before it goes on with the old one."""

WORKING_PERCENT: Final = 5.0
SETTLED: Final = _features.BEFORE_SECONDS
"""Seconds after which all that a look compares with belongs to the present work."""
SUSPICIOUS: Final = 24.0
"""Hours of rarity from which on a look is not learnt."""
LASTING: Final = 4 * HOUR
"""What stays suspicious for so long is the new usual."""
RECURRING: Final = 3.0
"""Suspicious times within about a week that make the next one a part of the device's life."""
FORGOTTEN: Final = 7 * 24 * HOUR
"""Age at which suspicious times have faded, and at which a device that was not seen any more is left out of the file."""
LEAST_KNOWN: Final = 0.5
"""Share of the metrics that the forest knows which must be readable for a look to be judged."""
TELLING: Final = 1.0
"""Hours of rarity from which on it is worked out what makes a look strange."""

_COLUMNS: Final = {
    # What training makes.
    "feature": Column(np.uint8, (TREES, INNER), len(FEATURES)),
    "threshold": Column(np.float32, (TREES, INNER)),
    "value": Column(np.float32, (TREES, INNER)),
    "leaf": Column(np.uint16, (TREES, LEAVES), len(PATHS)),
    "fill": Column(np.float32, (len(FEATURES),)),
    "low": Column(np.float32, (len(FEATURES),)),
    "high": Column(np.float32, (len(FEATURES),)),
    "spread": Column(np.float32, (len(FEATURES),)),
    "unit": Column(np.float64),
    "line": Column(np.float64, (2,)),
    "histogram": Column(np.float32, (_calibration.BINS,)),
    # What it is made from, and when.
    "sample": Column(np.float32, (SAMPLE, len(READ))),
    "learnt": Column(np.int64, (), 2.0**62),  # looks that were offered to the sample
    "trainings": Column(np.int64, (), 2.0**31),  # forests so far; 0: none yet
    "identity": Column(np.uint64),  # what chance depends on
    "at": Column(np.float64),  # Unix seconds of the newest look
    "observed": Column(np.float64),  # seconds, holes in the recording left out
    "worked": Column(np.float64),  # seconds of them at work
    "next_training": Column(np.float64),  # as `worked`
    "since": Column(np.float64),  # `observed` when the present stretch of work began
    "owned_since": Column(np.float64),  # `observed` when its owner came
    "owner": Column(np.uint32),  # 0: not known
    "streak": Column(np.float64),  # seconds for which it has been suspicious
    "peak": Column(np.float64),  # the highest score of the streak
    "recurred": Column(np.float64),  # streaks, fading
}
_LAYOUT: Final = f"gpuwarden isolation forest 1: {' '.join(f'{METRICS[metric]}.{kind}' for metric, kind in FEATURES)}"


class _Pending(NamedTuple):
    batch: Future[list[dict[str, NDArray[Any]]]]
    place: int
    due: float
    """As `observed`."""


class _Look(NamedTuple):
    """What time has done to the rows since the last look."""

    step: Floats
    """Observed seconds; 0 at a device's first look."""
    seconds: Floats
    """How long a look stands for."""
    working: Booleans
    starting: Booleans
    """Another job came a short while ago: nothing is judged, everything is learnt."""


class _Judged(NamedTuple):
    """What is said of the rows; NaN where nothing is."""

    rarity: Floats
    score: Floats
    features: NDArray[np.float32]
    credit: Floats


class IsolationForest:
    """Says how rarely a device that works has looked as it does now.

    *executor* trains (`detector.model.TrainingProcess` in a service); None: training happens at once, in the calling thread. Both give
    the same scores, because a forest is used from a fixed moment on. *seed* draws the samples and grows the trees, together with the
    host and uuid of the device.

    It has no opinion (rarity NaN) before the first two hours at work, for half an hour after another job has come (another process,
    where jobs are not known), and while less than half of what it knows can be read. A device at rest is not judged but clear (rarity
    0): whether it should rest is a question for `idle_gpu` and `stuck_training`. Its past is that of all jobs on the device. What is
    strange is not learnt, unless it lasts for hours or keeps coming back: then it is usual, and an alarm about it ends.
    """

    needs: ClassVar = METRICS
    every: ClassVar = 15.0

    def __init__(self, *, seed: int = 0, executor: Executor | None = None) -> None:
        self._seed, self._executor = seed, executor
        self._table = Table(_COLUMNS)
        self._pending: dict[int, _Pending] = {}

    # -- the seat -------------------------------------------------------------------------------------------------------------
    def score(self, window: Window) -> Scores:
        slots = self._slots(window)
        read = _features.read(window)
        look = self._pass(slots, window, read)
        self._adopt(slots)
        judged = self._judge(slots, read, look)
        self._learn(slots, read, look, judged)
        self._ask(slots)
        return self._explained(slots, read, judged)

    def forget(self, host: str, uuid: str) -> None:
        slot = self._table.slots.get((host, uuid))
        if slot is not None:
            self._pending.pop(slot, None)
            self._table.remove((host, uuid))

    def save(self, path: Path) -> None:
        at = {key: float(self._table["at"][slot]) for key, slot in self._table.slots.items()}
        oldest = max(at.values(), default=0.0) - FORGOTTEN
        self._table.save(path, _LAYOUT, [key for key, seen in at.items() if seen >= oldest])

    def load(self, path: Path) -> None:
        self._table.load(path, _LAYOUT)
        self._pending.clear()

    @staticmethod
    def learn(task: tuple[NDArray[np.float32], int]) -> dict[str, NDArray[Any]]:
        """What training makes of (sample, seed): a device's new entries by column. The only part that needs scikit-learn."""
        sample, seed = task
        line = _features.fitted_line(sample.astype(np.float64))
        learnt = learn(_features.complete(sample.astype(np.float64), line[None]), _features.GRAINS, seed)
        made = {**learnt.forests._asdict(), **learnt.usual._asdict(), "histogram": learnt.histogram, "line": line[None]}
        return {name: array[0] for name, array in made.items()}

    @staticmethod
    def score_series(values: ArrayLike, *, period_seconds: float | None = None) -> Floats:
        """See `detector.model.score_series`."""
        return _series.score_series(values, period_seconds)

    # -- time -----------------------------------------------------------------------------------------------------------------
    def _slots(self, window: Window) -> Slots:
        keys = [(subject.host, subject.device.uuid if subject.device else "") for subject in window.subjects]
        known = self._table.slots
        return np.array([known[key] if key in known else self._add(key) for key in keys], np.intp)

    def _add(self, key: Key) -> int:
        slot = self._table.add(key)
        table = self._table
        table["identity"][slot] = _hash(f"{self._seed}/{key[0]}/{key[1]}")
        # Devices of a host are trained together: starting a process costs more than a forest.
        table["next_training"][slot] = FIRST_TRAINING + PHASE * (_hash(key[0]) / 2.0**64)
        table["owned_since"][slot] = -SETTLED
        return slot

    def _pass(self, slots: Slots, window: Window, read: Floats) -> _Look:
        """Let the time since the last look pass for the rows; `read` loses what compares across the beginning of this work."""
        table = self._table
        pace = np.maximum(self.every, window.interval)
        new = table["at"][slots] == 0
        elapsed = np.where(new, 0.0, window.now - table["at"][slots])
        hole = (elapsed > 4.0 * pace) | (elapsed < 0)
        step = np.where(hole, pace, elapsed)
        working = ~(read[:, _features.UTILIZATION] < WORKING_PERCENT)
        owner = np.array([crc32(subject.owner.encode()) if subject.owner else 0 for subject in window.subjects], np.uint32)
        former = table["owner"][slots]
        changed = (owner != former) & (owner != 0) & (former != 0)

        table["at"][slots] = window.now
        observed = table["observed"][slots] + step
        table["observed"][slots] = observed
        table["worked"][slots] += np.where(working, step, 0.0)
        table["owner"][slots] = np.where(owner != 0, owner, former)
        table["since"][slots] = np.where(new | hole | changed | ~working, observed, table["since"][slots])
        table["owned_since"][slots] = np.where(changed, observed, table["owned_since"][slots])
        self._hasten(slots[changed])
        read[observed - table["since"][slots] < SETTLED, _features.PAST] = np.nan
        return _Look(step, np.maximum(pace, step), working, observed - table["owned_since"][slots] < SETTLED)

    # -- judging --------------------------------------------------------------------------------------------------------------
    def _judge(self, slots: Slots, read: Floats, look: _Look) -> _Judged:
        table = self._table
        trained = table["trainings"][slots] > 0
        nothing = np.full((len(slots), len(FEATURES)), np.nan)
        judged = _Judged(nothing[:, 0].copy(), nothing[:, 0].copy(), nothing.astype(np.float32), nothing)
        judged.rarity[trained & ~look.working] = 0.0
        rows = np.flatnonzero(trained & look.working)
        if not len(rows):
            return judged
        at = slots[rows]
        features = _features.complete(read[rows], table["line"][at])
        forests = Forests(*(table[name] for name in Forests._fields))
        usual = Usual(*(table[name] for name in Usual._fields))
        known = np.isfinite(usual.low[at, _features.LEVEL])
        readable = (known & ~np.isnan(features[:, _features.LEVEL])).sum(axis=1) >= LEAST_KNOWN * known.sum(axis=1)
        judged.score[rows] = np.where(readable, score(forests, usual, at, features), np.nan)
        hours = look.seconds[rows] / HOUR / _calibration.chance(table["histogram"][at], judged.score[rows])
        judged.rarity[rows] = np.where(look.starting[rows], np.nan, hours)
        judged.features[rows] = features
        strange = rows[judged.rarity[rows] >= TELLING]
        judged.credit[strange] = explain(forests, usual, slots[strange], judged.features[strange])
        return judged

    def _explained(self, slots: Slots, read: Floats, judged: _Judged) -> Scores:
        shape = (len(slots), len(METRICS))
        share, value, usual, swings = np.full(shape, np.nan), read[:, _features.LEVEL].copy(), np.full(shape, np.nan), np.zeros(shape, bool)
        offset = judged.features - self._table["fill"][slots]
        rows = np.arange(len(slots))
        for metric in range(len(METRICS)):
            own = np.flatnonzero(np.equal(_features.METRIC_OF, metric))
            credit = judged.credit[:, own]
            share[:, metric] = np.maximum(credit.sum(axis=1), 0.0)
            main = own[np.argmax(credit, axis=1)]
            swings[:, metric] = np.isin(main, _features.SWINGS) & ~np.isnan(share[:, metric])
            value[:, metric] = np.where(swings[:, metric], judged.features[rows, main], value[:, metric])
            usual[:, metric] = value[:, metric] - offset[rows, main]
        total = share.sum(axis=1, keepdims=True)
        share /= np.where((total > 0) & ~np.isnan(judged.rarity[:, None]), total, np.nan)
        return Scores(judged.rarity, share, value, usual, swings, METRICS)

    # -- learning -------------------------------------------------------------------------------------------------------------
    def _learn(self, slots: Slots, read: Floats, look: _Look, judged: _Judged) -> None:
        table = self._table
        trained, moved = table["trainings"][slots] > 0, look.step > 0
        suspicious = judged.rarity >= SUSPICIOUS
        before = table["streak"][slots]
        streak = np.where(suspicious, before + look.step, 0.0)
        ended = (before > 0) & ~suspicious
        # A streak counts as one strange look: were all counted, what follows would be measured against the fault.
        _calibration.record(table["histogram"], slots[ended], table["peak"][slots[ended]])
        table["streak"][slots] = streak
        table["peak"][slots] = np.where(suspicious, np.fmax(judged.score, np.where(before > 0, table["peak"][slots], -np.inf)), 0.0)
        table["recurred"][slots] = table["recurred"][slots] * np.exp(-look.step / FORGOTTEN) + ended
        self._hasten(slots[(streak > LASTING) & (before <= LASTING)])

        accepted = ~suspicious | (streak > LASTING) | (table["recurred"][slots] >= RECURRING)
        readable = np.where(trained, ~np.isnan(judged.score), ~np.isnan(read[:, _features.LEVEL]).all(axis=1))
        learns = moved & look.working & accepted & readable
        scored = learns & trained
        _calibration.record(table["histogram"], slots[scored], judged.score[scored])
        self._sample(slots[learns], read[learns])

    def _sample(self, slots: Slots, read: Floats) -> None:
        """Keep the rows with the chance that makes the sample one of the last SAMPLE_LOOKS looks."""
        table = self._table
        count = table["learnt"][slots]
        drawn = _uniform(table["identity"][slots], count) * np.minimum(count + 1, SAMPLE_LOOKS)
        place = np.where(count < SAMPLE, count, drawn.astype(np.int64))
        kept = place < SAMPLE
        table["sample"][slots[kept], place[kept]] = read[kept]
        table["learnt"][slots] += 1

    def _hasten(self, slots: Slots) -> None:
        """Something new is to be learnt: train once there are two hours of it."""
        table = self._table
        table["next_training"][slots] = np.minimum(table["next_training"][slots], table["worked"][slots] + FIRST_TRAINING)

    def _ask(self, slots: Slots) -> None:
        """Ask for the forests that are due, to be used DELAY seconds from now."""
        table = self._table
        due = slots[(table["worked"][slots] >= table["next_training"][slots]) & (table["learnt"][slots] >= LEAST_SAMPLE)]
        due = due[[slot not in self._pending for slot in due.tolist()]] if len(due) else due
        if not len(due):
            return
        seeds = _mixed(table["identity"][due], table["trainings"][due]) >> np.uint64(32)
        samples = [table["sample"][slot, : min(int(table["learnt"][slot]), SAMPLE)].copy() for slot in due]
        batch = self._submit(list(zip(samples, seeds.tolist(), strict=True)))
        for place, slot in enumerate(due.tolist()):
            self._pending[slot] = _Pending(batch, place, float(table["observed"][slot]) + DELAY)

    def _submit(self, tasks: list[tuple[NDArray[np.float32], int]]) -> Future[list[dict[str, NDArray[Any]]]]:
        batch: Future[list[dict[str, NDArray[Any]]]] = Future()
        try:
            if self._executor is not None:
                return self._executor.submit(train, "isolation_forest", tasks)
            batch.set_result([self.learn(task) for task in tasks])
        except Exception as error:
            batch.set_exception(error)
        return batch

    def _adopt(self, slots: Slots) -> None:
        """Begin to use the forests whose moment has come."""
        due: dict[Future[list[dict[str, NDArray[Any]]]], list[int]] = {}
        for slot in slots.tolist():
            pending = self._pending.get(slot)
            if pending is not None and self._table["observed"][slot] >= pending.due:
                due.setdefault(pending.batch, []).append(slot)
        for batch, ready in due.items():
            try:
                made = batch.result(timeout=PATIENCE)
            except Exception as error:
                # Whatever happened to the worker, the service goes on with the forests it has, and tries again in a while.
                ready = [slot for slot, pending in self._pending.items() if pending.batch is batch]
                log.warning("no new forests for %d devices: training failed (%s: %s)", len(ready), type(error).__name__, error)
                self._reschedule(ready, FIRST_TRAINING)
            else:
                for slot in ready:
                    self._plant(slot, made[self._pending[slot].place])
                self._reschedule(ready, LONGEST_BETWEEN)

    def _plant(self, slot: int, made: dict[str, NDArray[Any]]) -> None:
        for name, array in made.items():
            self._table[name][slot] = array
        self._table["histogram"][slot] *= min(float(self._table["learnt"][slot]), _calibration.MEMORY_LOOKS)
        self._table["trainings"][slot] += 1

    def _reschedule(self, slots: list[int], longest: float) -> None:
        """Train again when as much work lies behind the devices once more, *longest* at most."""
        for slot in slots:
            del self._pending[slot]
            worked = float(self._table["worked"][slot])
            self._table["next_training"][slot] = worked + min(max(worked, FIRST_TRAINING), longest)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _mixed(identity: NDArray[np.uint64], count: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers that look random, drawn by identity and count (SplitMix64)."""
    mixed = identity + (count.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return result


def _uniform(identity: NDArray[np.uint64], count: NDArray[np.int64]) -> Floats:
    return _mixed(identity, count) / 2.0**64
