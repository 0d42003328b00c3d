"""From rules to incidents: lets a rule judge a window and carries each of its answers to the track it is about."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from detector.evidence import evidence
from detector.incident import SEVERITIES, Change, Policy
from detector.inventory import Host, Inventory
from detector.metrics import METRICS, Entity
from detector.rule import AnyRule, Rule, Verdict
from detector.ruleset import Configured
from detector.tracker import Report, Track, Tracker, bare, subject_key
from detector.window import Subject, Window

log = logging.getLogger(__name__)

AT_ONCE: Final = Policy(hold=0.0, keep_firing=0.0, cool_down=0.0, flap_quiet=0.0)
"""For what ends for good: its process, its device, the boot it was of."""

RESTORE_SECONDS: Final = 120.0
"""So long after a restart a device or process that had an incident may take to show up again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule answers for a whole window, and which variant of it (an override's, say) answered for which row."""

    verdict: Verdict
    variants: list[Rule]
    of_row: list[int]

    def rule(self, place: int) -> Rule:
        return self.variants[self.of_row[place]]


class Judge:
    """Judges windows by rules. Errors of rules are kept in `errors`: one broken rule, or one device it fails on, never silences others."""

    def __init__(self, inventory: Inventory, tracker: Tracker, cool_down: float) -> None:
        self._inventory, self._tracker, self._cool_down = inventory, tracker, cool_down
        self._variants: dict[tuple[Entity, int], dict[str, tuple[object, AnyRule]]] = {}
        self.errors: dict[str, str] = {}
        self._judged: set[str] = set()
        self._failing: set[str] = set()

    def begin(self) -> None:
        """A look begins."""
        self._judged, self._failing = set(), set()

    def end(self) -> None:
        """A look is over: a rule that judged everything is mended."""
        for name in self._judged - self._failing:
            self.errors.pop(name, None)

    def mended(self, name: str) -> None:
        """A rule of events judged one."""
        if name not in self._judged:
            self.errors.pop(name, None)

    def failed(self, name: str, error: Exception) -> None:
        """Note that a rule could not judge or find its words; the first time with a traceback in the log."""
        self._failing.add(name)
        if name not in self.errors:
            log.error("%s failed", name, exc_info=error)
        self.errors[name] = f"{type(error).__name__}: {error}"

    def judge(self, configured: Configured, window: Window, hosts: Sequence[Host]) -> list[Change]:
        """Let the rule look at the window."""
        name = configured.name
        if not self._tracker.tracked(name) and not _can_tell(configured, window):
            return []
        self._judged.add(name)
        changes: list[Change] = []
        try:
            changes = self._apply(name, self._ask(configured, window), window, {host.name: host for host in hosts})
        except Exception as error:
            # A user's rule may fail in any way.
            self.failed(name, error)
        return changes

    def bury(self, rules: Sequence[Configured]) -> list[Change]:
        """A process or job that ended, or a device that was forgotten, has no condition any more."""
        changes: list[Change] = []
        gone, self._inventory.gone = self._inventory.gone, []
        for entity, row, subject in gone:
            self._variants.pop((entity, row), None)
            host = self._inventory.hosts[subject.host]
            for configured in rules:
                for track in self._tracker.tracks(configured.name, host.name):
                    if track.entity == entity and row in track.members:
                        track.members.discard(row)
                        if not track.members:
                            changes += self._tracker.step(track, False, AT_ONCE, bare(host.clock.now, host.clock.observed))
        return changes

    def give_up(self, host: Host) -> list[Change]:
        """End incidents of a former process whose devices or processes have not shown up again."""
        changes: list[Change] = []
        if host.clock.observed >= RESTORE_SECONDS:
            for track in self._tracker.on_host(host.name):
                if track.restored and track.latch is None:
                    track.restored = False
                    changes += self._tracker.step(track, False, AT_ONCE, bare(host.clock.now, host.clock.observed))
        return changes

    # -- asking -------------------------------------------------------------------------------------------------------------
    def _ask(self, configured: Configured, window: Window) -> Answer:
        """The rule's answer for the window, of each row by the variant that is meant for it."""
        assert isinstance(configured.default, Rule)
        if not configured.overrides:
            return Answer(_checked(configured.default, window), [configured.default], [0] * len(window))
        variants: list[Rule] = []
        of_row = []
        for n, subject in enumerate(window.subjects):
            rule = self._variant(configured, window.entity, int(window.rows[n]), subject)
            assert isinstance(rule, Rule)
            known = next((k for k, variant in enumerate(variants) if variant is rule), len(variants))
            if known == len(variants):
                variants.append(rule)
            of_row.append(known)
        places = np.array(of_row)
        parts = []
        for k, rule in enumerate(variants):
            rows = np.flatnonzero(places == k)
            try:
                parts.append((rows, rule, _checked(rule, window.of(rows))))
            except Exception as error:
                self.failed(configured.name, error)
                parts.append((rows, rule, _unknown(len(rows))))
        return Answer(_merged(parts, len(window)), variants, of_row)

    def _variant(self, configured: Configured, entity: Entity, row: int, subject: Subject) -> AnyRule:
        known = self._variants.setdefault((entity, row), {})
        mark = (subject.device, subject.processes)
        if configured.name not in known or known[configured.name][0] != mark:
            known[configured.name] = (mark, configured.for_(subject.host, subject.device, subject.processes or ()))
        return known[configured.name][1]

    # -- answering ----------------------------------------------------------------------------------------------------------
    def _apply(self, name: str, answer: Answer, window: Window, hosts: dict[str, Host]) -> list[Change]:
        """Carry each row's answer to its track: rows of a group to one, tracks without a firing row are told that it is over."""
        verdict = answer.verdict
        known = verdict.answerable()
        concerned: dict[tuple[str, str], list[int]] = {}
        for n in np.flatnonzero(verdict.firing & known).tolist():
            concerned.setdefault((window.subjects[n].host, _key(verdict, window, n)), []).append(n)
        changes: list[Change] = []
        for (host, key), places in concerned.items():
            track = self._tracker.track(name, host, key)
            track.members |= {int(window.rows[n]) for n in places}
            track.entity, track.restored = window.entity, False
            changes += self._step(track, True, answer, window, places, hosts[host])
        for host in self._tracker.busy(hosts) if self._tracker.tracked(name) else ():
            for track in self._tracker.tracks(name, host):
                if track.latch is not None or (host, track.subject) in concerned or track.entity not in (None, window.entity):
                    continue
                if track.restored:
                    _adopt(track, window)
                members = [window.places[row] for row in track.members if row in window.places]
                if members:
                    over = False if bool(known[members].all()) else None
                    changes += self._step(track, over, answer, window, members, hosts[host])
        return changes

    def _step(self, track: Track, answer: bool | None, given: Answer, window: Window, places: list[int], host: Host) -> list[Change]:
        rule = given.rule(places[0])
        policy = Policy(hold=rule.hold, keep_firing=rule.keep_firing, cool_down=self._cool_down)
        try:
            return self._tracker.step(track, answer, policy, self._report(rule, given.verdict, window, places, host))
        except Exception as error:
            # The words for one incident failed; it stays where it was, and the others go on.
            self.failed(track.rule, error)
            if track.condition.state == "clear":
                self._tracker.forget(track)
            return []

    def _report(self, rule: Rule, verdict: Verdict, window: Window, places: list[int], host: Host) -> Report:
        rows = np.array(places, np.intp)
        part, some = window.of(rows), verdict.of(rows)
        severities = np.full(len(rows), SEVERITIES.index(rule.severity)) if some.severity is None else some.severity
        worst = int(np.argmax(severities))
        threshold = np.broadcast_to(np.asarray(some.threshold, np.float64), (len(rows),))
        return Report(
            at=host.clock.now,
            clock=host.clock.observed,
            severity=SEVERITIES[int(severities[worst])],
            subjects=list(part.subjects),
            tell=lambda: rule.tell(part, some),
            value=float(some.value[worst]),
            threshold=float(threshold[worst]),
            gather=lambda story: evidence(self._inventory, host, window.entity, part.rows.tolist(), story.evidence or rule.needs),
            escalate_after=rule.escalate_after,
            wastes=rule.wastes,
        )


def _checked(rule: Rule, window: Window) -> Verdict:
    """The rule's verdict; all clear where it is switched off, so that what it had opened ends."""
    if rule.enabled:
        return rule.check(window)
    return Verdict(firing=np.zeros(len(window), bool), value=np.zeros(len(window)))


def _unknown(rows: int) -> Verdict:
    return Verdict(firing=np.zeros(rows, bool), value=np.full(rows, np.nan))


def _merged(parts: Sequence[tuple[NDArray[np.intp], Rule, Verdict]], rows: int) -> Verdict:
    """The verdicts on parts of a window as one on the whole."""
    if len(parts) == 1:
        return parts[0][2]
    firing, known = np.zeros(rows, bool), np.zeros(rows, bool)
    value, threshold = np.full(rows, np.nan), np.full(rows, np.nan)
    severity = np.zeros(rows, np.int8)
    group: list[str | None] = [None] * rows
    for places, rule, verdict in parts:
        firing[places], known[places], value[places], threshold[places] = (
            verdict.firing,
            verdict.answerable(),
            verdict.value,
            verdict.threshold,
        )
        severity[places] = SEVERITIES.index(rule.severity) if verdict.severity is None else verdict.severity
        for n, place in enumerate(places.tolist()):
            group[place] = verdict.group[n] if verdict.group is not None else None
    return Verdict(firing, value, threshold, known, severity, group)


def _can_tell(configured: Configured, window: Window) -> bool:
    """Whether the rule is on and anything is readable that it could judge by: a source with three columns wakes few rules."""
    rule = configured.default
    assert isinstance(rule, Rule)
    if not rule.enabled and not configured.overrides:
        return False
    needed = [name for name in rule.needs if METRICS[name].entity == window.entity]
    used = [name for name in rule.uses if METRICS[name].entity == window.entity]
    readable = window.readable()
    return all(name in readable for name in needed) if needed else not used or any(name in readable for name in used)


def _adopt(track: Track, window: Window) -> None:
    """Find the rows of an incident that a former process left, once its devices and processes are seen again."""
    assert track.incident is not None
    uuids = {device.uuid for device in track.incident.devices}
    group = not any(track.subject.startswith(uuid) for uuid in uuids)
    for n, subject in enumerate(window.subjects):
        own = subject_key(subject)
        if subject.host == track.host and (own == track.subject or (group and own in uuids)):
            track.members.add(int(window.rows[n]))
    if track.members:
        track.restored, track.entity = False, window.entity


def _key(verdict: Verdict, window: Window, place: int) -> str:
    """What a row's answer is about: its group, or the row itself."""
    group = verdict.group[place] if verdict.group is not None else None
    return group or subject_key(window.subjects[place])
