"""Frames in, changes out: what must hold whatever the rules are."""

from __future__ import annotations

import gc
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import GIB, START, Alarm, Greedy, Hot, Value, changes, engine_of, feed, final, gpu, told, trace, xid

from detector.engine import Engine
from detector.frame import Device, Event, Fault, Frame, Job, Process
from detector.incident import Change, Incident
from detector.rule import CRITICAL, AnyRule, EventRule, Finding, Rule, Story, Verdict
from detector.ruleset import Configured, Match, RuleSet
from detector.tracker import LATCHED
from detector.window import Window

HOT = {"hot": Hot(hold=20.0, keep_firing=20.0)}
RULES: Mapping[str, AnyRule] = {**HOT, "greedy": Greedy(hold=10.0), "alarm": Alarm()}


def fever(since: float, until: float = np.inf) -> Value:
    """A temperature that is too high from *since* until just before *until*."""
    return lambda second: 99.0 if since <= second < until else 60.0


def lives(happened: Iterable[Change]) -> list[tuple[object, ...]]:
    """What happened to which incident, comparable between engines and in no order but time's."""
    return sorted((c.at, c.transition, i.rule, i.host, i.subject, i.severity, i.id) for c in happened for i in [c.incident])


def subject_of(change: Change) -> str:
    """What a change is about, without what marks it as made by events."""
    return change.incident.subject.removeprefix(LATCHED)


def ends(engine: Engine) -> list[Incident]:
    """All incidents of an engine as they stand, in a steady order."""
    return sorted(engine.incidents(), key=lambda incident: incident.id)


# -- the life of an incident --------------------------------------------------------------------------------------------------


def test_an_incident_fires_holds_and_resolves() -> None:
    """From its first sign to its end, by the frames' own time."""
    frames = trace(seconds=300, step=5, temperature_celsius=fever(100, 200))

    assert [
        "100 opened hot warning",
        "120 fired hot warning",
        "220 resolved hot warning",
    ] == told(changes(HOT, frames), pending=True)


def test_an_incident_says_what_and_where_and_when() -> None:
    """All that a person asks first."""
    frames = trace(seconds=300, step=5, devices=2, each=lambda n: {"temperature_celsius": fever(100) if n else 60.0})
    (incident,) = final(HOT, frames)

    assert ("hot", "node-a", "warning", "firing") == (incident.rule, incident.host, incident.severity, incident.state)
    assert incident.device is not None
    assert ("GPU-1", 1) == (incident.device.uuid, incident.device.index)
    assert (100.0, 120.0, 300.0, None) == tuple(
        at and at - START for at in (incident.started_at, incident.fired_at, incident.last_seen_at, incident.resolved_at)
    )
    assert (99.0, 80.0, "celsius") == (incident.value, incident.threshold, incident.unit)
    assert "1 GPU at 99 degrees" == incident.summary
    (series,) = incident.evidence
    assert ("temperature_celsius", "celsius", "GPU-1") == (series.metric, series.unit, series.device)
    assert 60.0 == series.values[0]


def test_a_spell_that_is_too_short_leaves_nothing() -> None:
    """It was pending, and is dropped."""
    engine = engine_of(HOT)
    happened = feed(engine, trace(seconds=300, step=5, temperature_celsius=fever(100, 115)))

    assert ["100 opened hot warning", "115 dropped hot warning"] == told(happened, pending=True)
    assert [] == engine.incidents()


def test_a_blip_soon_after_the_end_does_not_reopen() -> None:
    """Two single hot looks, a minute apart with calm between them, have not held for twenty seconds."""
    hot = {100, 105, 110, 115, 120, 200, 260}
    frames = trace(seconds=400, step=5, temperature_celsius=lambda second: 99.0 if second in hot else 60.0)

    assert ["120 fired hot warning", "145 resolved hot warning"] == told(changes(HOT, frames))


def test_a_return_within_the_cool_down_reopens() -> None:
    """The same incident, once more, after having held again."""
    happened = changes(HOT, trace(seconds=600, step=5, temperature_celsius=lambda s: 99.0 if 100 <= s < 200 or 300 <= s < 400 else 60.0))
    last = happened[-1].incident

    assert [
        "120 fired hot warning",
        "220 resolved hot warning",
        "320 reopened hot warning",
        "420 resolved hot warning",
    ] == told(happened)
    assert 1 == len({change.incident.id for change in happened})
    assert (2, START + 120, START + 320) == (last.occurrences, last.fired_at, last.reopened_at)


def test_a_later_return_is_another_incident() -> None:
    """Same thing, new episode."""
    happened = changes(HOT, trace(seconds=1_500, step=5, temperature_celsius=lambda s: 99.0 if 100 <= s < 200 or s >= 1_000 else 60.0))

    assert ["120 fired hot warning", "220 resolved hot warning", "1020 fired hot warning"] == told(happened)
    assert 2 == len({change.incident.id for change in happened})
    assert 1 == len({change.incident.fingerprint for change in happened})


def test_the_cool_down_may_be_long() -> None:
    """Two hours are two hours, though what is over is forgotten some day."""
    engine = Engine(RuleSet([Configured("hot", HOT["hot"])]), cool_down=7_200.0)
    frames = trace(seconds=6_000, step=10, temperature_celsius=lambda s: 99.0 if 100 <= s < 200 or s >= 5_500 else 60.0)

    assert ["120 fired hot warning", "220 resolved hot warning", "5520 reopened hot warning"] == told(feed(engine, frames))


def test_flapping_is_said_once_and_stays_open_until_it_is_quiet() -> None:
    """A fever that comes and goes is one incident, not twenty messages."""
    frames = trace(seconds=3_000, step=5, temperature_celsius=lambda s: 99.0 if s < 1_000 and s % 50 < 10 else 60.0)
    happened = changes({"hot": Hot(hold=0.0, keep_firing=20.0)}, frames)

    assert [
        "0 fired hot warning",
        "30 resolved hot warning",
        "50 reopened hot warning",
        "80 resolved hot warning",
        "100 reopened hot warning",
        "130 resolved hot warning",
        "150 reopened hot warning",
        "1860 resolved hot warning",
    ] == told(happened)
    assert happened[-1].incident.flapping


def test_the_waste_of_all_episodes_adds_up() -> None:
    """GPU-seconds, over every time it was open."""

    @dataclass(frozen=True)
    class Wasteful(Hot):
        wastes: ClassVar[bool] = True

    frames = trace(seconds=600, step=5, temperature_celsius=lambda s: 99.0 if 100 <= s < 200 or 300 <= s < 350 else 60.0)
    (incident,) = final({"hot": Wasteful(keep_firing=20.0)}, frames)

    assert 150.0 == pytest.approx(incident.wasted_gpu_seconds, abs=15.0)


def test_it_becomes_critical_in_time() -> None:
    """After having fired for so long, and said once."""
    rules = {"hot": Hot(hold=20.0, escalate_after=120.0)}

    assert [
        "120 fired hot warning",
        "220 updated hot critical",
    ] == told(changes(rules, trace(seconds=600, step=5, temperature_celsius=fever(100))))


def test_news_is_looked_at_at_once() -> None:
    """A device that is missing from a frame, a fault: rules do not wait for their next turn."""

    @dataclass(frozen=True)
    class Gone(Rule):
        def check(self, window: Window) -> Verdict:
            visible = window.last("device_visible")
            return Verdict(firing=visible == 0, value=visible)

        def tell(self, window: Window, verdict: Verdict) -> Story:
            return Story("gone")

    frames = trace(seconds=8, step=1, devices=2, listed=lambda n, s: n == 0 or s < 7)

    assert ["7 fired gone warning"] == told(changes({"gone": Gone()}, frames))


# -- how frames come ------------------------------------------------------------------------------------------------------------

DEVICES = [gpu(n) for n in range(3)]
MOMENTS = st.integers(0, 60)


class Recording(list[Frame]):
    """Frames that show what they were made from: a failing example has to be read by somebody."""

    made_from: object = None

    def __repr__(self) -> str:
        return f"Recording({self.made_from})"


@st.composite
def recordings(draw: st.DrawFn, host: str = "node-a", devices: Sequence[Device] = DEVICES, step: float = 5.0) -> Recording:
    """Five minutes of a host: spells of fever, sensors that fall silent, processes that come and go, a few Xids."""
    spells = {n: draw(st.lists(st.tuples(MOMENTS, MOMENTS), max_size=3)) for n in range(len(devices))}
    silent = {n: draw(st.tuples(MOMENTS, st.integers(0, 20))) for n in range(len(devices))}
    lives = draw(st.lists(st.tuples(st.sampled_from(range(len(devices))), st.integers(1, 9), MOMENTS, MOMENTS), max_size=4))
    xids = draw(st.lists(st.tuples(st.integers(0, len(devices) - 1), MOMENTS, st.sampled_from([31, 79])), max_size=4))

    def temperature(n: int, second: float) -> float | None:
        moment = second / step
        if silent[n][0] <= moment < sum(silent[n]):
            return None
        return 99.0 if any(a <= moment < b for a, b in spells[n]) else 60.0

    def processes(n: int, second: float) -> tuple[Process, ...]:
        pids = {pid for device, pid, a, b in lives if device == n and a <= second / step < b}
        return tuple(Process(pid, memory_used_bytes=pid * 2 * GIB) for pid in sorted(pids))

    events: dict[float, list[Event]] = {}
    for n, moment, code in xids:
        events.setdefault(moment * step, []).append(xid(moment * step, code, devices[n].uuid, text=f"{n} {code} {moment}"))
    frames = trace(seconds=300, step=step, host=host, devices=devices, processes=processes, events=events,
                   each=lambda n: {"temperature_celsius": lambda second: temperature(n, second)})  # fmt: skip
    recording = Recording(frames)
    recording.made_from = {"spells": spells, "silent": silent, "lives": lives, "xids": xids}
    return recording


def cut(items: list[Frame], places: Iterable[int]) -> Iterator[list[Frame]]:
    marks = [0, *sorted(places), len(items)]
    return (items[a:b] for a, b in pairwise(marks))


@settings(max_examples=15)
@given(recordings(), st.sets(st.integers(0, 60)))
def test_how_frames_are_split_between_calls_makes_no_difference(frames: list[Frame], places: set[int]) -> None:
    """Live they come one by one, from a recording in heaps."""
    one_by_one, in_parts = engine_of(RULES), engine_of(RULES)
    expected = feed(one_by_one, frames)
    actual = list(chain.from_iterable(in_parts.observe(*part) for part in cut(frames, places)))

    assert lives(expected) == lives(actual)
    assert ends(one_by_one) == ends(in_parts)


@settings(max_examples=6)
@given(recordings("a"), recordings("b"), recordings("c"), st.floats(0, 4), st.sampled_from([0.0, -86_400.0 * 3, 100.0]))
def test_hosts_may_be_observed_together(a: list[Frame], b: list[Frame], c: list[Frame], late: float, offset: float) -> None:
    """Nothing of a host depends on another one, be they in one call or not, and whatever their clocks say."""
    b = [replace(frame, at=frame.at + late) for frame in b]
    c = [moved(frame, offset) for frame in c]
    together, apart = engine_of(RULES), engine_of(RULES)
    actual = list(chain.from_iterable(together.observe(*three) for three in zip(a, b, c, strict=True)))
    expected = feed(apart, [frame for three in zip(a, b, c, strict=True) for frame in three])

    assert lives(expected) == lives(actual)
    assert ends(apart) == ends(together)
    for frames in (a, b, c):
        alone = engine_of(RULES)
        assert lives(feed(alone, frames)) == lives(change for change in actual if change.incident.host == frames[0].host)
        assert ends(alone) == [incident for incident in ends(together) if incident.host == frames[0].host]


def moved(frame: Frame, seconds: float) -> Frame:
    return replace(frame, at=frame.at + seconds, events=tuple(replace(event, at=event.at + seconds) for event in frame.events))


@settings(max_examples=12)
@given(recordings(), st.permutations(range(3)))
def test_the_order_of_devices_makes_no_difference(frames: list[Frame], order: list[int]) -> None:
    """Not even when it changes."""
    shuffled = [
        replace(frame, devices=tuple(frame.devices[n] for n in order), values=frame.values[order]) if k > 10 else frame
        for k, frame in enumerate(frames)
    ]

    assert lives(changes(RULES, frames)) == lives(changes(RULES, shuffled))


@settings(max_examples=12)
@given(recordings(), st.integers(0, 2))
def test_a_device_does_not_depend_on_its_neighbours(frames: list[Frame], kept: int) -> None:
    """What is said of it is said of it alone, too."""
    uuid = f"GPU-{kept}"
    alone = [
        replace(
            frame,
            devices=(frame.devices[kept],),
            values=frame.values[kept : kept + 1],
            processes={uuid: frame.processes[uuid]},
            events=tuple(event for event in frame.events if event.uuid == uuid),
        )
        for frame in frames
    ]

    expected = [life for life in lives(changes(RULES, frames)) if uuid in str(life[4])]
    assert expected == lives(changes(RULES, alone))


@settings(max_examples=10)
@given(recordings(), st.integers(-10_000, 10_000).map(lambda minutes: minutes * 60.0))
def test_a_clock_that_is_off_moves_everything_with_it(frames: list[Frame], seconds: float) -> None:
    """The same happens at the same moments of the host's own time."""
    expected = [(at + seconds, *rest[:-1]) for at, *rest in lives(changes(RULES, frames))]  # type: ignore[operator]

    assert expected == [life[:-1] for life in lives(changes(RULES, (moved(frame, seconds) for frame in frames)))]


@settings(max_examples=15)
@given(recordings(), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=6))
def test_a_frame_that_comes_again_changes_nothing(frames: list[Frame], repeats: list[tuple[int, int]]) -> None:
    """At once or much later, with all the events it carries."""
    again = list(frames)
    for place, frame in sorted(repeats, key=max, reverse=True):
        again.insert(max(place, frame) + 1, frames[frame])

    assert lives(changes(RULES, frames)) == lives(changes(RULES, again))


@settings(max_examples=6)
@given(recordings(step=1.0), st.integers(0, 60))
def test_frames_out_of_order_make_little_difference(frames: list[Frame], place: int) -> None:
    """Two neighbours that change places: the same incidents, at most a look earlier or later."""
    frames = [frame for frame in frames if not frame.events]
    at = min(place, len(frames) - 2)
    swapped = [*frames[:at], frames[at + 1], frames[at], *frames[at + 2 :]]
    steady = {"hot": Hot(hold=7.5, keep_firing=7.5)}
    expected = [(c.transition, c.incident.subject, c.at) for c in changes(steady, frames)]
    actual = [(c.transition, c.incident.subject, c.at) for c in changes(steady, swapped)]

    for transition, subject, moment in set(expected) ^ set(actual):
        near = [c for c in (*expected, *actual) if c[1] == subject and abs(c[2] - moment) <= 10.0]
        assert transition in ("opened", "dropped") or len(near) > 1


def test_a_late_frame_does_not_take_a_device_away() -> None:
    """It was listed before the second GPU came up: what is there now is there."""
    frames = list(trace(seconds=60, step=5, devices=2, listed=lambda n, s: n == 0 or s >= 20, temperature_celsius=60.0))
    engine = engine_of(HOT)
    feed(engine, [*frames, frames[1]])

    assert [True, True] == [status.visible for status in engine.devices()]
    assert [1.0, 1.0] == [status.readings["device_visible"] for status in engine.devices()]


def test_two_frames_of_one_moment_are_two() -> None:
    """A recording with ten readings a second may write whole seconds: what differs is not the same frame again."""
    frames = [frame for reading in (60.0, 99.0) for frame in trace(seconds=10, step=5, temperature_celsius=reading)]

    engine = engine_of({"hot": Hot()})
    feed(engine, sorted(frames, key=lambda frame: frame.at))
    series = engine.readings("GPU-0", "temperature_celsius", START, START + 10)

    assert series is not None
    assert {79.5} == set(series.values)


def test_two_jobs_that_speak_at_the_same_moment_are_both_heard() -> None:
    """Each in a frame of its own, without devices."""

    @dataclass(frozen=True)
    class Lossy(Rule):
        entity: ClassVar = ("job",)
        needs: ClassVar = ("job_loss",)

        def check(self, window: Window) -> Verdict:
            loss = window.last("job_loss")
            return Verdict(firing=loss > 1.0, value=loss)

        def tell(self, window: Window, verdict: Verdict) -> Story:
            return Story("lossy")

    losses = [0.5, 0.5, 0.5, 2.0, 2.0, 2.0]
    frames = [Frame("node-a", START + 5 * n, jobs=(Job(job, {"job_loss": loss}),)) for n, loss in enumerate(losses) for job in "ab"]

    assert ["job:a", "job:b"] == sorted(change.incident.subject for change in changes({"lossy": Lossy()}, frames))


def test_a_late_frame_of_the_boot_before_is_no_boot() -> None:
    """What happened after the boot is not over because an old frame comes in."""
    frames = [
        replace(frame, boot_id="old" if frame.at < START + 30 else "new")
        for frame in trace(seconds=100, step=5, events={50: [xid(50)]}, temperature_celsius=60.0)
    ]
    frames[12:12] = [replace(frames[3], events=())]

    assert ["50 fired alarm warning"] == told(changes({"alarm": Alarm(), "hot": Hot()}, frames))


def test_a_late_frame_does_not_bring_back_a_process() -> None:
    """The list that is newest is the one that counts."""
    frames = list(trace(seconds=120, step=5, processes=lambda n, s: (Process(7, 20 * GIB),) if s < 60 else ()))
    engine = engine_of({"greedy": Greedy()})
    happened = feed(engine, [*frames, frames[2]])

    assert ["0 fired greedy warning", "90 resolved greedy warning"] == told(happened)
    assert () == engine.devices()[0].processes


# -- missing readings ---------------------------------------------------------------------------------------------------------


def without(frames: Iterable[Frame], missing: set[tuple[int, int]]) -> list[Frame]:
    """The frames without the readings (moment, device)."""
    silenced = []
    for moment, frame in enumerate(frames):
        values = frame.values.copy()
        for n in range(len(frame.devices)):
            if (moment, n) in missing:
                values[n] = np.nan
        silenced.append(replace(frame, values=values))
    return silenced


MISSING = st.sets(st.tuples(st.integers(0, 60), st.integers(0, 2)), max_size=120)


@settings(max_examples=10)
@given(MISSING)
def test_missing_readings_make_no_incident_appear(missing: set[tuple[int, int]]) -> None:
    """What is not there is not too high."""
    assert [] == changes(HOT, without(trace(seconds=300, step=5, devices=3, temperature_celsius=60.0), missing))


@settings(max_examples=10)
@given(MISSING)
def test_missing_readings_make_no_incident_vanish(missing: set[tuple[int, int]]) -> None:
    """A fever is not over because nobody measures it; it may only be found later."""
    missing = {(moment, n) for moment, n in missing if moment < 50}
    happened = changes(HOT, without(trace(seconds=300, step=5, devices=3, temperature_celsius=99.0), missing))

    assert {"opened", "fired"} == {change.transition for change in happened}
    assert ["GPU-0", "GPU-1", "GPU-2"] == sorted(c.incident.subject for c in happened if c.transition == "fired")


def test_silence_does_not_resolve() -> None:
    """The sensor fell silent for hours, then says that all is well."""
    frames = trace(seconds=8_000, step=20, power_watts=300.0,
                   temperature_celsius=lambda s: 99.0 if s < 200 else None if s < 7_000 else 60.0)  # fmt: skip

    assert ["20 fired hot warning", "7020 resolved hot warning"] == told(changes(HOT, frames))


def test_a_hole_in_the_recording_does_not_hold() -> None:
    """Hot before the hole and hot after it: all that time counts as one look."""
    frames = [frame for frame in trace(seconds=3_600, step=5, temperature_celsius=fever(95)) if not 100 < frame.at - START < 3_000]

    assert ["3010 fired hot warning"] == told(changes({"hot": Hot(hold=20.0)}, frames))


# -- broken rules -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(Hot):
    """Fails where `fails` says."""

    fails: str = "check"

    def check(self, window: Window) -> Verdict:
        if self.fails == "check":
            raise ZeroDivisionError("no luck today")
        verdict = super().check(window)
        if self.fails == "shape":
            return Verdict(firing=np.array([True] * 99), value=verdict.value)
        if self.fails == "nonsense":
            return None  # type: ignore[return-value]
        return verdict

    def tell(self, window: Window, verdict: Verdict) -> Story:
        if self.fails == "tell" and any(subject.device and subject.device.uuid == "GPU-1" for subject in window.subjects):
            raise ZeroDivisionError("no words today")
        if self.fails == "evidence":
            return Story("hot", evidence=("no_such_metric",))
        return super().tell(window, verdict)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """The tracebacks of rules that fail on purpose are not for the reader of the tests."""
    caplog.set_level(logging.CRITICAL, "detector.engine")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("fails", ["check", "shape", "nonsense", "tell", "evidence"])
def test_a_broken_rule_silences_no_other(fails: str) -> None:
    """Those before it and after it go on, and what is wrong with it can be read."""
    rules = {"before": Hot(), "broken": Broken(fails=fails), "after": Hot()}
    engine = engine_of(rules)
    happened = told(feed(engine, trace(seconds=100, step=5, devices=3, temperature_celsius=99.0)))

    assert 3 == happened.count("0 fired before warning") == happened.count("0 fired after warning")
    assert ["broken"] == list(engine.rule_errors)


@pytest.mark.usefixtures("quiet")
def test_a_rule_that_lacks_words_for_one_device_still_tells_of_the_others() -> None:
    """Its failure is about GPU 1: 0 and 2 are told of, in this look or the next."""
    happened = changes({"broken": Broken(fails="tell")}, trace(seconds=100, step=5, devices=3, temperature_celsius=99.0))

    assert ["GPU-0", "GPU-2"] == sorted(change.incident.subject for change in happened if change.transition == "fired")


@pytest.mark.usefixtures("quiet")
def test_a_rule_that_finds_its_words_later_tells_then() -> None:
    """A failure to tell swallows no incident for ever."""

    @dataclass(frozen=True)
    class Stutters(Hot):
        def tell(self, window: Window, verdict: Verdict) -> Story:
            if window.age[0] < 30:
                raise ZeroDivisionError("not yet")
            return super().tell(window, verdict)

    engine = engine_of({"hot": Stutters()})

    assert ["30 fired hot warning"] == told(feed(engine, trace(seconds=100, step=5, temperature_celsius=99.0)))
    assert {} == engine.rule_errors


@pytest.mark.usefixtures("quiet")
def test_a_broken_event_rule_silences_no_other() -> None:
    """One raises at every event; the other one, and the rules about readings, go on."""

    @dataclass(frozen=True)
    class BrokenAlarm(EventRule):
        def judge(self, event: Event) -> Finding | None:
            raise ZeroDivisionError("no luck today")

    engine = engine_of({"broken": BrokenAlarm(), "alarm": Alarm(), "hot": Hot()})
    happened = feed(engine, trace(seconds=20, step=5, events={10: [xid(10)]}, temperature_celsius=99.0))

    assert ["0 fired hot warning", "10 fired alarm warning"] == told(happened)
    assert ["broken"] == list(engine.rule_errors)


@pytest.mark.usefixtures("quiet")
def test_a_rule_that_is_broken_for_some_devices_is_said_to_be_broken() -> None:
    """The variant of an override fails; that of all others works and does not hide it."""
    broken = Configured("hot", Broken(fails="none"), ((Match(device="GPU-0"), {"fails": "check"}),))
    engine = Engine(RuleSet([broken]))
    happened = feed(engine, trace(seconds=20, step=5, devices=3, temperature_celsius=99.0))

    assert ["GPU-1", "GPU-2"] == sorted(change.incident.subject for change in happened)
    assert ["hot"] == list(engine.rule_errors)


@pytest.mark.usefixtures("quiet")
def test_a_rule_that_is_broken_for_one_kind_of_rows_is_said_to_be_broken() -> None:
    """It fails on processes; that it works on devices does not hide it."""

    @dataclass(frozen=True)
    class Half(Either):
        def check(self, window: Window) -> Verdict:
            if window.entity == "process":
                raise ZeroDivisionError("no luck with processes")
            return super().check(window)

    engine = engine_of({"half": Half()})
    happened = feed(engine, trace(seconds=20, step=5, temperature_celsius=99.0, processes=lambda n, s: (Process(7, GIB),)))

    assert ["0 fired half warning"] == told(happened)
    assert ["half"] == list(engine.rule_errors)


@pytest.mark.usefixtures("quiet")
def test_an_event_rule_that_works_again_is_forgiven() -> None:
    """One event was too much for it, the next one was not."""

    @dataclass(frozen=True)
    class Picky(Alarm):
        def judge(self, event: Event) -> Finding | None:
            if event.code == 13:
                raise ZeroDivisionError("not that one")
            return super().judge(event)

    engine = engine_of({"picky": Picky(), "hot": Hot()})
    feed(engine, trace(seconds=20, step=5, events={5: [xid(5, 13)], 10: [xid(10, 31)]}, temperature_celsius=60.0))

    assert {} == engine.rule_errors


@pytest.mark.usefixtures("quiet")
def test_a_rule_that_works_again_is_forgiven() -> None:
    """The error is what the last look says."""

    @dataclass(frozen=True)
    class Moody(Hot):
        def check(self, window: Window) -> Verdict:
            if window.age[0] < 10:
                raise ZeroDivisionError("not yet")
            return super().check(window)

    engine = engine_of({"hot": Moody()})
    frames = list(trace(seconds=20, step=5, temperature_celsius=60.0))
    feed(engine, frames[:1])
    assert {"hot": "ZeroDivisionError: not yet"} == engine.rule_errors
    feed(engine, frames[1:])
    assert {} == engine.rule_errors


def test_a_threshold_may_be_a_whole_number() -> None:
    """An operator writes `limit = 80`."""
    frames = trace(seconds=20, step=5, devices=2, each=lambda n: {"temperature_celsius": 99.0 if n else 1.0})

    assert ["0 fired hot warning"] == told(changes({"hot": Hot(limit=80)}, frames))


# -- settings -----------------------------------------------------------------------------------------------------------------


def test_an_override_is_for_those_it_names() -> None:
    """By device, by host, by the pod that runs there."""
    overrides = ((Match(device="GPU-0"), {"limit": 200.0}), (Match(pod="train-*"), {"severity": "critical"}))
    engine = Engine(RuleSet([Configured("hot", Hot(), overrides)]))
    frames = trace(seconds=20, step=5, devices=3, temperature_celsius=99.0,
                   processes=lambda n, s: (Process(n, pod="train-1" if n == 2 else "web"),))  # fmt: skip

    assert [("GPU-1", "warning"), ("GPU-2", "critical")] == [(c.incident.subject, c.incident.severity) for c in feed(engine, frames)]


def test_a_rule_that_is_off_says_nothing() -> None:
    """Off for all, or for some, or on for some."""
    frames = list(trace(seconds=20, step=5, devices=2, temperature_celsius=99.0, events={5: [xid(5), xid(5, uuid="GPU-1")]}))
    only = Match(device="GPU-1")
    for default, override, concerned in ((False, None, []), (True, False, ["GPU-0"]), (False, True, ["GPU-1"])):
        changed = () if override is None else ((only, {"enabled": override}),)
        rules = [Configured("hot", Hot(enabled=default), changed), Configured("alarm", Alarm(enabled=default), changed)]
        happened = feed(Engine(RuleSet(rules)), frames)
        assert concerned == [c.incident.subject for c in happened if c.incident.rule == "hot"]
        assert [f"{uuid}/31" for uuid in concerned] == [subject_of(c) for c in happened if c.incident.rule == "alarm"]


def test_a_rule_that_is_switched_off_for_what_now_runs_there_lets_go() -> None:
    """An incident of the pod before does not stay open for ever because the next pod is exempt."""
    engine = Engine(RuleSet([Configured("hot", Hot(keep_firing=20.0), ((Match(pod="exempt"), {"enabled": False}),))]))
    frames = trace(seconds=300, step=5, temperature_celsius=99.0,
                   processes=lambda n, s: (Process(1, pod="exempt" if s >= 100 else "web"),))  # fmt: skip

    assert ["0 fired hot warning", "120 resolved hot warning"] == told(feed(engine, frames))


# -- groups -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Together(Hot):
    """GPUs that are hot together are one incident, by whose they are."""

    def check(self, window: Window) -> Verdict:
        verdict = super().check(window)
        severity = np.where(verdict.value > 110, CRITICAL, 1).astype(np.int8)
        return replace(verdict, group=[subject.owner for subject in window.subjects], severity=severity)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        return Story(f"{len(window)} hot", suspect=(int(np.argmax(verdict.value)), "the hottest"))


def jobs_of(n: int, second: float) -> tuple[Process, ...]:
    return (Process(100 + n, job="a" if n < 2 else "b"),)


def test_a_group_is_one_incident_with_all_its_devices() -> None:
    """Two jobs on four GPUs are two incidents."""
    incidents = final({"together": Together()}, trace(seconds=20, step=5, devices=4, temperature_celsius=99.0, processes=jobs_of))

    assert [("job:a", ["GPU-0", "GPU-1"]), ("job:b", ["GPU-2", "GPU-3"])] == [(i.subject, [d.uuid for d in i.devices]) for i in incidents]


def test_a_group_names_its_worst_and_its_suspect() -> None:
    """The severity is that of its worst row, the device its suspect."""
    frames = trace(seconds=20, step=5, devices=2, processes=jobs_of, each=lambda n: {"temperature_celsius": 90.0 + 30 * n})
    (incident,) = final({"together": Together()}, frames)

    assert ("critical", 120.0) == (incident.severity, incident.value)
    assert incident.suspect is not None
    assert incident.device is not None
    assert "GPU-1" == incident.suspect.uuid == incident.device.uuid


def test_a_group_that_grows_is_told_and_is_over_when_all_are() -> None:
    """The second GPU joins later; the incident ends when both are cool."""
    frames = trace(seconds=200, step=5, devices=2, processes=jobs_of, each=lambda n: {"temperature_celsius": fever(20 * n, 60 + 40 * n)})
    happened = changes({"together": Together(keep_firing=20.0)}, frames)

    assert ["0 fired together warning", "20 updated together warning", "120 resolved together warning"] == told(happened)
    assert ["GPU-0", "GPU-1"] == [device.uuid for device in happened[-1].incident.devices]


def test_a_group_that_overrides_judge_apart_is_one_incident() -> None:
    """One rank is exempt up to 200 degrees: the group burns as long as the other does, and does not flicker."""
    engine = Engine(RuleSet([Configured("together", Together(keep_firing=20.0), ((Match(device="GPU-1"), {"limit": 150.0}),))]))
    frames = trace(seconds=300, step=5, devices=2, processes=jobs_of,
                   each=lambda n: {"temperature_celsius": lambda s: 99.0 if n == 0 else 160.0 if s < 50 else 60.0})  # fmt: skip
    happened = feed(engine, frames)

    assert {"fired", "updated"} >= {change.transition for change in happened}
    assert not any(change.incident.flapping for change in happened)


# -- two kinds of rows --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Either(Rule):
    """Judges processes by what they hold and devices by how hot they are."""

    keep_firing: float = 20.0

    entity: ClassVar = ("process", "device")
    uses: ClassVar = ("process_memory_used_bytes", "temperature_celsius")

    def check(self, window: Window) -> Verdict:
        metric, limit = ("process_memory_used_bytes", 10 * GIB) if window.entity == "process" else ("temperature_celsius", 80.0)
        now = window.last(metric)
        return Verdict(firing=now > limit, value=now, threshold=limit)

    def tell(self, window: Window, verdict: Verdict) -> Story:
        return Story(window.entity)


def test_a_rule_may_judge_devices_and_processes() -> None:
    """The third process and the third device have nothing to do with each other."""
    frames = trace(seconds=200, step=5, devices=3, temperature_celsius=60.0, each=lambda n: {"temperature_celsius": 99.0} if n == 0 else {},
                   processes=lambda n, s: (Process(n, (20 if n == 2 else 1) * GIB),))  # fmt: skip
    happened = changes({"either": Either()}, frames)

    assert [("GPU-0", "fired"), ("GPU-2/2", "fired")] == sorted((change.incident.subject, change.transition) for change in happened)


# -- processes and devices that go ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_at", range(100, 110))
def test_a_process_that_exits_takes_its_incident_with_it(exit_at: int) -> None:
    """Whenever it exits between two looks."""
    frames = trace(seconds=200, step=1, processes=lambda n, s: (Process(7, 20 * GIB),) if s < exit_at else ())
    (incident,) = final({"greedy": Greedy()}, frames)

    assert "resolved" == incident.state
    assert incident.resolved_at is not None
    assert exit_at <= incident.resolved_at - START <= exit_at + 40


@pytest.mark.parametrize("follows_after", range(28, 40))
def test_a_process_that_exits_is_not_taken_for_the_next_one(follows_after: int) -> None:
    """A new process, as greedy, starts about when the old one is forgotten: one incident ends, another one is open."""

    def processes(n: int, second: float) -> tuple[Process, ...]:
        return (Process(7, 20 * GIB),) if second < 100 else (Process(8, 20 * GIB),) if second >= 100 + follows_after else ()

    frames = trace(seconds=400, step=1, processes=processes)
    first, second = sorted(final({"greedy": Greedy()}, frames), key=lambda incident: incident.started_at)

    assert ("GPU-0/7", "resolved") == (first.subject, first.state)
    assert ("GPU-0/8", "firing") == (second.subject, second.state)
    assert (400.0, False) == (second.last_seen_at - START, second.flapping)


def test_processes_of_many_hosts_come_and_go() -> None:
    """What one host gives back another one takes up in the same call."""
    hosts = [
        list(trace(seconds=400, step=1, host=host, processes=lambda n, s, k=k: (Process(int(s + 11 * k) // 40, 20 * GIB),)))  # type: ignore[misc]
        for k, host in enumerate("abc")
    ]
    engine = engine_of({"greedy": Greedy()})
    happened = [change for together in zip(*hosts, strict=True) for change in engine.observe(*together)]

    for frames in hosts:
        alone = engine_of({"greedy": Greedy()})
        assert lives(feed(alone, frames)) == lives(change for change in happened if change.incident.host == frames[0].host)
        assert ends(alone) == [incident for incident in ends(engine) if incident.host == frames[0].host]


def test_a_device_that_is_forgotten_makes_room_for_another() -> None:
    """The new one, in the row of the old one, is judged like any other."""
    day = 86_400
    frames = list(trace(seconds=2 * day, step=600, devices=3, temperature_celsius=99.0,
                        listed=lambda n, s: n == 0 or (n == 1 and s < 600) or (n == 2 and s >= day + 2_400)))  # fmt: skip
    happened = changes({"hot": Hot()}, frames)

    assert ["fired GPU-0", "fired GPU-1", "resolved GPU-1", "fired GPU-2"] == [f"{c.transition} {c.incident.subject}" for c in happened]


def test_a_group_of_processes_that_exit_is_over() -> None:
    """Nobody is left who could be asked."""

    @dataclass(frozen=True)
    class GreedyTogether(Greedy):
        def check(self, window: Window) -> Verdict:
            return replace(super().check(window), group=["job:a"] * len(window))

    frames = trace(seconds=200, step=5, processes=lambda n, s: (Process(7, 20 * GIB), Process(8, 20 * GIB)) if s < 100 else ())
    (incident,) = final({"greedy": GreedyTogether()}, frames)

    assert "resolved" == incident.state


def test_a_job_that_ends_takes_its_incident_with_it() -> None:
    """It has not been heard of for a day: whatever was wrong with it is over."""

    @dataclass(frozen=True)
    class Diverged(Rule):
        entity: ClassVar = ("job",)

        def check(self, window: Window) -> Verdict:
            finite = window.last("job_loss_finite")
            return Verdict(firing=finite == 0, value=finite)

        def tell(self, window: Window, verdict: Verdict) -> Story:
            return Story("diverged")

    frames = trace(seconds=100_000, step=300, jobs=lambda s: (Job("a", {"job_loss": np.nan}),) if s < 1_000 else ())
    (incident,) = final({"diverged": Diverged()}, frames)

    assert "resolved" == incident.state


def test_a_device_that_turns_out_to_have_a_name_keeps_its_incident() -> None:
    """First known by its index, then by its uuid: one device, one incident."""
    nameless = trace(seconds=50, step=5, devices=[Device("INDEX-0", index=0)], temperature_celsius=99.0)
    named = trace(seconds=300, step=5, start=START + 55, devices=[Device("GPU-a", index=0)], temperature_celsius=99.0)
    incidents = final(HOT, chain(nameless, named))

    assert ["firing"] == [incident.state for incident in incidents]
    assert START + 20 == incidents[0].fired_at


# -- events -------------------------------------------------------------------------------------------------------------------


def events_at(*events: Event, seconds: float = 300, step: float = 5, rules: Mapping[str, AnyRule] | None = None) -> list[Change]:
    """All that happened, the events each in the first frame after it."""
    frames: dict[float, list[Event]] = {}
    for event in events:
        frames.setdefault(step * math.ceil((event.at - START) / step), []).append(event)
    recording = trace(seconds=seconds, step=step, devices=2, events=frames, temperature_celsius=60.0)
    return changes(rules or {"alarm": Alarm(), "hot": Hot()}, recording)


def test_an_event_is_latched() -> None:
    """It happened in a moment; the incident stays for `keep_firing`."""
    happened = events_at(xid(20))

    assert ["20 fired alarm warning", "80 resolved alarm warning"] == told(happened)
    assert ("GPU-0/31", 1) == (subject_of(happened[-1]), happened[-1].incident.occurrences)


def test_events_are_counted_not_repeated() -> None:
    """Three of a kind are one incident, its repeats told together once a look."""
    happened = events_at(xid(20.0), xid(21.5), xid(23.0), xid(41.0))

    assert [
        "20 fired alarm warning",
        "25 updated alarm warning",
        "45 updated alarm warning",
        "105 resolved alarm warning",
    ] == told(happened)
    assert 4 == happened[-1].incident.occurrences


def test_events_that_repeat_are_over_as_soon_as_one_that_does_not() -> None:
    """Each repeat is another occurrence, no flapping; it ends `keep_firing` after the last one."""
    happened = events_at(*(xid(20.0 + 10 * n) for n in range(10)), seconds=1_500)

    assert not happened[-1].incident.flapping
    assert "170 resolved alarm warning" == told(happened)[-1]


def test_events_of_other_codes_and_devices_are_other_incidents() -> None:
    """As the rule sets them apart."""
    happened = events_at(xid(20, 31), xid(20, 79), xid(20, 31, "GPU-1"), xid(20, 31, None), seconds=30)

    assert ["/31", "GPU-0/31", "GPU-0/79", "GPU-1/31"] == sorted(subject_of(change) for change in happened)
    assert [0, 1, 1, 1] == sorted(len(change.incident.devices) for change in happened)


def test_an_event_within_the_cool_down_reopens() -> None:
    """The same incident, counted on."""
    happened = events_at(xid(20), xid(200), seconds=280)

    assert [
        "20 fired alarm warning",
        "80 resolved alarm warning",
        "200 reopened alarm warning",
        "260 resolved alarm warning",
    ] == told(happened)
    assert 2 == happened[-1].incident.occurrences


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([xid(20.0, by="nvml"), xid(20.0, by="kernel_log")], 1),
        ([xid(20.0, by="nvml"), xid(20.9, by="kernel_log")], 1),
        ([xid(20.0, by="nvml"), xid(22.0, by="kernel_log")], 2),
        ([xid(20.0, by="nvml"), xid(20.3, by="kernel_log"), xid(20.5, by="nvml"), xid(20.8, by="kernel_log")], 2),
        ([xid(20.0, text="a"), xid(20.0, text="a")], 1),
        ([xid(20.0, text="a"), xid(20.0, text="b")], 2),
        ([xid(20.0, text="a"), xid(20.1, text="a")], 2),
        ([xid(20.0, text="a"), xid(40.0, text="b"), xid(20.0, text="a")], 2),  # read again from the start
    ],
)
def test_one_event_is_one_count(events: list[Event], count: int) -> None:
    """Told by two sources within a second, or twice by one with the same time and text."""
    engine = engine_of({"alarm": Alarm(), "hot": Hot()})
    frames = list(trace(seconds=60, step=5, temperature_celsius=60.0))
    for event in events:
        engine.observe(replace(frames[0], at=event.at, events=(event,)))
    (incident,) = engine.incidents()

    assert count == incident.occurrences


def test_two_events_of_one_incident_are_two_whoever_tells_them() -> None:
    """A rule may make one incident of all codes: another code by another source is not the same event."""

    @dataclass(frozen=True)
    class AnyXid(EventRule):
        def judge(self, event: Event) -> Finding | None:
            return Finding("warning", Story(f"Xid {event.code}"))

    (change, *_) = changes({"any": AnyXid()}, trace(seconds=0, events={0: [xid(0, 31, by="nvml")]}))
    assert 1 == change.incident.occurrences
    engine = engine_of({"any": AnyXid()})
    feed(engine, trace(seconds=0, events={0: [xid(0, 31, by="nvml"), xid(0.2, 79, by="kernel_log")]}))
    assert [2] == [incident.occurrences for incident in engine.incidents()]


def test_a_late_event_does_not_turn_back_time() -> None:
    """It is counted; the incident was last seen when it was last seen."""
    engine = engine_of({"alarm": Alarm(), "hot": Hot()})
    frames = list(trace(seconds=60, step=5, temperature_celsius=60.0))
    feed(engine, [replace(frames[4], events=(xid(20),)), replace(frames[6], events=(xid(12),))])
    (incident,) = engine.incidents()

    assert (2, START + 20) == (incident.occurrences, incident.last_seen_at)


def test_events_alone_are_over_in_time_too() -> None:
    """Also in an engine that has no rule about readings."""
    assert ["20 fired alarm warning", "80 resolved alarm warning"] == told(events_at(xid(20), rules={"alarm": Alarm()}))


def test_events_of_a_device_that_turns_out_to_have_a_name_are_one_incident() -> None:
    """The kernel names its bus before anybody has listed it; later everybody calls it by its uuid."""
    bus = "00000000:3B:00.0"
    named = Device("GPU-a", index=0, pci_bus_id=bus)
    first = Frame("node-a", START, events=(xid(0, uuid=f"PCI-{bus}"),))
    rest = trace(seconds=60, step=5, start=START + 5, devices=[named], events={5: [xid(10, uuid="GPU-a")]}, temperature_celsius=60.0)
    (incident,) = final({"alarm": Alarm(keep_firing=600.0), "hot": Hot()}, [first, *rest])

    assert incident.device is not None
    assert ("GPU-a", 2) == (incident.device.uuid, incident.occurrences)


def test_a_boot_ends_what_was_before_it_not_what_came_with_it() -> None:
    """An Xid of the driver's start is older than the first frame after it, and younger than the boot."""
    rules: Mapping[str, AnyRule] = {"alarm": Alarm(keep_firing=600.0), "hot": Hot()}
    before = [replace(frame, boot_id="old") for frame in trace(seconds=50, step=5, events={10: [xid(10, 79)]}, temperature_celsius=60.0)]
    after = [
        replace(frame, boot_id="new")
        for frame in trace(seconds=50, step=5, start=START + 300, events={0: [xid(298, 31)]}, temperature_celsius=60.0)
    ]

    states = {incident.subject.rpartition("/")[2]: incident.state for incident in final(rules, [*before, *after])}
    assert {"79": "resolved", "31": "firing"} == states


def test_a_storm_of_events_is_one_incident() -> None:
    """Five thousand in a minute, told in a few changes."""
    storm = [xid(20.0 + n * 0.012, text=str(n)) for n in range(5_000)]
    happened = events_at(*storm, seconds=300)

    assert 5_000 == happened[-1].incident.occurrences
    assert 1 == len({change.incident.id for change in happened})
    assert len(happened) <= 16


def test_what_is_over_for_an_hour_is_forgotten() -> None:
    """Of events as of readings."""
    engine = engine_of({"alarm": Alarm(), "hot": Hot()})
    feed(engine, trace(seconds=6_000, step=10, events={20: [xid(20)]}, temperature_celsius=lambda s: 99.0 if s < 100 else 60.0))

    assert [] == engine.incidents()


# -- restart ------------------------------------------------------------------------------------------------------------------


def restarted(rules: Mapping[str, AnyRule], frames: Sequence[Frame], at: int) -> tuple[Engine, list[Change]]:
    """An engine that took over open incidents from another one before frame *at*, and all that both said."""
    before, after = engine_of(rules), engine_of(rules)
    happened = feed(before, frames[:at])
    after.restore([incident for incident in before.incidents() if incident.open])
    return after, happened + feed(after, frames[at:])


FEVER = list(
    trace(seconds=900, step=5, temperature_celsius=fever(100, 700), processes=lambda n, s: (Process(7, 20 * GIB),) if s < 600 else ())
)


@pytest.mark.parametrize("at", [0, 1, 10, 20, 22, 24, 25, 40, 80, 100, 119, 121, 125, 127, 135, 139, 141, 143, 145, 160])
def test_a_restart_neither_fires_again_nor_forgets(at: int) -> None:
    """Whenever it comes, all happens as it would have happened without; what takes its time may take it from the start."""
    rules = {"hot": Hot(hold=20.0, keep_firing=20.0), "greedy": Greedy()}
    engine, happened = restarted(rules, FEVER, at)
    expected, actual = (
        sorted((c for c in told if c.transition != "opened"), key=lambda change: (change.incident.rule, change.at))
        for told in (changes(rules, FEVER), happened)
    )

    assert [(c.transition, c.incident.id) for c in expected] == [(c.transition, c.incident.id) for c in actual]
    for calm, disturbed in zip(expected, actual, strict=True):
        assert calm.at <= disturbed.at <= calm.at + 120
    assert all(not incident.open for incident in engine.incidents())


def test_what_ended_while_nobody_looked_resolves_after_the_restart() -> None:
    """It was hot, the service was down, it is cool: that has to be said."""
    frames = list(trace(seconds=600, step=5, temperature_celsius=fever(100, 200)))
    frames = [frame for frame in frames if not 190 < frame.at - START < 300]

    assert ["120 fired hot warning", "320 resolved hot warning"] == told(restarted(HOT, frames, 39)[1])


def test_a_process_that_ended_while_nobody_looked_is_over_after_the_restart() -> None:
    """It is not there to be asked; its incident ends all the same."""
    frames = [frame for frame in FEVER if not 200 < frame.at - START < 620]

    assert ["fired", "resolved"] == [change.transition for change in restarted({"greedy": Greedy()}, frames, 41)[1]]


def test_an_event_stays_latched_over_a_restart() -> None:
    """For as long as its rule keeps it."""
    rules: Mapping[str, AnyRule] = {"alarm": Alarm(keep_firing=7_200.0), "hot": Hot()}
    frames = list(trace(seconds=10_000, step=50, events={50: [xid(50)]}, temperature_celsius=60.0))
    _, happened = restarted(rules, frames, 10)

    assert ["fired", "resolved"] == [change.transition for change in happened]
    assert 7_250 <= happened[-1].at - START


def test_a_restart_does_not_shorten_what_is_told() -> None:
    """Waste and occurrences go on from where they were."""

    @dataclass(frozen=True)
    class Wasteful(Hot):
        wastes: ClassVar[bool] = True

    frames = list(trace(seconds=600, step=5, temperature_celsius=fever(0)))
    engine, _ = restarted({"hot": Wasteful()}, frames, 100)

    assert [600.0] == pytest.approx([incident.wasted_gpu_seconds for incident in engine.incidents()], abs=15.0)


def test_a_restart_remembers_that_it_flaps() -> None:
    """And waits until it is quiet, as it would have without one."""
    rules = {"hot": Hot(hold=0.0, keep_firing=60.0)}
    frames = list(trace(seconds=2_000, step=5, temperature_celsius=lambda s: 99.0 if s < 400 and s % 50 < 10 else 60.0))
    _, expected = restarted(rules, frames, 0)
    _, actual = restarted(rules, frames, 80)

    assert [change.transition for change in expected] == [change.transition for change in actual]
    assert expected[-1].at <= actual[-1].at <= expected[-1].at + 60


def test_an_incident_of_a_rule_that_is_no_more_does_no_harm() -> None:
    """The rule's file was removed between two runs."""
    before = engine_of({"old": Hot()})
    feed(before, trace(seconds=20, step=5, temperature_celsius=99.0))
    engine = engine_of({"hot": Hot()})
    engine.restore(before.incidents())

    happened = feed(engine, trace(seconds=20, step=5, start=START + 30, temperature_celsius=99.0))

    assert "30 fired hot warning" in told(happened)


def test_the_same_recording_gives_the_same_incidents() -> None:
    """Ids included: live, replayed, or replayed once more."""
    assert final(RULES, FEVER) == final(RULES, FEVER)
    assert final(RULES, FEVER)


# -- memory -------------------------------------------------------------------------------------------------------------------


def weight(engine: Engine) -> int:
    """How many things an engine holds, and how many bytes of arrays, together."""
    seen: set[int] = set()
    waiting: list[object] = [engine]
    total = 0
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType | BuiltinFunctionType | MethodType | logging.Logger):
            continue
        seen.add(id(thing))
        total += thing.nbytes if isinstance(thing, np.ndarray) else 64
        waiting += gc.get_referents(thing)
    return total


def assert_stays_small(frames: list[Frame]) -> None:
    """The second half of the frames leaves the engine no larger than the first one did."""
    engine = engine_of(RULES)
    middle = len(frames) // 2
    feed(engine, frames[:middle])
    before = weight(engine)
    feed(engine, frames[middle:])

    assert weight(engine) <= 1.02 * before


def test_short_lived_processes_leave_nothing() -> None:
    """A greedy process a minute, for ten hours."""
    assert_stays_small(list(trace(seconds=36_000, step=60, processes=lambda n, s: (Process(int(s), 20 * GIB),))))


def test_devices_that_come_and_go_leave_nothing() -> None:
    """A MIG instance every two hours, each with a fever and an Xid, for eight days."""
    devices = [gpu(), *(Device(f"MIG-{n}", parent="GPU-0") for n in range(96))]
    events = {7_200.0 * n: [xid(7_200.0 * n, 31, f"MIG-{n}")] for n in range(96)}
    frames = trace(seconds=96 * 7_200, step=900, devices=devices, listed=lambda n, s: n in (0, int(s // 7_200) + 1),
                   temperature_celsius=99.0, events=events)  # fmt: skip

    assert_stays_small(
        [replace(frame, unavailable={device.uuid: {"ecc_mode": "not_supported"} for device in frame.devices}) for frame in frames]
    )


def test_jobs_that_come_and_go_leave_nothing() -> None:
    """A job every quarter of an hour, for six days."""
    assert_stays_small(list(trace(seconds=6 * 86_400, step=900, jobs=lambda s: (Job(f"job-{int(s)}", {"job_loss": 1.0}),))))


def test_frames_that_lack_now_this_now_that_leave_nothing() -> None:
    """A source may leave out the metrics that it could not read, in any combination."""
    names = ("temperature_celsius", "memory_temperature_celsius", "power_watts", "sm_clock_mhz", "memory_clock_mhz", "utilization_percent",
             "memory_used_bytes", "fan_speed_percent", "ecc_mode", "mig_mode")  # fmt: skip

    def there(place: int) -> Value:
        return lambda second: 50.0 if int(second / 5) >> place & 1 else None

    frames = trace(seconds=4_000, step=5, each=lambda n: {name: there(place) for place, name in enumerate(names)})

    assert_stays_small(list(frames))


# -- what can be asked ----------------------------------------------------------------------------------------------------------


def test_devices_as_they_were_last_seen() -> None:
    """With their newest readings; without those that are stale or were never there."""
    frames = trace(seconds=60, step=5, devices=2, listed=lambda n, s: n == 0 or s < 30, temperature_celsius=60.0,
                   power_watts=lambda s: 100.0 if s < 20 else None)  # fmt: skip
    engine = engine_of(HOT)
    feed(engine, (replace(frame, unavailable={"GPU-0": {"fan_speed_percent": "not_supported"}}) for frame in frames))
    first, second = engine.devices()

    assert (DEVICES[0], True, False, START + 60) == (first.device, first.visible, first.simulated, first.last_seen_at)
    assert 60.0 == first.readings["temperature_celsius"]
    assert {"power_watts", "fan_speed_percent"} & set(first.readings) == set()
    assert {"fan_speed_percent": "not_supported"} == first.unavailable
    assert (False, 0.0) == (second.visible, second.readings["device_visible"])
    assert START + 25 == second.last_seen_at


def test_a_device_that_only_a_fault_tells_of_was_seen_at_a_moment() -> None:
    """When that fault was told: a time that can be shown."""
    engine = engine_of(HOT)
    feed(engine, (replace(f, faults=(Fault("gpu_lost", "GPU-1"),)) for f in trace(seconds=20, step=5, temperature_celsius=60.0)))
    lost = next(status for status in engine.devices() if status.device.uuid == "GPU-1")

    assert START <= lost.last_seen_at <= START + 20
    assert not lost.visible


def test_coverage_says_which_rule_cannot_judge_which_device_and_why() -> None:
    """Missing is not healthy."""
    frames = [
        replace(frame, unavailable={"GPU-1": {"temperature_celsius": "no_permission"}})
        for frame in trace(seconds=60, step=5, devices=3, each=lambda n: {"temperature_celsius": 60.0 if n == 0 else None})
    ]
    engine = engine_of(HOT)
    feed(engine, frames)

    assert [
        ("hot", "GPU-0", True, ""),
        ("hot", "GPU-1", False, "temperature_celsius (no_permission)"),
        ("hot", "GPU-2", False, "temperature_celsius (no reading)"),
    ] == [(c.rule, c.device, c.answerable, c.reason) for c in engine.coverage()]


def test_kept_readings_can_be_read() -> None:
    """From since to until; None where nothing is known."""
    engine = engine_of(HOT)
    feed(engine, trace(seconds=600, step=10, temperature_celsius=lambda s: 50.0 + s / 100))
    series = engine.readings("GPU-0", "temperature_celsius", START + 200, START + 400)

    assert series is not None
    assert START + 190 <= series.times[0] <= START + 210
    assert START + 390 <= series.times[-1] <= START + 400
    assert list(series.values) == sorted(series.values)
    assert engine.readings("GPU-9", "temperature_celsius", START, START + 400) is None
    assert engine.readings("GPU-0", "no_such_metric", START, START + 400) is None


def test_a_blind_host_and_an_empty_engine_do_no_harm() -> None:
    """No frames, no rules, no devices."""
    blind = Frame("node-b", START, faults=(Fault("library_not_found"),))
    engine = engine_of({})

    assert ([], []) == (engine.observe(), engine.observe(blind))
    assert ([], [], []) == (engine.devices(), engine.coverage(), engine.incidents())
    assert [] == engine_of(RULES).observe(blind)
