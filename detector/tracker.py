"""From answers to incidents: which subject an answer is about, and what its incident looks like."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from detector.frame import Device, Event, Process
from detector.incident import (
    CLEAR,
    SEVERITIES,
    Change,
    Condition,
    DeviceRef,
    Incident,
    Policy,
    Series,
    Severity,
    Suspect,
    Transition,
    Workload,
    advance,
    fingerprint,
    incident_id,
)
from detector.metrics import Entity
from detector.rule import Story
from detector.window import Subject

LATCHED: Final = "events:"
"""How the subject of an incident begins that events make."""


@dataclass(slots=True)
class Latch:
    """What is remembered of the events behind an incident."""

    keep_firing: float
    """Seconds without a repeat after which it is over."""
    subjects: list[Subject] = field(default_factory=list)
    last_at: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    """Tag -> number of events."""
    untold: bool = False
    """Events were counted since the last Change."""
    recent: deque[tuple[Event, str | None, list[str]]] = field(default_factory=lambda: deque(maxlen=256))
    """The newest events, their devices, and the sources that told them, to know one that is told again."""

    def repeats(self, event: Event, uuid: str | None) -> bool:
        """Whether the event was told already: by another source within a second, or with equal time and text.

        A source tells each event once, so one that comes from it again within that second is another.
        """
        source = event.source or ""
        for known, device, sources in self.recent:
            if (device, known.code, known.kind) != (uuid, event.code, event.kind):
                continue
            if (known.at, known.message) == (event.at, event.message):
                return True
            if abs(event.at - known.at) <= 1.0 and source and sources[0] and source not in sources:
                sources.append(source)
                return True
        self.recent.append((event, uuid, [source]))
        return False

    def seen(self) -> str:
        """`79 x3, 45 x12`: tags in the order they first came."""
        return ", ".join(tag if count == 1 else f"{tag} x{count}" for tag, count in self.counts.items())


@dataclass(slots=True)
class Track:
    """One rule on one subject, from its first sign until it is forgotten."""

    rule: str
    host: str
    subject: str
    condition: Condition = CLEAR
    incident: Incident | None = None
    members: set[int] = field(default_factory=set)
    """Rows that are or were concerned while the incident is open."""
    latch: Latch | None = None
    """Set where events make the incident, not readings."""
    restored: bool = False
    """Taken over from a former process: its rows are not known yet."""
    entity: Entity | None = None
    """The kind of its members; None where events make it or it was restored."""
    clock: float = 0.0
    """When it was last asked about."""


@dataclass(slots=True)
class Report:
    """All that goes into an incident at one look."""

    at: float
    clock: float
    severity: Severity
    subjects: list[Subject]
    """What is concerned, the first first."""
    tell: Callable[[], Story]
    value: float = math.nan
    threshold: float = math.nan
    gather: Callable[[Story], tuple[Series, ...]] = lambda story: ()
    """Evidence for the story."""
    escalate_after: float | None = None
    wastes: bool = False


class Tracker:
    """Every condition that is not clear, and its incident."""

    def __init__(self) -> None:
        self._tracks: dict[tuple[str, str, str], Track] = {}
        self._hosts: dict[str, dict[str, dict[str, Track]]] = {}
        """host -> rule -> subject -> track."""
        self._rules: Counter[str] = Counter()

    def tracks(self, rule: str, host: str) -> list[Track]:
        """The tracks of a rule on a host."""
        return list(self._hosts.get(host, {}).get(rule, {}).values())

    def tracked(self, rule: str) -> bool:
        """Whether the rule has any track at all."""
        return self._rules[rule] > 0

    def on_host(self, host: str) -> list[Track]:
        """All tracks of a host."""
        return [track for tracks in self._hosts.get(host, {}).values() for track in tracks.values()]

    def __contains__(self, key: tuple[str, str, str]) -> bool:
        """Whether there is a track of (rule, host, subject)."""
        return key in self._tracks

    def busy(self, hosts: Collection[str]) -> list[str]:
        """Those of the hosts that have tracks, in the order given."""
        return [host for host in hosts if host in self._hosts]

    def all(self) -> Iterator[Track]:
        return iter(self._tracks.values())

    def track(self, rule: str, host: str, subject: str) -> Track:
        key = (rule, host, subject)
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(rule, host, subject)
            self._rules[rule] += 1
            self._hosts.setdefault(host, {}).setdefault(rule, {})[subject] = track
        return track

    def forget(self, track: Track) -> None:
        del self._tracks[track.rule, track.host, track.subject]
        self._rules[track.rule] -= 1
        rules = self._hosts[track.host]
        del rules[track.rule][track.subject]
        if not rules[track.rule]:
            del rules[track.rule]
        if not rules:
            del self._hosts[track.host]

    def restore(self, incident: Incident, keep_firing: float) -> None:
        """Take up an open incident where a former process left it: it does not fire again, and is not forgotten.

        *keep_firing* is for one made by events: seconds after the last of them. What counts from the beginning goes on counting.
        """
        track = self.track(incident.rule, incident.host, incident.subject)
        track.incident, track.restored = incident, True
        now = incident.last_seen_at if incident.subject.startswith(LATCHED) else 0.0
        if incident.subject.startswith(LATCHED):
            subjects = [Subject(incident.host, Device(d.uuid, d.index, d.name, d.pci_bus_id, d.parent)) for d in incident.devices]
            track.latch = Latch(keep_firing, subjects, last_at=now)
        began = now - (incident.last_seen_at - (incident.reopened_at or incident.fired_at or incident.started_at))
        track.condition = Condition(
            state="pending" if incident.state == "pending" else "firing",
            true_since=began,
            asked_at=now,
            returns=(now,) if incident.flapping else (),
            flapping=incident.flapping,
        )

    def step(self, track: Track, answer: bool | None, policy: Policy, report: Report) -> list[Change]:
        """One answer about a track: its condition moves on, its incident follows. If its words cannot be had, nothing has happened."""
        condition, transition = advance(track.condition, answer, report.clock, policy)
        incident = track.incident
        if transition is not None:
            incident = self._followed(track, condition, transition, report)
        elif answer and incident is not None and incident.open:
            transition, incident = self._refreshed(track, condition, incident, report)
        track.condition, track.incident, track.clock = condition, incident, report.clock
        if condition.state in ("clear", "resolved") and condition.true_since is None:
            track.members.clear()
        if condition.state == "clear":
            self.forget(track)
        return [Change(transition, report.at, incident)] if transition is not None and incident is not None else []

    def rename(self, host: str, before: str, now: str) -> None:
        """A device has turned out to have a better name: what was said of it goes on under that name."""
        for track in self.on_host(host):
            head, mark, rest = track.subject.rpartition(before)
            if not mark or head not in ("", LATCHED) or rest[:1] not in ("", "/"):
                continue
            self.forget(track)
            track.subject = f"{head}{now}{rest}"
            if track.incident is not None:
                devices = tuple(replace(d, uuid=now) if d.uuid == before else d for d in track.incident.devices)
                first = next((d for d in devices if d.uuid == now), track.incident.device)
                track.incident = replace(track.incident, subject=track.subject, devices=devices, device=first)
            self._tracks[track.rule, host, track.subject] = track
            self._rules[track.rule] += 1
            self._hosts.setdefault(host, {}).setdefault(track.rule, {})[track.subject] = track

    def drop_expired(self, host: str, observed: float, now: float, after: float) -> None:
        """Forget what was resolved more than *after* seconds ago, by the clock that it goes by."""
        for track in self.on_host(host):
            ended = track.condition.resolved_at
            clock = observed if track.latch is None else now
            if track.condition.state == "resolved" and ended is not None and clock - ended > after:
                self.forget(track)

    # -- the incident -------------------------------------------------------------------------------------------------------
    def _followed(self, track: Track, condition: Condition, transition: Transition, report: Report) -> Incident:
        """The incident after a transition."""
        incident = track.incident
        if transition in ("opened", "fired") and (incident is None or not incident.open):
            mark = fingerprint(track.rule, track.host, track.subject)
            incident = Incident(id=incident_id(mark, report.at), fingerprint=mark, rule=track.rule, severity=report.severity,
                                state="pending", host=track.host, started_at=report.at, last_seen_at=report.at,
                                subject=track.subject)  # fmt: skip
        assert incident is not None
        if transition in ("dropped", "resolved"):
            return replace(incident, state="resolved", resolved_at=report.at, flapping=condition.flapping)
        incident = self._told(condition, incident, report)
        if transition == "opened":
            return incident
        held = report.clock - condition.true_since if condition.true_since is not None else 0.0
        incident = replace(incident, state="firing", flapping=condition.flapping, wasted_gpu_seconds=_wasted(incident, report, held))
        if transition == "fired":
            return replace(incident, fired_at=report.at)
        return replace(incident, reopened_at=report.at, resolved_at=None, occurrences=incident.occurrences + 1)

    def _refreshed(self, track: Track, condition: Condition, incident: Incident, report: Report) -> tuple[Transition | None, Incident]:
        """An open incident, up to date; "updated" if a person would want to know."""
        if incident.state == "firing":
            incident = replace(incident, wasted_gpu_seconds=_wasted(incident, report, report.clock - track.clock))
        severity = self._severity(condition, incident, report)
        worse = SEVERITIES.index(severity) > SEVERITIES.index(incident.severity)
        more = len(_devices(report.subjects, incident.devices)) > len(incident.devices)
        if worse or more or condition.flapping != incident.flapping:
            told = replace(self._told(condition, incident, report), flapping=condition.flapping)
            return ("updated" if incident.state == "firing" else None), told
        return None, replace(incident, last_seen_at=max(report.at, incident.last_seen_at), value=_number(report.value, incident.value))

    def _severity(self, condition: Condition, incident: Incident, report: Report) -> Severity:
        """The worst so far: an incident does not become milder while it is open."""
        severity = max(report.severity, incident.severity, key=SEVERITIES.index)
        since = condition.true_since
        lasts = report.clock - since if since is not None and incident.fired_at is not None else 0.0
        if report.escalate_after is not None and lasts >= report.escalate_after > 0.0:
            return "critical"
        return severity

    def _told(self, condition: Condition, incident: Incident, report: Report) -> Incident:
        story = report.tell()
        devices = _devices(report.subjects, incident.devices)
        suspect = None
        if story.suspect is not None:
            place, reason = story.suspect
            culprit = report.subjects[place].device
            suspect = Suspect(culprit.uuid, reason) if culprit else None
        first = next((d for d in devices if suspect and d.uuid == suspect.uuid), devices[0] if devices else None)
        return replace(
            incident,
            severity=self._severity(condition, incident, report),
            last_seen_at=max(report.at, incident.last_seen_at),
            device=first,
            devices=devices,
            suspect=suspect,
            workload=_workload(report.subjects, story.pid),
            summary=story.summary,
            description=story.description,
            action=story.action,
            value=_number(report.value, incident.value),
            threshold=_number(report.threshold, incident.threshold),
            unit=story.unit,
            evidence=report.gather(story) or incident.evidence,
        )


def bare(at: float, clock: float) -> Report:
    """A report with nothing to tell: for what only ends."""
    return Report(at=at, clock=clock, severity="info", subjects=[], tell=lambda: Story(""))


def subject_key(subject: Subject) -> str:
    """The part of a fingerprint that says what it is about."""
    if subject.job is not None and subject.device is None:
        return f"job:{subject.job}"
    uuid = subject.device.uuid if subject.device else ""
    return f"{uuid}/{subject.process.pid}" if subject.process is not None else uuid


def reference(device: Device) -> DeviceRef:
    return DeviceRef(device.uuid, device.index, device.name, device.kind, device.parent, device.pci_bus_id)


def _devices(subjects: Iterable[Subject], before: tuple[DeviceRef, ...]) -> tuple[DeviceRef, ...]:
    known = {ref.uuid: ref for ref in before}
    known.update((s.device.uuid, reference(s.device)) for s in subjects if s.device is not None)
    return tuple(sorted(known.values(), key=lambda d: (d.index is None, d.index or 0, d.uuid)))


def _workload(subjects: Iterable[Subject], pid: int | None) -> Workload | None:
    """The process that the rule named, else the one that holds most memory on the devices concerned."""
    processes = [p for s in subjects for p in ((s.process,) if s.process else s.processes or ())]
    if pid is not None:
        processes = [p for p in processes if p.pid == pid] or processes
    if not processes:
        return None
    p: Process = max(processes, key=lambda p: p.memory_used_bytes or 0.0)
    return Workload(p.pid, p.command, p.user, p.container, p.namespace, p.pod, p.job)


def _wasted(incident: Incident, report: Report, seconds: float) -> float:
    """GPU seconds wasted so far, *seconds* more of them on each device."""
    return incident.wasted_gpu_seconds + (seconds * max(1, len(incident.devices)) if report.wastes else 0.0)


def _number(value: float, otherwise: float | None) -> float | None:
    return otherwise if np.isnan(value) else float(value)
