"""The model's seat: scores by row, training elsewhere, and plain series."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.errors import ConfigError
from detector.model import Scores, TrainingProcess, score_series, train

ROOT = Path(__file__).parents[1]


def daily(rows: int, seed: int = 0) -> np.ndarray:
    """A series with a rhythm of 288 rows and noise."""
    rng = np.random.default_rng(seed)
    return 50 + 10 * np.sin(2 * np.pi * np.arange(rows) / 288) + rng.normal(0, 1, rows)


def test_scores_of_some_rows() -> None:
    """Taking rows takes them from every array."""
    table = np.arange(6.0).reshape(3, 2)
    scores = Scores(np.array([1.0, 2.0, 3.0]), table, table + 10, table + 20, table > 2, ("power_watts", "sm_clock_mhz"))

    part = scores.of(np.array([2, 0]))

    assert [3.0, 1.0] == part.rarity.tolist()
    assert [[4.0, 5.0], [0.0, 1.0]] == part.share.tolist()
    assert [[14.0, 15.0], [10.0, 11.0]] == part.value.tolist()
    assert [[24.0, 25.0], [20.0, 21.0]] == part.usual.tolist()
    assert [[True, True], [False, False]] == part.swings.tolist()
    assert ("power_watts", "sm_clock_mhz") == part.metrics


# -- training elsewhere -------------------------------------------------------------------------------------------------------
def test_tasks_run_in_a_process_of_their_own() -> None:
    """Each task has its own process, which is not ours and ends with the task."""
    with TrainingProcess() as worker:
        first, second = worker.submit(os.getpid), worker.submit(os.getpid)

        assert 3 == len({os.getpid(), first.result(60), second.result(60)})


def test_a_process_that_dies_takes_no_other_task_with_it() -> None:
    """A worker that is killed fails its own task; the next one is done."""
    with TrainingProcess() as worker:
        dead, alive = worker.submit(os._exit, 9), worker.submit(abs, -1)

        with pytest.raises(Exception, match="terminated abruptly"):
            dead.result(60)
        assert 1 == alive.result(60)


def test_training_names_the_model() -> None:
    """A model that does not exist is a clear error, in whatever process it is asked for."""
    with pytest.raises(ConfigError, match='there is no model "isolation_forrest"; did you mean "isolation_forest"'):
        train("isolation_forrest", [])


def test_the_seat_is_light() -> None:
    """The module loads neither scikit-learn nor the rules: a window knows it."""
    code = "import sys, detector.model; print(*sorted({'sklearn', 'detector.discover', 'detector.rule'} & set(sys.modules)))"

    assert "" == subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


# -- plain series -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("values", [daily(900), np.column_stack([daily(900), daily(900, 1), np.ones(900)])], ids=["one", "three"])
def test_one_score_a_row(values: np.ndarray) -> None:
    """Each row gets a score in [0, 1], and the first rows, from which it learns, get 0: no opinion."""
    scores = score_series(values)

    assert (900,) == scores.shape
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (scores[:200] == 0).all()
    assert (scores[200:] > 0).any()


def test_a_spike_is_the_strangest() -> None:
    """A jump in one of three channels has the highest score of all rows."""
    values = np.column_stack([daily(1500), daily(1500, 1), daily(1500, 2)])
    values[1200, 1] += 60

    assert 1200 == np.argmax(score_series(values, period_seconds=300))


@settings(max_examples=5)
@given(st.integers(1, 499), st.sampled_from([None, 60.0, 300.0]), st.integers(0, 2**31))
def test_the_future_changes_nothing(cut: int, period: float | None, seed: int) -> None:
    """Whatever comes after a row, its score stays."""
    values = np.column_stack([daily(500, seed), daily(500, seed + 1)])
    other = values.copy()
    other[cut:] = np.random.default_rng(seed).normal(0, 1000, (500 - cut, 2))

    whole, changed, part = (score_series(series, period_seconds=period)[:cut] for series in (values, other, values[:cut]))

    np.testing.assert_array_equal(whole, changed)
    np.testing.assert_array_equal(whole, part)


def test_missing_values_are_no_opinion() -> None:
    """A row without any value has the score 0, and the rows after it are scored as ever."""
    values = daily(900)
    values[500:520] = np.nan
    values[600] = np.inf

    scores = score_series(values)

    assert (scores[500:520] == 0).all()
    assert 0 == scores[600]
    assert (scores[530:590] < 0.6).all()


@pytest.mark.parametrize(
    "values",
    [np.empty(0), np.empty((0, 3)), np.zeros(3), np.full(500, 7.0), np.full(500, np.nan), np.full(500, 1e300), np.arange(500)],
    ids=["none", "no rows", "three", "constant", "nothing", "huge", "integers"],
)
def test_odd_series_are_scored(values: np.ndarray) -> None:
    """Too short, constant, empty or huge: there is a score a row, and none of them is an alarm."""
    scores = score_series(values)

    assert len(values) == len(scores)
    assert (scores < 0.6).all()


def test_a_constant_that_moves_is_strange() -> None:
    """A series that never moved is strange the moment it does."""
    values = np.full(600, 7.0)
    values[500:] = 7.1

    scores = score_series(values)

    assert scores[500] > scores[:500].max() + 0.3


@pytest.mark.parametrize("values", [np.zeros((2, 2, 2)), 3.0, np.zeros((5, 0))])
def test_other_shapes_are_refused(values: object) -> None:
    """Rows of features are all it takes."""
    with pytest.raises(ValueError, match=r"values must be shaped \(n,\) or \(n, features\), not"):
        score_series(values)  # type: ignore[arg-type]


@pytest.mark.parametrize("period", [0.0, -1.0, float("nan"), float("inf")])
def test_a_period_is_a_positive_number(period: float) -> None:
    """The time between two rows, where it is given, is a time."""
    with pytest.raises(ValueError, match="period_seconds must be a positive number of seconds"):
        score_series(np.zeros(3), period_seconds=period)
