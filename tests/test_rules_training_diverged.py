"""A training job whose loss is no number any more."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from traces import START, changes, final, told, trace

from detector.frame import Job
from rules.training_diverged import TrainingDiverged

RULES = {"training_diverged": TrainingDiverged()}


def reports(loss: float, since: float = 600.0, until: float = float("inf"), every: float = 10.0) -> Callable[[float], tuple[Job, ...]]:
    """A job that reports *every* so many seconds, and *loss* from *since* until just before *until*."""

    def told_at(second: float) -> tuple[Job, ...]:
        value = loss if since <= second < until else 2.5 - second / 10_000.0
        return (Job("llm-7b", {"job_loss": value, "job_step_total": second}),) if second % every == 0 else ()

    return told_at


@pytest.mark.parametrize("loss", [2.4, 0.0, -3.0, 1e9])
def test_a_number_is_a_loss(loss: float) -> None:
    """Falling, flat, negative or huge: the researcher's to judge."""
    assert [] == changes(RULES, trace(seconds=3600, jobs=reports(loss)))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_told_at_once(loss: float) -> None:
    """On its first report, with the last that was one."""
    happened = changes(RULES, trace(seconds=1200, jobs=reports(loss)))

    assert ["600 fired training_diverged warning"] == told(happened)
    assert "loss of job llm-7b is not finite at step 600; the last finite one was 2.441" == happened[-1].incident.summary


def test_a_job_that_reports_once_a_minute_is_no_less_diverged() -> None:
    """Between two reports nothing resolves."""
    assert ["600 fired training_diverged warning"] == told(changes(RULES, trace(seconds=3600, jobs=reports(math.nan, every=60.0))))


def test_it_resolves_when_the_loss_is_a_number_again() -> None:
    """The minute in which one bad report counts, and one more; a restart from a checkpoint, say."""
    assert ["600 fired training_diverged warning", "1320 resolved training_diverged warning"] == told(
        changes(RULES, trace(seconds=2400, jobs=reports(math.nan, until=1200.0)))
    )


def test_a_job_that_falls_silent_resolves_nothing() -> None:
    """It may have been stopped, or it may hang: that is not told by the loss."""
    diverged = reports(math.nan)
    frames = trace(seconds=3600, jobs=lambda s: diverged(s) if s < 900 else ())

    assert ["600 fired training_diverged warning"] == told(changes(RULES, frames))


def test_a_job_that_has_ended_is_over() -> None:
    """After an hour without a report nobody waits for the next one."""
    diverged = reports(math.nan)
    (incident,) = final(RULES, trace(seconds=6000, step=30, jobs=lambda s: diverged(s) if s < 900 else ()))

    assert "resolved" == incident.state
    assert 900 + 3600 <= (incident.resolved_at or 0.0) - START <= 900 + 3800


def test_a_job_without_a_loss_is_not_judged() -> None:
    """Steps alone say nothing about it."""
    assert [] == changes(RULES, trace(seconds=600, jobs=lambda s: (Job("llm-7b", {"job_step_total": s}),)))


def test_two_jobs_are_judged_apart() -> None:
    """Only one of them has diverged."""
    other = Job("vit", {"job_loss": 1.1})
    diverged = reports(math.nan)
    found = final(RULES, trace(seconds=1200, jobs=lambda s: (*diverged(s), other)))

    assert ["job:llm-7b"] == [incident.subject for incident in found]
