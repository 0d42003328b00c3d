"""The isolation forest: what it computes, what it says of a day of telemetry, and what it keeps."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest as SklearnForest

from detector.errors import SourceError
from detector.frame import Device, Frame, Process
from detector.inventory import Inventory
from detector.model import Scores, TrainingProcess
from detector.window import Window
from models import _calibration, _forest, _learning
from models._features import METRICS
from models.isolation_forest import _COLUMNS, DELAY, FIRST_TRAINING, LASTING, PHASE, SETTLED, IsolationForest

ROOT = Path(__file__).parents[1]
START = 1_700_000_000.0
STEP = 15.0
HOUR = 3600.0
MINUTE = 60.0
UTILIZATION, TRAFFIC, MEMORY, POWER, TEMPERATURE, CLOCK = range(6)
A_DAY = 1680.0
"""Hours of rarity that a budget of 0.1 false alarms a GPU and week stands for."""


# -- telemetry ----------------------------------------------------------------------------------------------------------------
def noise(count: int, seconds: float, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """Noise that remembers itself for so many *seconds*."""
    keep = np.exp(-STEP / seconds)
    steps = rng.normal(0.0, deviation * np.sqrt(1 - keep**2), count)
    out, value = np.empty(count), rng.normal(0.0, deviation)
    for n in range(count):
        value = keep * value + steps[n]
        out[n] = value
    return out


def training(hours: float, seed: int, *, checkpoints: bool = True) -> np.ndarray:
    """Readings of a GPU that trains, (frames, METRICS): slow and fast noise, a room that warms up by day, a checkpoint every 20 minutes."""
    rng, count = np.random.default_rng(seed), int(hours * HOUR / STEP)
    second = STEP * np.arange(count)
    busy = np.clip(97 + noise(count, 30, 1.5, rng), 0, 100)
    traffic = 45 + noise(count, 60, 2, rng)
    watts = 398 + 4 * (busy - 97) + noise(count, 40, 8, rng) + noise(count, 3000, 4, rng)
    clock = 1755 + noise(count, 40, 8, rng)
    writing = checkpoints & ((second + rng.integers(1200)) % 1200 < 45)
    busy, watts, traffic = np.where(writing, 40, busy), np.where(writing, watts - 180, watts), np.where(writing, 0.4 * traffic, traffic)
    room = 35 + 3 * np.sin(2 * np.pi * second / (24 * HOUR) + rng.uniform(0, 2 * np.pi))
    degrees, warm = np.empty(count), 62.0
    for n in range(count):
        warm += (1 - np.exp(-STEP / 90)) * (room[n] + 0.068 * watts[n] - warm)
        degrees[n] = warm
    return np.column_stack([busy, traffic, np.full(count, 60e9), watts, degrees.round(), clock])


def collapsed(readings: np.ndarray, second: float, watts: float = 212.0) -> np.ndarray:
    """From *second* on the power is gone and the card cools down, while the utilisation stays where it was: a hang that spins."""
    out, first = readings.copy(), int(second / STEP)
    count = len(out) - first
    out[first:, POWER] += watts - 398.0
    out[first:, TEMPERATURE] -= np.round(12.0 * (1 - np.exp(-STEP * np.arange(count) / 90)))
    return out


# -- a host that is looked at -------------------------------------------------------------------------------------------------
class Host:
    """A host whose devices a model looks at with every frame."""

    def __init__(self, model: IsolationForest, devices: Sequence[str] = ("a",), host: str = "node-a", start: float = START) -> None:
        self.model, self.name, self.now = model, host, start
        self.devices = tuple(Device(f"GPU-{name}") for name in devices)
        self.inventory = Inventory(METRICS)

    def frame(self, readings: np.ndarray, owner: str | None = None) -> Scores:
        """The scores after one more frame of *readings* (devices, METRICS)."""
        processes = {device.uuid: (Process(1, job=owner),) for device in self.devices} if owner else {}
        self.inventory.take(Frame(self.name, self.now, self.devices, METRICS, readings, processes=processes))
        self.now += STEP
        return self.model.score(self.window())

    def window(self) -> Window:
        host, ring = self.inventory.hosts[self.name], self.inventory.devices
        rows = self.inventory.rows("device", [host])
        subjects = [self.inventory.subject("device", row) for row in rows.tolist()]
        now, interval = np.full(len(rows), host.clock.now), np.full(len(rows), host.clock.interval)
        return Window(ring, rows, subjects, heads=ring.head(host.name, host.clock.now), now=now, interval=interval)

    def run(self, *readings: np.ndarray, owner: str | None = None) -> list[Scores]:
        """The scores of every frame of *readings*, (frames, METRICS) a device."""
        return [self.frame(np.stack(now), owner) for now in zip(*readings, strict=True)]


def rarities(scores: Iterable[Scores]) -> np.ndarray:
    """(looks, devices)"""
    return np.array([score.rarity for score in scores])


def alarms(rarity: np.ndarray, hold: float = 120.0) -> list[int]:
    """The looks at which the rarity of a device has been beyond the budget for *hold* seconds."""
    beyond, out = 0, []
    for n, value in enumerate(rarity):
        beyond = beyond + 1 if value >= A_DAY else 0
        if beyond == hold / STEP + 1:
            out.append(n)
    return out


LEARNT_HOURS = (FIRST_TRAINING + PHASE + 2 * DELAY) / HOUR
"""By then a device has its first forest."""


class Postponed(Executor):
    """Computes only when it is told to, or never."""

    def __init__(self) -> None:
        self.asked: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = Impatient()
        self.asked.append((future, lambda: fn(*args, **kwargs)))
        return future

    def finish(self) -> None:
        for future, compute in self.asked:
            future.set_result(compute())
        self.asked.clear()


class Impatient(Future[Any]):
    """Fails at once where a caller would have to wait."""

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            raise TimeoutError("not yet")
        return super().result(0)


# -- the forest ---------------------------------------------------------------------------------------------------------------
@st.composite
def samples(draw: st.DrawFn, rows: Sequence[int] = (2, 7, 60, 300, 700)) -> np.ndarray:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    features = draw(st.integers(1, 20))
    made = rng.normal(size=(draw(st.sampled_from(rows)), features)) * 10.0 ** rng.integers(-3, 10, features)
    constant = rng.random(features) < 0.2
    made[:, constant] = made[0, constant]
    return np.repeat(made, draw(st.integers(1, 2)), axis=0).astype(np.float32)


@settings(max_examples=20)
@given(samples(), st.integers(0, 2**31))
def test_numpy_scores_equal_those_of_scikit_learn(sample: np.ndarray, seed: int) -> None:
    """The flat trees send every point to the leaf that scikit-learn's send it to, in the sample and far from it."""
    size = min(256, len(sample))
    theirs = SklearnForest(n_estimators=16, max_samples=size, random_state=seed).fit(sample)
    points = np.concatenate([sample[:200], sample[:50] * 3, sample[:50][::-1] - 1])

    forests = _forest.flattened([tree.tree_ for tree in theirs.estimators_], sample.shape[1])
    ours = 2.0 ** (-_forest.paths(forests, np.zeros(len(points), np.intp), points).mean(axis=1) / _forest.expected_path(size))

    np.testing.assert_allclose(ours, -theirs.score_samples(points), rtol=0, atol=1e-9)


@settings(max_examples=8)
@given(samples(rows=(20, 300, 700)), st.integers(0, 2**31))
def test_credits_sum_to_the_difference_they_explain(sample: np.ndarray, seed: int) -> None:
    """What the features add up to is the score of a point minus the score of the mean path of the sample."""
    learnt = _learning.learn(sample, np.full(sample.shape[1], 1e-3), seed)
    points = np.concatenate([sample[:50], sample[:20] * 100])
    slots = np.zeros(len(points), np.intp)

    explained = _learning.explain(learnt.forests, learnt.usual, slots, points).sum(axis=1)
    scores = _learning.score(learnt.forests, learnt.usual, slots, points)

    np.testing.assert_allclose(scores + _forest.mean_path(learnt.forests, slots) / learnt.usual.unit, explained, rtol=0, atol=1e-9)


def test_each_row_is_scored_by_its_own_forest() -> None:
    """Two devices whose habits are each other's opposite are each usual to their own forest, in one pass."""
    rng = np.random.default_rng(0)
    low, high = rng.normal(-5, 1, (500, 3)).astype(np.float32), rng.normal(5, 1, (500, 3)).astype(np.float32)
    one, other = (_learning.learn(sample, np.full(3, 0.1), 1) for sample in (low, high))
    forests = _forest.Forests(*(np.concatenate(pair) for pair in zip(one.forests, other.forests, strict=True)))
    usual = _learning.Usual(*(np.concatenate(pair) for pair in zip(one.usual, other.usual, strict=True)))

    own = _learning.score(forests, usual, np.array([0, 1]), np.array([low[0], high[0]]))
    swapped = _learning.score(forests, usual, np.array([1, 0]), np.array([low[0], high[0]]))

    assert (own < -0.5).all()
    assert (swapped > 0.0).all()


def test_farther_out_is_stranger() -> None:
    """Beyond everything seen the score goes on rising, which a plain isolation forest's does not, and stops at a bound."""
    sample = np.random.default_rng(0).normal(0, 1, (600, 5)).astype(np.float32)
    learnt = _learning.learn(sample, np.full(5, 0.1), 0)
    points = np.zeros((5, 5), np.float32)
    points[:, 2] = (5, 10, 100, 1e5, 1e6)

    scores = _learning.score(learnt.forests, learnt.usual, np.zeros(5, np.intp), points)

    assert (np.diff(scores[:4]) > 0.05).all()
    assert scores[3] == scores[4]


# -- calibration --------------------------------------------------------------------------------------------------------------
def remembered(scores: np.ndarray) -> np.ndarray:
    return _calibration.histogram(scores)[None] * np.float32(len(scores))


def test_chance_is_that_of_the_past() -> None:
    """Where the past has enough to say, the chance of a score is the share of looks that scored as much, to within a bin."""
    scores = np.random.default_rng(1).normal(-1, 0.1, 20_000)
    histogram = remembered(scores)

    for score in (-1.2, -1.0, -0.9, -0.85):
        assert (scores >= score).mean() == pytest.approx(_calibration.chance(histogram, np.array([score]))[0], rel=0.1)


@pytest.mark.parametrize("tail", ["exponential", "normal", "uniform"])
def test_chances_in_the_tail_are_cautious(tail: str) -> None:
    """Scores that the truth has once in 10,000 looks are never called rarer after 1,000 looks, for tails up to an exponential one."""
    rng = np.random.default_rng(2)
    draw = {"exponential": rng.exponential, "normal": rng.standard_normal, "uniform": rng.random}[tail]
    once = np.quantile(draw(size=2_000_000), 1 - 1e-4)

    called = [_calibration.chance(remembered(draw(size=1000) / 8 - 1), np.array([once / 8 - 1]))[0] for _ in range(200)]

    assert 0.95 <= np.mean(np.array(called) >= 0.5e-4)
    assert 1e-4 <= np.mean(called)


def test_nothing_is_rarer_than_the_past_can_show() -> None:
    """However far out a score is, its chance is at least a hundredth of one in all remembered looks."""
    histogram = remembered(np.random.default_rng(3).normal(-1, 0.1, 1000))

    assert [1e-5] == pytest.approx(_calibration.chance(histogram, np.array([50.0])))


def test_a_score_that_is_not_known_has_no_chance() -> None:
    """NaN stays NaN, and an empty memory calls nothing strange."""
    assert np.isnan(_calibration.chance(remembered(np.zeros(10)), np.array([np.nan]))).all()
    assert 0.01 <= _calibration.chance(np.zeros((1, _calibration.BINS), np.float32), np.array([0.5]))[0]


def test_memory_fades() -> None:
    """What was usual once and is not any more loses its say; the memory never holds more looks than it should."""
    histogram, row = remembered(np.full(1000, -0.5)) * 40, np.zeros(1, np.intp)
    before = _calibration.chance(histogram, np.array([-0.5]))[0]

    for _ in range(50_000):
        _calibration.record(histogram, row, np.array([-1.2]))

    assert 1.0 == before
    assert 0.25 < _calibration.chance(histogram, np.array([-0.5]))[0] < 0.35
    assert histogram.sum() <= 1.01 * _calibration.MEMORY_LOOKS


# -- a day --------------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def day() -> list[Scores]:
    """Four GPUs train for a day; at its end the power of the first collapses, and an hour goes by."""
    hours = [training(25, seed) for seed in range(4)]
    hours[0] = collapsed(hours[0], 24 * HOUR)
    return Host(IsolationForest(), "abcd").run(*hours)


def test_a_healthy_day_keeps_the_budget(day: list[Scores]) -> None:
    """Four GPUs in a day may raise 0.06 alarms at 0.1 a week each, so they raise none, although they were judged most of the time."""
    rarity = rarities(day[: int(24 * HOUR / STEP)])

    assert [[]] * 4 == [alarms(column) for column in rarity.T]
    assert 0.9 < np.mean(~np.isnan(rarity))


def test_rarity_means_what_it_says(day: list[Scores]) -> None:
    """Of the looks at healthy GPUs about a hundredth are as rare as a hundred looks, and no more than twice as many."""
    rarity = rarities(day[: int(24 * HOUR / STEP)])
    judged = rarity[~np.isnan(rarity)]

    assert 0.001 < np.mean(judged >= 100 * STEP / HOUR) < 0.02
    assert np.mean(judged >= 1000 * STEP / HOUR) < 0.002


def test_a_power_collapse_is_found_within_minutes(day: list[Scores]) -> None:
    """212 W at the utilisation that used to draw 398 W is an alarm within six minutes, and power is what is strange about it."""
    first = int(24 * HOUR / STEP)
    (found, *_) = alarms(rarities(day)[first:, 0])
    scores = day[first + found]

    assert found * STEP <= 6 * MINUTE
    assert "power_watts" == scores.metrics[np.argmax(scores.share[0])]
    assert scores.share[0, POWER] > 0.5
    assert not scores.swings[0, POWER]
    assert 212 == pytest.approx(scores.value[0, POWER], abs=15)
    assert 398 == pytest.approx(scores.usual[0, POWER], abs=15)


def test_neighbours_of_a_collapse_stay_clear(day: list[Scores]) -> None:
    """The other GPUs of the host are judged by their own history only."""
    assert [[]] * 3 == [alarms(column) for column in rarities(day)[:, 1:].T]


def test_shares_sum_to_one(day: list[Scores]) -> None:
    """Whatever is strange enough to be explained is explained fully, and nothing else is."""
    share, rarity = np.concatenate([s.share for s in day]), np.concatenate([s.rarity for s in day])
    told = rarity >= 1.0

    np.testing.assert_allclose(share[told].sum(axis=1), 1.0)
    assert np.isnan(share[~told]).all()
    assert told.any()


# -- what it does not know ----------------------------------------------------------------------------------------------------
def test_not_yet_is_not_normal() -> None:
    """Before two hours at work there is no rarity, which is not the same as none."""
    rarity = rarities(Host(IsolationForest()).run(training(LEARNT_HOURS, 1)))[:, 0]

    assert np.isnan(rarity[: int(FIRST_TRAINING / STEP)]).all()
    assert not np.isnan(rarity[-1])


def test_hours_at_rest_teach_nothing() -> None:
    """A GPU that rests for three hours knows no more of its work than before, and a device that has learnt is clear while it rests."""
    rest = np.tile([0.0, 0.0, 1e9, 60.0, 35.0, 345.0], (int(3 * HOUR / STEP), 1))
    host = Host(IsolationForest())

    before, work, after = host.run(rest), host.run(training(LEARNT_HOURS, 1)), host.run(rest[:40])

    assert np.isnan(rarities(before)).all()
    assert np.isnan(rarities(work[: int(1.9 * HOUR / STEP)])).all()
    assert (rarities(after)[-20:] == 0.0).all()


def test_missing_metrics_do_not_poison_the_rest() -> None:
    """A card without power and clock readings is judged by the others, and finds what they show."""
    readings = training(4, 1)
    readings[:, [POWER, CLOCK]] = np.nan
    readings[-60:, MEMORY] = 20e9

    scores = Host(IsolationForest()).run(readings)

    assert not np.isnan(rarities(scores[-300:])).any()
    assert "memory_used_bytes" == METRICS[np.argmax(scores[-30].share[0])]
    assert np.isnan(scores[-30].value[0, POWER])


def test_a_sensor_that_falls_silent_is_not_strange() -> None:
    """Half of the metrics may go missing without an alarm and without losing the judgement; with one left it cannot tell."""
    readings = training(LEARNT_HOURS + 1, 1)
    silent, last = readings.copy(), int(HOUR / STEP)
    silent[-last:, [POWER, TEMPERATURE]] = np.nan
    deaf = readings.copy()
    deaf[-last:, TRAFFIC:] = np.nan

    heard = rarities(Host(IsolationForest()).run(silent))[-100:, 0]
    unheard = rarities(Host(IsolationForest()).run(deaf))[-100:, 0]

    assert (heard < 24.0).all()
    assert np.isnan(unheard).all()


def test_a_device_without_readings_is_not_known() -> None:
    """Nothing read is "cannot tell", and disturbs no neighbour."""
    readings = training(LEARNT_HOURS, 1)

    rarity = rarities(Host(IsolationForest(), "ab").run(readings, np.full_like(readings, np.nan)))

    assert not np.isnan(rarity[-1, 0])
    assert np.isnan(rarity[:, 1]).all()


def test_no_rows_no_scores() -> None:
    """A host without devices is scored as nothing, without an error."""
    host = Host(IsolationForest())
    host.frame(training(1, 0)[:1])
    empty = host.window().of(np.empty(0, np.intp))

    assert (0, len(METRICS)) == IsolationForest().score(empty).share.shape


def test_another_job_is_not_judged_at_once() -> None:
    """For half an hour after another job has come the model has no opinion; the same job going on is no news."""
    host = Host(IsolationForest())
    host.run(training(LEARNT_HOURS, 1), owner="llm")

    same = rarities(host.run(training(0.5, 2), owner="llm"))
    other = rarities(host.run(training(1, 3), owner="vision"))

    assert not np.isnan(same).any()
    assert np.isnan(other[: int(SETTLED / STEP)]).all()
    assert not np.isnan(other[int(SETTLED / STEP) :]).any()


def test_a_hole_in_the_recording_is_not_a_change() -> None:
    """A GPU that goes on as usual after a night without recording is not strange: what lies before is not "the half hour before"."""
    host = Host(IsolationForest())
    host.run(training(LEARNT_HOURS, 1, checkpoints=False))
    host.now += 8 * HOUR
    later = training(0.5, 2, checkpoints=False)

    rarity = rarities(host.run(later))[:, 0]

    assert (rarity < 24.0).all()


# -- learning -----------------------------------------------------------------------------------------------------------------
def test_what_is_strange_is_not_learnt_at_once() -> None:
    """An hour of collapse is as strange at its end as a while after its beginning; what lasts for hours becomes usual."""
    hours = LEARNT_HOURS + 2
    readings = collapsed(training(hours + LASTING / HOUR + 3, 1, checkpoints=False), hours * HOUR)
    first = int(hours * HOUR / STEP)

    rarity = rarities(Host(IsolationForest()).run(readings))[:, 0]

    assert (rarity[first + 20 : first + int(HOUR / STEP)] > 24.0).all()
    assert (rarity[-int(0.5 * HOUR / STEP) :] < 24.0).all()


def test_same_seed_same_scores() -> None:
    """Two models say the same of the same frames; one with another seed says something a little different."""
    readings = training(LEARNT_HOURS + 1, 1)
    one, same, other = (rarities(Host(IsolationForest(seed=seed)).run(readings)) for seed in (1, 1, 2))

    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other, equal_nan=True)


def test_neither_order_nor_company_matters() -> None:
    """A device gets the same scores alone, among others, and in another order."""
    hours = {name: training(LEARNT_HOURS + 1, n) for n, name in enumerate("abc")}

    def of_a(names: str) -> np.ndarray:
        scores = Host(IsolationForest(), names).run(*(hours[name] for name in names))
        return np.array([np.append(score.rarity[names.index("a")], score.share[names.index("a")]) for score in scores])

    alone = of_a("a")
    np.testing.assert_array_equal(alone, of_a("abc"))
    np.testing.assert_array_equal(alone, of_a("cba"))


def test_a_device_is_known_by_host_and_uuid() -> None:
    """Two hosts with a device of the same name have a history each."""
    model, readings = IsolationForest(), training(LEARNT_HOURS, 1)
    Host(model, host="node-a").run(readings)

    rarity = rarities(Host(model, host="node-b").run(readings[:40]))

    assert np.isnan(rarity).all()


def test_a_look_repeated_changes_nothing() -> None:
    """Asked twice about the same moment, the model learns once: all later answers are as if it had been asked once."""
    readings = training(LEARNT_HOURS + 0.5, 1)
    once, twice = Host(IsolationForest()), Host(IsolationForest())

    expected, actual = [], []
    for now in readings:
        expected.append(once.frame(now[None]))
        actual.append(twice.frame(now[None]))
        twice.model.score(twice.window())

    np.testing.assert_array_equal(rarities(expected), rarities(actual))


def test_forgetting_a_device() -> None:
    """A device that was forgotten is a new one when it returns; forgetting a stranger is no error."""
    host = Host(IsolationForest())
    host.run(training(LEARNT_HOURS, 1))
    host.model.forget("node-a", "GPU-a")
    host.model.forget("node-a", "GPU-z")

    assert np.isnan(host.frame(training(1, 1)[:1]).rarity).all()


def test_memory_is_bounded() -> None:
    """A device takes less than 300 KiB, however long it is watched."""
    size = sum(np.dtype(column.dtype).itemsize * int(np.prod(column.shape)) for column in _COLUMNS.values())

    assert size < 300 * 1024


# -- training elsewhere -------------------------------------------------------------------------------------------------------
def test_a_worker_process_gives_the_same_scores() -> None:
    """Trained in a process of its own or at once: the scores are the same, look by look."""
    readings = [training(LEARNT_HOURS + 0.5, n) for n in range(2)]

    inline = Host(IsolationForest(), "ab").run(*readings)
    elsewhere = Host(IsolationForest(executor=TrainingProcess()), "ab").run(*readings)

    np.testing.assert_array_equal(rarities(inline), rarities(elsewhere))
    np.testing.assert_array_equal([s.share for s in inline], [s.share for s in elsewhere])


def test_a_forest_is_used_from_a_fixed_moment_on() -> None:
    """It makes no difference whether training ended at once or at the last moment, and until then nobody waits for it."""
    readings = training(LEARNT_HOURS + 0.5, 1)
    worker = Postponed()
    host = Host(IsolationForest(executor=worker))
    scores, waited = [], 0
    for now in readings:
        waited = waited + 1 if worker.asked else 0
        if waited == DELAY / STEP - 1:
            worker.finish()
        scores.append(host.frame(now[None]))

    np.testing.assert_array_equal(rarities(Host(IsolationForest()).run(readings)), rarities(scores))


def test_training_that_never_ends_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that hangs costs its forest and a line in the log, not the service; the model asks again later."""
    worker = Postponed()
    host = Host(IsolationForest(executor=worker))

    rarity = rarities(host.run(training(2 * LEARNT_HOURS + 0.5, 1)))

    assert np.isnan(rarity).all()
    assert 2 == len(worker.asked)
    assert "training failed (TimeoutError" in caplog.text


def test_training_that_fails_keeps_the_old_forest(caplog: pytest.LogCaptureFixture) -> None:
    """With an executor that is shut down the model goes on with what it has."""
    host = Host(IsolationForest())
    host.run(training(LEARNT_HOURS, 1))
    broken = Postponed()
    broken.submit = lambda *args, **kwargs: (_ for _ in ()).throw(RuntimeError("cannot schedule new futures"))  # type: ignore[method-assign]
    host.model._executor = broken

    rarity = rarities(host.run(training(3, 2)))

    assert not np.isnan(rarity).any()
    assert "cannot schedule new futures" in caplog.text


def test_scoring_needs_no_scikit_learn() -> None:
    """Only training loads it: a service that trains elsewhere stays small."""
    code = "import sys, models.isolation_forest; print('sklearn' in sys.modules, 'scipy' in sys.modules)"

    printed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert "False False" == printed.strip()


def test_asking_for_training_does_not_wait() -> None:
    """Handing a sample to the worker process returns in a fraction of the time that the training takes."""
    sample = np.random.default_rng(0).normal(50, 5, (1024, 16)).astype(np.float32)
    begin = time.perf_counter()
    future = TrainingProcess().submit(IsolationForest.learn, (sample, 1))
    asked = time.perf_counter() - begin
    made = future.result(120)

    assert asked < 0.5 * (time.perf_counter() - begin)
    assert set(made) < set(_COLUMNS)


# -- the file -----------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def learnt() -> Host:
    host = Host(IsolationForest(), "ab")
    host.run(training(LEARNT_HOURS, 1), training(LEARNT_HOURS, 2))
    return host


@pytest.fixture
def file(learnt: Host, tmp_path: Path) -> Path:
    learnt.model.save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


def test_round_trip(tmp_path: Path) -> None:
    """A model that was saved and loaded goes on as if nothing had happened, its next forest included."""
    readings = training(LEARNT_HOURS + 2.5, 1)
    first, rest = readings[: int(LEARNT_HOURS * HOUR / STEP)], readings[int(LEARNT_HOURS * HOUR / STEP) :]
    uninterrupted, restarted = Host(IsolationForest()), Host(IsolationForest())
    uninterrupted.run(first)
    restarted.run(first)
    restarted.model.save(tmp_path / "model.npz")
    restarted.model = IsolationForest()
    restarted.model.load(tmp_path / "model.npz")

    np.testing.assert_array_equal(rarities(uninterrupted.run(rest)), rarities(restarted.run(rest)))


def test_training_under_way_is_asked_for_again(tmp_path: Path) -> None:
    """A forest that was still being grown when the state was saved is asked for by the process that loads it."""
    worker = Postponed()
    host = Host(IsolationForest(executor=worker))
    readings = iter(training(LEARNT_HOURS, 1))
    while not worker.asked:
        host.frame(next(readings)[None])
    host.model.save(tmp_path / "model.npz")
    again = Postponed()
    host.model = IsolationForest(executor=again)
    host.model.load(tmp_path / "model.npz")

    host.frame(next(readings)[None])

    assert 1 == len(again.asked)


def test_nothing_learnt_is_saved_too(tmp_path: Path) -> None:
    """A model that has seen nothing saves a file that loads."""
    IsolationForest().save(tmp_path / "model.npz")
    IsolationForest().load(tmp_path / "model.npz")

    assert ["model.npz"] == [path.name for path in tmp_path.iterdir()]


def test_devices_long_gone_are_not_saved(tmp_path: Path) -> None:
    """A device that was last seen a week before the newest is left out of the file."""
    model = IsolationForest()
    Host(model, "a", start=START).frame(training(1, 0)[:1])
    Host(model, "b", host="node-b", start=START + 8 * 24 * HOUR).frame(training(1, 0)[:1])
    model.save(tmp_path / "model.npz")
    loaded = IsolationForest()
    loaded.load(tmp_path / "model.npz")

    assert [("node-b", "GPU-b")] == list(loaded._table.slots)


def changed(path: Path, **arrays: Any) -> None:
    """Replace entries of the file, without a fitting checksum."""
    with np.load(path) as file:
        whole = {name: file[name] for name in file}
    whole.update(arrays)
    np.savez(path, **{name: array for name, array in whole.items() if array is not None})


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: path.unlink(), "No such file"),
    "empty": (lambda path: path.write_bytes(b""), "damaged"),
    "a text": (lambda path: path.write_text("not an archive"), "damaged"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-1000]), "damaged"),
    "a flipped byte": (flip, "damaged"),
    "another version": (lambda path: changed(path, layout=np.array("gpuwarden isolation forest 0")), "this version reads"),
    "another value": (lambda path: changed(path, at=np.zeros(2)), "checksum"),
    "another shape": (lambda path: changed(path, histogram=np.zeros((2, 3), np.float32)), "histogram is float32"),
    "a column too few": (lambda path: changed(path, learnt=None), "columns are missing"),
    "a column too many": (lambda path: changed(path, more=np.zeros(2)), "columns are missing or unknown"),
    "a feature beyond": (lambda path: changed(path, feature=np.full((2, 64, 255), 200, np.uint8)), "feature has values beyond"),
    "a leaf beyond": (lambda path: changed(path, leaf=np.full((2, 64, 256), 65535, np.uint16)), "leaf has values beyond"),
    "a negative count": (lambda path: changed(path, learnt=np.array([-1, 5])), "learnt has values beyond"),
    "a device twice": (lambda path: changed(path, uuids=np.array(["GPU-a", "GPU-a"])), "twice"),
    "no names": (lambda path: changed(path, hosts=np.array([1, 2])), "not named"),
    "objects": (lambda path: changed(path, owner=np.array([{}, {}], object)), "damaged"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_a_clear_error(file: Path, damage: str) -> None:
    """The error names the file, what is wrong and the way out; the model then starts cold and works."""
    spoil, reason = DAMAGE[damage]
    spoil(file)
    host = Host(IsolationForest())

    with pytest.raises(SourceError, match=rf"model\.npz: .*{reason}.*the model learns anew"):
        host.model.load(file)

    assert np.isnan(host.frame(training(1, 0)[:1]).rarity).all()


def test_a_file_that_cannot_be_loaded_changes_nothing(file: Path, learnt: Host) -> None:
    """A model keeps what it knows when a file turns out to be damaged."""
    flip(file)
    before = learnt.model.score(learnt.window()).rarity

    with pytest.raises(SourceError):
        learnt.model.load(file)

    np.testing.assert_array_equal(before, learnt.model.score(learnt.window()).rarity)


def test_a_failed_save_leaves_the_old_file(file: Path, learnt: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up while saving costs the new state, not the old one, and leaves nothing behind."""

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        learnt.model.save(file)

    IsolationForest().load(file)
    assert ["model.npz"] == [path.name for path in file.parent.iterdir()]
