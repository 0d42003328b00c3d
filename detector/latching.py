"""Incidents that events make: an event is counted into its incident, and the incident lasts until there has been none for a while."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from detector.evidence import evidence
from detector.frame import Device, Event
from detector.incident import Change, Policy, Series
from detector.inventory import Host, Inventory
from detector.judging import Judge
from detector.rule import Finding, JudgesEvents
from detector.ruleset import Configured
from detector.tracker import LATCHED, Latch, Report, Track, Tracker, bare, subject_key
from detector.window import Subject

NEVER_FLAPPING: Final = 2**31


class Latches:
    """Judges events by *rules* and keeps the incidents they make in *tracker*."""

    def __init__(self, rules: list[Configured], inventory: Inventory, tracker: Tracker, cool_down: float, judge: Judge) -> None:
        self._rules, self._inventory, self._tracker, self._cool_down, self._judge = rules, inventory, tracker, cool_down, judge

    def take(self, host: Host, event: Event) -> list[Change]:
        """Let every rule judge the event. One that fails silences no other."""
        changes: list[Change] = []
        uuid = self._inventory.resolve(host, event.uuid) if event.uuid else None
        row = host.devices.get(uuid) if uuid else None
        subject = self._inventory.subject("device", row) if row is not None else Subject(host.name, _unlisted(uuid))
        for configured in self._rules:
            try:
                rule = configured.for_(host.name, subject.device, subject.processes or ())
                finding = rule.judge(event) if rule.enabled and isinstance(rule, JudgesEvents) else None
                if finding is not None and isinstance(rule, JudgesEvents):
                    changes += self._count(configured.name, rule.keep_for(finding.severity), host, subject, event, finding)
                self._judge.mended(configured.name)
            except Exception as error:
                # A user's rule may fail in any way.
                self._judge.failed(configured.name, error)
        return changes

    def expire(self, host: Host, at_once: Policy) -> list[Change]:
        """End what has not been repeated for long enough, and tell of repeats that were only counted."""
        changes: list[Change] = []
        for track in self._tracker.on_host(host.name):
            latch = track.latch
            if latch is None:
                continue
            # A boot ends what went before it: the driver has started afresh.
            policy = at_once if host.rebooted and latch.last_at <= host.before else self._policy(latch)
            changes += self._tracker.step(track, False, policy, bare(host.clock.now, host.clock.now))
            if latch.untold and track.incident is not None and track.incident.open:
                changes.append(Change("updated", host.clock.now, track.incident))
            latch.untold = False
        return changes

    def _count(self, name: str, keep: float, host: Host, subject: Subject, event: Event, finding: Finding) -> list[Change]:
        """Count an event into its incident, or begin one."""
        track = self._track(name, host, subject, event, finding)
        latch = track.latch = track.latch or Latch(keep)
        if latch.repeats(event, subject.device.uuid if subject.device else None):
            return []
        before = track.incident
        subjects = [known for known in latch.subjects if known.device != subject.device] + [subject]
        report = Report(
            at=event.at,
            clock=max(event.at, track.clock),
            severity=finding.severity,
            subjects=subjects,
            tell=lambda: finding.story,
            gather=lambda story: self._evidence(host, subjects, story.evidence),
        )
        latch.keep_firing = max(latch.keep_firing, keep)
        changes = self._tracker.step(track, True, self._policy(latch), report)
        incident = track.incident
        if incident is None:
            return changes
        goes_on = before is not None and before.id == incident.id
        if not goes_on:
            latch.counts.clear()
            subjects = [subject]
        latch.subjects, latch.last_at = subjects, max(event.at, latch.last_at)
        latch.counts[finding.tag] += 1
        labels = {**incident.labels, "seen": latch.seen()} if any(latch.counts) else incident.labels
        occurrences = before.occurrences + 1 if before is not None and goes_on else 1
        track.incident = replace(incident, occurrences=occurrences, labels=labels)
        latch.untold = not changes
        return [replace(change, incident=track.incident) for change in changes]

    def _track(self, name: str, host: Host, subject: Subject, event: Event, finding: Finding) -> Track:
        key = f"{LATCHED}{subject_key(subject)}/{finding.subject}"
        if finding.spread > 0.0 and (name, host.name, key) not in self._tracker:
            for track in self._tracker.tracks(name, host.name):
                near = track.latch is not None and abs(event.at - track.latch.last_at) <= finding.spread
                if near and track.subject.endswith(f"/{finding.subject}"):
                    return track
        return self._tracker.track(name, host.name, key)

    def _policy(self, latch: Latch) -> Policy:
        return Policy(keep_firing=latch.keep_firing, cool_down=self._cool_down, flap_count=NEVER_FLAPPING)

    def _evidence(self, host: Host, subjects: list[Subject], metrics: tuple[str, ...]) -> tuple[Series, ...]:
        named = [self._inventory.resolve(host, subject.device.uuid) for subject in subjects if subject.device is not None]
        return evidence(self._inventory, host, "device", [host.devices[uuid] for uuid in named if uuid in host.devices], metrics)


def _unlisted(uuid: str | None) -> Device | None:
    """A device that no frame has listed, as far as its name tells."""
    if uuid is None:
        return None
    return Device(uuid, pci_bus_id=uuid.removeprefix("PCI-") if uuid.startswith("PCI-") else None)
