"""The rule that turns the model's scores into answers."""

from __future__ import annotations

import numpy as np
import pytest

from detector.discover import discover, model_class
from detector.frame import Device
from detector.inventory import Inventory
from detector.model import Scores
from detector.rule import Verdict
from detector.window import Subject, Window
from rules.anomaly import Anomaly

METRICS = ("utilization_percent", "memory_used_bytes", "power_watts", "temperature_celsius", "sm_clock_mhz")
NAN = float("nan")


def scores(rarity: list[float], share: tuple[float, ...] = (0, 0, 0.7, 0.3, 0), *, swings: tuple[bool, ...] = (False,) * 5) -> Scores:
    """Scores of as many rows as there are rarities, with the same explanation each."""
    rows = len(rarity)
    value, usual = (97.0, 40 * 1024.0**3, 212.0, 51.0, 1750.0), (97.0, 60 * 1024.0**3, 398.0, 62.0, 1755.0)
    table = (np.tile(np.array(column, np.float64), (rows, 1)) for column in (share, value, usual))
    return Scores(np.array(rarity), *table, np.tile(swings, (rows, 1)), METRICS)


def window(given: Scores | None, rows: int = 1) -> Window:
    """Devices of which nothing is known but their scores."""
    ring = Inventory(METRICS).devices
    places = np.array([ring.add("node-a", n, 0.0) for n in range(rows)], np.intp)
    subjects = [Subject("node-a", Device(f"GPU-{n}")) for n in range(rows)]
    made = Window(ring, places, subjects, heads=ring.head("node-a", 0.0), now=np.zeros(rows), interval=np.ones(rows))
    made.scores = given
    return made


def told(given: Scores | None, rarity: float = 2000.0) -> str:
    rule = Anomaly()
    return rule.tell(window(given), Verdict(np.array([True]), np.array([rarity]), 1680.0)).summary


def answers(rule: Anomaly, rarity: list[float]) -> list[bool | None]:
    """Firing, clear, or None for "cannot tell"."""
    verdict = rule.check(window(scores(rarity), len(rarity)))
    return [bool(firing) if known else None for firing, known in zip(verdict.firing, verdict.answerable(), strict=True)]


def test_the_budget_is_the_threshold() -> None:
    """0.1 false alarms a GPU and week are one in 1680 hours; rarer than that fires, and a larger budget fires earlier."""
    assert [False, True, True] == answers(Anomaly(), [1679.0, 1680.0, 5000.0])
    assert [False, True] == answers(Anomaly(false_alarms_per_gpu_week=1.0), [167.0, 168.0])


def test_not_yet_is_not_normal() -> None:
    """Where the model has no opinion the rule cannot tell, and the incident stays as it was."""
    assert [None, False, True] == answers(Anomaly(), [NAN, 0.0, 1e6])


def test_without_a_model_it_cannot_tell() -> None:
    """A window without scores is not a window of healthy devices."""
    verdict = Anomaly().check(window(None, 3))

    assert [False] * 3 == verdict.answerable().tolist()


def test_two_metrics_are_named_with_what_is_usual() -> None:
    """The sentence says by how much and against what, for the two metrics that explain most, and they are the evidence."""
    story = Anomaly().tell(window(scores([2000.0])), Verdict(np.array([True]), np.array([2000.0]), 1680.0))

    assert "GPU unlike its own history: power 212 W where 398 W is usual and temperature 51 degC where 62 degC is usual" == story.summary
    assert "once in 2,000 hours" in story.description
    assert "power 70 %, temperature 30 %" in story.description
    assert ("power_watts", "temperature_celsius") == story.evidence
    assert "hours" == story.unit


def test_a_metric_that_explains_nothing_is_not_named() -> None:
    """One metric alone is told alone; a share of a few percent is noise."""
    assert "GPU unlike its own history: memory in use 40.0 GiB where 60.0 GiB is usual" != told(scores([1.0], (0, 0.97, 0.03, 0, 0)))
    assert "GPU unlike its own history: memory in use 40 GiB where 60 GiB is usual" == told(scores([1.0], (0, 0.97, 0.03, 0, 0)))


def test_unrest_is_told_as_unrest() -> None:
    """Where a metric moves more than it used to, the numbers are how much it moves."""
    given = scores([1.0], (0, 0, 1, 0, 0), swings=(False, False, True, False, False))

    assert "GPU unlike its own history: power swings by 212 W where 398 W is usual" == told(given)


@pytest.mark.parametrize("given", [None, scores([0.0], (NAN,) * 5)])
def test_without_an_explanation_there_is_a_sentence(given: Scores | None) -> None:
    """An incident can be told of when the model has nothing to say any more."""
    assert "GPU unlike its own history: no single reading stands out" == told(given)


def test_it_is_never_critical() -> None:
    """A learned score pages nobody: neither by its severity nor by lasting."""
    assert ("info", "warning") == (Anomaly().severity, Anomaly(severity="warning").severity)
    with pytest.raises(ValueError, match='severity "critical" is not for this rule: it says what is unusual'):
        Anomaly(severity="critical")
    with pytest.raises(ValueError, match="escalate_after is not for this rule"):
        Anomaly(escalate_after=600.0)


@pytest.mark.parametrize("budget", [0.0, -1.0, NAN, float("inf")])
def test_a_budget_is_a_positive_number(budget: float) -> None:
    """No budget is no threshold: that is said at once."""
    with pytest.raises(ValueError, match="false_alarms_per_gpu_week must be a number above 0"):
        Anomaly(false_alarms_per_gpu_week=budget)


def test_it_looks_when_the_model_does() -> None:
    """Rule and model keep the same pace, and the rule has words for every metric of the model."""
    model = model_class("isolation_forest")

    assert model.every == Anomaly.every
    assert set(model.needs) <= set(Anomaly.uses)


def test_what_explains_it_exists() -> None:
    """Every rule that makes an anomaly redundant is a rule that there is, and anomaly is not among them."""
    assert [] == [name for name in Anomaly.explained_by if name not in discover().rules or name == "anomaly"]
