"""One incident per root cause: which one explains which, whoever fired first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import START, Alarm, Hot, Value, changes, engine_of, feed, trace, xid

from detector.correlate import cause_of
from detector.frame import Frame
from detector.incident import Change, DeviceRef, Incident
from detector.rule import AnyRule, Rule, Story, Verdict
from detector.window import Window

EXPLAINED_BY = {"effect": ("cause", "other"), "cause": ("root",), "other": (), "root": ()}


def incident(rule: str, *devices: int, name: str = "") -> Incident:
    """A firing warning about some GPUs; about the whole host where none is given."""
    refs = tuple(DeviceRef(f"GPU-{n}") for n in devices)
    return Incident(name or rule, rule, rule, "warning", "firing", "node-a", started_at=0.0, last_seen_at=0.0, devices=refs)


EFFECT = incident("effect", 1)


@pytest.mark.parametrize(
    ("effect", "other", "explains"),
    [
        (EFFECT, incident("cause", 1), True),
        (EFFECT, incident("cause", 0, 1), True),
        (EFFECT, incident("cause", 0), False),  # another GPU
        (EFFECT, incident("cause"), True),  # the whole host
        (EFFECT, incident("root", 1), False),  # a rule that is not named
        (EFFECT, incident("effect", 1, name="twin"), False),
        (EFFECT, EFFECT, False),
        (EFFECT, replace(incident("cause", 1), host="node-b"), False),
        (EFFECT, replace(incident("cause", 1), state="pending"), False),
        (EFFECT, replace(incident("cause", 1), state="resolved"), False),
        (EFFECT, replace(incident("cause", 1), cause="root"), False),  # an effect itself
        (replace(EFFECT, started_at=600.0), incident("cause", 1), True),
        (replace(EFFECT, started_at=601.0), incident("cause", 1), False),  # seen too long ago
        (EFFECT, replace(incident("cause", 1), severity="info"), False),  # a note explains nothing worse
        (replace(EFFECT, severity="info"), replace(incident("cause", 1), severity="info"), True),
        (replace(EFFECT, severity="critical"), incident("cause", 1), True),
        (incident("effect", 0, 1), incident("cause", 1), False),  # only a part of it
        (incident("effect"), incident("cause"), True),
        (incident("effect"), incident("cause", 1), False),  # one GPU is not the whole host
        (incident("stranger", 1), incident("cause", 1), False),
    ],
)
def test_what_explains_what(effect: Incident, other: Incident, explains: bool) -> None:
    """A firing incident of a rule that the effect's rule names, on the same host, about all of its devices."""
    assert (other if explains else None) is cause_of(effect, [other], EXPLAINED_BY)


def test_the_worst_explains_then_the_oldest() -> None:
    """Of several that could."""
    old, new = incident("cause", 1, name="old"), replace(incident("cause", 1, name="new"), started_at=5.0)
    bad = replace(incident("other", 1, name="bad"), started_at=9.0, severity="critical")

    assert cause_of(EFFECT, [new, old], EXPLAINED_BY) is old
    assert cause_of(EFFECT, [new, old, bad], EXPLAINED_BY) is bad
    assert cause_of(EFFECT, [], EXPLAINED_BY) is None


# -- in the engine ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Busy(Rule):
    """A GPU that works harder than it should; a heat wave explains it."""

    keep_firing: float = 20.0

    needs: ClassVar[tuple[str, ...]] = ("utilization_percent",)
    explained_by: ClassVar[tuple[str, ...]] = ("hot", "alarm")

    def check(self, window: Window) -> Verdict:
        now = window.last("utilization_percent")
        return Verdict(firing=now > 80.0, value=now, threshold=80.0)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        return Story("busy")


@dataclass(frozen=True)
class Loud(Busy):
    """Explained by a GPU that is busy, which may be explained itself."""

    explained_by: ClassVar[tuple[str, ...]] = ("busy",)


RULES: Mapping[str, AnyRule] = {"hot": Hot(keep_firing=20.0), "busy": Busy(), "alarm": Alarm()}


def spell(since: float, until: float = np.inf) -> Value:
    """Too high from *since* until just before *until*."""
    return lambda second: 99.0 if since <= second < until else 60.0


def frames_of(hot: Value, busy: Value, seconds: float = 300, devices: int = 1) -> list[Frame]:
    return list(trace(seconds=seconds, step=5, devices=devices, temperature_celsius=hot, utilization_percent=busy))


def standing(happened: Iterable[Change]) -> dict[str, Incident]:
    """Each rule's incident as the last change about it shows it."""
    return {change.incident.rule: change.incident for change in happened}


@pytest.mark.parametrize(("hot", "busy"), [(0, 0), (0, 50), (50, 0), (50, 100), (100, 50)])
def test_cause_and_effect_are_linked_whichever_fires_first(hot: float, busy: float) -> None:
    """And both are told of it: the last change about each shows it."""
    engine = engine_of(RULES)
    told = standing(feed(engine, frames_of(spell(hot), spell(busy))))
    known = {incident.rule: incident for incident in engine.incidents()}

    assert told["hot"].id == told["busy"].cause == known["busy"].cause
    assert (told["busy"].id,) == told["hot"].effects == known["hot"].effects
    assert told["hot"].cause is None


def test_a_link_is_made_once() -> None:
    """However long both go on."""
    engine = engine_of(RULES)
    happened = feed(engine, frames_of(spell(0), spell(50), seconds=1_000))

    assert [("hot", "fired"), ("busy", "fired"), ("hot", "updated")] == [(c.incident.rule, c.transition) for c in happened]


def test_devices_are_explained_each_by_its_own() -> None:
    """Four hot GPUs, four busy ones, four pairs."""
    told = feed(engine_of(RULES), frames_of(spell(0), spell(50), devices=4))
    pairs = {change.incident.subject: change.incident.cause for change in told if change.incident.rule == "busy"}
    causes = {change.incident.id: change.incident.subject for change in told if change.incident.rule == "hot"}

    assert {f"GPU-{n}": f"GPU-{n}" for n in range(4)} == {subject: causes[str(cause)] for subject, cause in pairs.items()}


def test_an_event_explains_too() -> None:
    """Before or after."""
    for second in (0, 100):
        frames = trace(seconds=150, step=5, utilization_percent=spell(50), temperature_celsius=60.0, events={second: [xid(second)]})
        told = standing(changes({**RULES, "alarm": Alarm(keep_firing=600.0)}, frames))
        assert told["alarm"].id == told["busy"].cause


def test_what_is_over_explains_nothing_new() -> None:
    """The heat wave ended before the work began."""
    assert standing(feed(engine_of(RULES), frames_of(spell(0, 50), spell(150))))["busy"].cause is None


def test_an_effect_that_outlives_its_cause_stands_for_itself() -> None:
    """What sends nothing while its cause is told of has to be told of when the cause is over."""
    engine = engine_of(RULES)
    happened = feed(engine, frames_of(spell(0, 100), spell(50)))
    (busy,) = [incident for incident in engine.incidents() if incident.rule == "busy"]

    assert busy.cause is None
    assert "updated" in [change.transition for change in happened if change.incident.rule == "busy" and change.at - START >= 100]


def test_an_effect_is_listed_once_though_its_cause_comes_back() -> None:
    """It stood for itself in between."""
    frames = trace(seconds=500, step=5, utilization_percent=spell(20), temperature_celsius=lambda s: 99.0 if s < 50 or s >= 300 else 60.0)
    told = standing(changes(RULES, frames))

    assert told["hot"].id == told["busy"].cause
    assert (told["busy"].id,) == told["hot"].effects


@pytest.mark.parametrize("order", [("hot", "busy", "loud"), ("loud", "busy", "hot"), ("busy", "hot", "loud"), ("busy", "loud", "hot")])
def test_a_chain_has_one_root_in_any_order(order: tuple[str, ...]) -> None:
    """What an effect explains is explained: nothing of the chain but its root stands alone."""
    begin = {rule: 50.0 * n for n, rule in enumerate(order)}
    rules = {"hot": Hot(), "busy": Busy(), "loud": replace(Loud())}

    @dataclass(frozen=True)
    class Later(Loud):
        def check(self, window: Window) -> Verdict:
            now = window.last("power_watts")
            return Verdict(firing=now > 80.0, value=now, threshold=80.0)

    rules["loud"] = Later()
    frames = trace(seconds=300, step=5, temperature_celsius=spell(begin["hot"]), utilization_percent=spell(begin["busy"]),
                   power_watts=spell(begin["loud"]))  # fmt: skip
    told = standing(changes(rules, frames))

    assert [None] == [told[rule].cause for rule in order if told[rule].cause is None]
    assert told["hot"].cause is None


@settings(max_examples=30)
@given(st.lists(st.integers(0, 20), min_size=4, max_size=4), st.sets(st.integers(1, 60)))
def test_links_do_not_depend_on_how_frames_are_split(moments: list[int], places: set[int]) -> None:
    """Both incidents end as they would have ended, whatever came in one call."""
    a, b, c, d = (5.0 * moment for moment in moments)
    frames = frames_of(spell(a, a + b), spell(c, c + d), seconds=200)
    one_by_one, in_parts = engine_of(RULES), engine_of(RULES)
    feed(one_by_one, frames)
    marks = [0, *sorted(place for place in places if place < len(frames)), len(frames)]
    for n, mark in enumerate(marks[1:]):
        in_parts.observe(*frames[marks[n] : mark])

    def links(incidents: Iterable[Incident]) -> set[tuple[str, str | None, tuple[str, ...]]]:
        return {(incident.id, incident.cause, incident.effects) for incident in incidents}

    assert links(one_by_one.incidents()) == links(in_parts.incidents())
