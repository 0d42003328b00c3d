"""From answers to incidents: what an incident looks like at each step of its life."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.frame import Device, Process
from detector.incident import Change, Incident, Policy, Series, Severity
from detector.rule import Story
from detector.tracker import Report, Track, Tracker, reference
from detector.window import Subject

POLICY = Policy(hold=10.0, keep_firing=10.0, cool_down=100.0)
START = 1_700_000_000.0
GPUS = [Subject("node-a", Device(f"GPU-{n}", index=n)) for n in range(4)]
STORY = Story(summary="it is so", action="do this", description="because", unit="watts")


def report(
    clock: float,
    *,
    severity: Severity = "warning",
    subjects: Sequence[Subject] = GPUS[:1],
    story: Story = STORY,
    value: float = 5.0,
    evidence: tuple[Series, ...] = (),
    escalate_after: float | None = None,
    wastes: bool = False,
) -> Report:
    """All that goes into an incident at *clock* seconds of observed time."""
    return Report(START + clock, clock, severity, list(subjects), lambda: story, value, 3.0, lambda story: evidence, escalate_after, wastes)


class Life:
    """One condition, stepped from moment to moment."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.tracker, self.policy = Tracker(), policy
        self.told: list[Change] = []

    def step(self, answer: bool | None, said: Report) -> Incident:
        """The incident after the step."""
        track = self.tracker.track("rule", "node-a", "GPU-0")
        self.told += self.tracker.step(track, answer, self.policy, said)
        assert track.incident is not None
        return track.incident

    @property
    def transitions(self) -> list[str]:
        return [change.transition for change in self.told]


def fired(**said: object) -> tuple[Life, Incident]:
    """A life that has just begun to fire, and its incident."""
    life = Life()
    life.step(True, report(0.0, **said))  # type: ignore[arg-type]
    return life, life.step(True, report(10.0, **said))  # type: ignore[arg-type]


# -- a life -------------------------------------------------------------------------------------------------------------------


def test_an_incident_has_one_time_a_transition() -> None:
    """Started, fired, resolved, reopened; last seen whenever it was seen."""
    life = Life()
    assert ("pending", None) == ((i := life.step(True, report(0.0))).state, i.fired_at)
    assert ("firing", START + 10) == ((i := life.step(True, report(10.0))).state, i.fired_at)
    assert START + 20 == life.step(True, report(20.0)).last_seen_at
    assert START + 20 == life.step(False, report(30.0)).last_seen_at
    i = life.step(False, report(40.0))
    assert ("resolved", START + 40, START + 20) == (i.state, i.resolved_at, i.last_seen_at)
    life.step(True, report(50.0))
    i = life.step(True, report(60.0))
    assert ("firing", START, START + 10, START + 60, None) == (i.state, i.started_at, i.fired_at, i.reopened_at, i.resolved_at)
    assert ["opened", "fired", "resolved", "reopened"] == life.transitions
    assert 1 == len({change.incident.id for change in life.told})


def test_a_change_shows_the_incident_as_it_was_then() -> None:
    """What comes later does not alter it."""
    life, _ = fired()
    life.step(False, report(20.0))
    life.step(False, report(30.0))

    assert ["pending", "firing", "resolved"] == [change.incident.state for change in life.told]
    assert [START, START + 10, START + 30] == [change.at for change in life.told]


def test_a_later_episode_is_another_incident() -> None:
    """With another id, the same fingerprint, and nothing of the old one's life."""
    life, first = fired(severity="critical")
    for clock in (20.0, 30.0, 200.0):
        life.step(False, report(clock))
    life.step(True, report(210.0))
    second = life.step(True, report(220.0))

    assert first.id != second.id
    assert first.fingerprint == second.fingerprint
    assert (START + 210, START + 220, None, None) == (second.started_at, second.fired_at, second.reopened_at, second.resolved_at)
    assert ("warning", 1) == (second.severity, second.occurrences)


def test_what_was_never_more_than_pending_is_forgotten() -> None:
    """It is told as dropped."""
    life = Life()
    life.step(True, report(0.0))
    life.step(False, report(5.0))

    assert ["opened", "dropped"] == life.transitions
    assert [] == list(life.tracker.all())


# -- what it looks like -------------------------------------------------------------------------------------------------------


def test_an_incident_tells_the_story() -> None:
    """In the rule's words, with its numbers."""
    series = Series("power_watts", "watts", (1.0,), (2.0,), "GPU-0")
    _, incident = fired(evidence=(series,))

    assert ("it is so", "do this", "because", "watts") == (incident.summary, incident.action, incident.description, incident.unit)
    assert (5.0, 3.0, (series,)) == (incident.value, incident.threshold, incident.evidence)


def test_the_story_is_told_once() -> None:
    """While nothing changes, nobody is asked for words."""
    asked = []
    life = Life(Policy(hold=0.0, keep_firing=10.0))
    for clock in range(0, 100, 10):
        said = report(float(clock))
        said.tell = lambda: asked.append(1) or STORY  # type: ignore[func-returns-value]
        life.step(True, said)

    assert [1] == asked
    assert ["fired"] == life.transitions


def test_the_value_is_kept_up_to_date() -> None:
    """Without a change; and a value that is not a number does not displace one that was."""
    life, _ = fired()

    assert 7.0 == life.step(True, report(20.0, value=7.0)).value
    assert 7.0 == life.step(True, report(30.0, value=math.nan)).value
    assert ["opened", "fired"] == life.transitions


def test_it_does_not_become_milder_while_it_is_open() -> None:
    """The worst so far; getting worse is told."""
    life, incident = fired()
    assert "warning" == incident.severity
    assert "critical" == life.step(True, report(20.0, severity="critical")).severity
    assert "critical" == life.step(True, report(30.0, severity="info")).severity
    assert ["opened", "fired", "updated"] == life.transitions


def test_it_escalates_in_time() -> None:
    """Seconds since it was true, blind ones left out; never before it fires."""
    life, _ = fired(escalate_after=30.0)
    life.step(None, report(1_000.0, escalate_after=30.0))

    assert "warning" == life.step(True, report(1_010.0, escalate_after=30.0)).severity
    assert "critical" == life.step(True, report(1_020.0, escalate_after=30.0)).severity
    assert ["opened", "fired", "updated"] == life.transitions


def test_a_pending_incident_may_get_worse_quietly() -> None:
    """Nobody is told before it fires."""
    life = Life(Policy(hold=30.0))
    life.step(True, report(0.0, severity="info"))
    assert "critical" == life.step(True, report(10.0, severity="critical")).severity

    assert ["opened"] == life.transitions


def test_devices_are_added_and_stay() -> None:
    """By index; one more is told, one less is not."""
    life, _ = fired(subjects=GPUS[2:3])
    more = life.step(True, report(20.0, subjects=[GPUS[0], GPUS[2]]))
    less = life.step(True, report(30.0, subjects=GPUS[:1]))

    assert ["GPU-0", "GPU-2"] == [device.uuid for device in more.devices] == [device.uuid for device in less.devices]
    assert more.device == reference(Device("GPU-0", index=0))
    assert ["opened", "fired", "updated"] == life.transitions


def test_the_suspect_comes_first() -> None:
    """It is the incident's device, though another one has a lower index."""
    _, incident = fired(subjects=[GPUS[0], GPUS[3]], story=Story("stuck", suspect=(1, "it rests")))

    assert incident.device is not None
    assert incident.suspect is not None
    assert ("GPU-3", "GPU-3", "it rests") == (incident.device.uuid, incident.suspect.uuid, incident.suspect.reason)


def test_a_host_has_no_device() -> None:
    """The incident is about all of it."""
    _, incident = fired(subjects=[Subject("node-a")], story=Story("blind", suspect=(0, "who else")))

    assert (None, (), None, None) == (incident.device, incident.devices, incident.suspect, incident.workload)


@pytest.mark.parametrize(
    ("subjects", "pid", "expected"),
    [
        ([Subject("node-a", GPUS[0].device, (Process(1, 5.0), Process(2, 9.0)))], None, 2),
        ([Subject("node-a", GPUS[0].device, (Process(1, 5.0), Process(2, 9.0)))], 1, 1),
        ([Subject("node-a", GPUS[0].device, (Process(1, 5.0), Process(2, 9.0)))], 77, 2),
        ([Subject("node-a", GPUS[0].device, (Process(1, None), Process(2, 9.0)))], None, 2),
        ([Subject("node-a", GPUS[0].device, (Process(1, 5.0),)), Subject("node-a", GPUS[1].device, (Process(3, 7.0),))], None, 3),
        ([Subject("node-a", GPUS[0].device, (Process(4),), Process(4))], None, 4),
        ([Subject("node-a", GPUS[0].device, ())], None, None),
        ([Subject("node-a", GPUS[0].device, None)], 1, None),
    ],
)
def test_whose_work_is_concerned(subjects: list[Subject], pid: int | None, expected: int | None) -> None:
    """The process that the rule names, else the one that holds most."""
    _, incident = fired(subjects=subjects, story=Story("slow", pid=pid))

    assert expected == (incident.workload.pid if incident.workload else None)


def test_flapping_is_told_once() -> None:
    """And once more when it is over."""
    life = Life(Policy(hold=0.0, keep_firing=20.0, cool_down=100.0, flap_count=3, flap_window=200.0))
    for clock in range(0, 1_000, 10):
        life.step(clock % 20 == 0 or clock > 200, report(float(clock)))

    assert ["fired", "updated", "updated"] == life.transitions
    assert [False, True, False] == [change.incident.flapping for change in life.told]


def test_waste_counts_every_device() -> None:
    """GPU-seconds since it began."""
    life, _ = fired(subjects=GPUS[:2], wastes=True)

    assert 200.0 == life.step(True, report(100.0, subjects=GPUS[:2], wastes=True)).wasted_gpu_seconds


# -- all tracks ---------------------------------------------------------------------------------------------------------------

KEYS = st.tuples(st.sampled_from("rs"), st.sampled_from("ab"), st.sampled_from("xyz"))


@given(st.lists(st.tuples(KEYS, st.booleans()), max_size=40))
def test_tracks_are_found_by_rule_and_host(steps: list[tuple[tuple[str, str, str], bool]]) -> None:
    """Whatever was begun and forgotten in whichever order."""
    tracker = Tracker()
    known: dict[tuple[str, str, str], Track] = {}
    for key, keep in steps:
        track = tracker.track(*key)
        assert track is known.setdefault(key, track)
        if not keep:
            tracker.forget(track)
            del known[key]

    def keys(tracks: object) -> set[tuple[str, str, str]]:
        return {(track.rule, track.host, track.subject) for track in tracks}  # type: ignore[attr-defined]

    assert set(known) == keys(tracker.all())
    for host in "ab":
        assert {key for key in known if key[1] == host} == keys(tracker.on_host(host))
        assert any(key[1] == host for key in known) == (host in tracker.busy(["a", "b"]))
        for rule in "rs":
            assert {key for key in known if key[:2] == (rule, host)} == keys(tracker.tracks(rule, host))


def test_what_is_over_is_forgotten_in_time() -> None:
    """By the observed clock of its own host; what is open never is."""
    life, _ = fired()
    tracker = life.tracker
    tracker.drop_expired("node-a", 1e9, 1e9, 3_600.0)
    assert 1 == len(tracker.on_host("node-a"))
    life.step(False, report(20.0))
    life.step(False, report(30.0))
    tracker.drop_expired("node-b", 1e9, 1e9, 3_600.0)
    tracker.drop_expired("node-a", 3_630.0, 1e9, 3_600.0)
    assert 1 == len(tracker.on_host("node-a"))
    tracker.drop_expired("node-a", 3_631.0, 0.0, 3_600.0)
    assert [] == list(tracker.all())


# -- restart ------------------------------------------------------------------------------------------------------------------


def restored(incident: Incident) -> Life:
    life = Life()
    life.tracker.restore(incident, 0.0)
    return life


def test_a_restored_incident_goes_on() -> None:
    """It does not fire again, keeps its id and its beginning, and resolves."""
    _, before = fired(severity="critical")
    life = restored(before)
    after = life.step(True, report(0.0))
    assert (before.id, before.fired_at, "critical", "firing") == (after.id, after.fired_at, after.severity, after.state)
    life.step(False, report(10.0))
    assert "resolved" == life.step(False, report(20.0)).state
    assert ["resolved"] == life.transitions


def test_a_restored_pending_incident_fires_under_its_id() -> None:
    """Or is dropped."""
    life = Life()
    before = life.step(True, report(0.0))
    one, other = restored(before), restored(before)
    one.step(True, report(0.0))
    assert (before.id, "firing") == ((after := one.step(True, report(10.0))).id, after.state)
    other.step(False, report(0.0))
    assert (["fired"], ["dropped"]) == (one.transitions, other.transitions)


# -- names --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "renamed"),
    [
        ("INDEX-1", "GPU-a"),
        ("INDEX-1/77", "GPU-a/77"),
        ("events:INDEX-1/31", "events:GPU-a/31"),
        ("INDEX-11", "INDEX-11"),
        ("INDEX-11/77", "INDEX-11/77"),
        ("job:INDEX-1", "job:INDEX-1"),
        ("", ""),
    ],
)
def test_a_better_name_is_taken_over(subject: str, renamed: str) -> None:
    """By what is about that device, and by nothing that only looks like it."""
    tracker = Tracker()
    track = tracker.track("rule", "node-a", subject)
    elsewhere = tracker.track("rule", "node-b", subject)
    tracker.rename("node-a", "INDEX-1", "GPU-a")

    assert track is tracker.track("rule", "node-a", renamed)
    assert elsewhere is tracker.track("rule", "node-b", subject)
    assert [track] == tracker.tracks("rule", "node-a")


def test_an_incident_is_told_under_the_better_name() -> None:
    """Its id stays."""
    life = Life()
    subject = Subject("node-a", Device("GPU-0", index=0))
    for clock in (0.0, 10.0):
        before = life.step(True, report(clock, subjects=[subject]))
    life.tracker.rename("node-a", "GPU-0", "GPU-a")
    (track,) = life.tracker.all()

    assert track.incident is not None
    assert track.incident.device is not None
    assert (before.id, "GPU-a", "GPU-a") == (track.incident.id, track.incident.subject, track.incident.device.uuid)
    assert ["GPU-a"] == [device.uuid for device in track.incident.devices]


# -- words that cannot be had ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clocks", [(0.0,), (0.0, 10.0)], ids=["opened", "fired"])
def test_a_step_without_words_did_not_happen(clocks: tuple[float, ...]) -> None:
    """The next one tells what this one could not."""

    def mute() -> Story:
        raise ZeroDivisionError("no words")

    life = Life()
    for clock in clocks[:-1]:
        life.step(True, report(clock))
    said = report(clocks[-1])
    said.tell = mute
    with pytest.raises(ZeroDivisionError):
        life.step(True, said)
    life.step(True, report(clocks[-1] + 5.0))

    assert ["opened", "fired"][: len(clocks)] == life.transitions
