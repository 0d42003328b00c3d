"""Engine: frames in, changes out. No clock, no thread, no I/O; time rides on the frames.

A host's readings are written as its frames come. Every few seconds of its own time, and at once when it has news, the rules look at
it; hosts that are due together are judged together, in one vectorised pass. What one host's rules answer never depends on another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from detector.correlate import link, outlived
from detector.evidence import kept
from detector.frame import Device, Frame, Process
from detector.incident import Change, Incident, Series
from detector.inventory import Host, Inventory
from detector.judging import AT_ONCE, Judge
from detector.latching import Latches
from detector.metrics import METRICS, Entity
from detector.model import Model
from detector.rule import JudgesEvents, Rule
from detector.ruleset import RuleSet
from detector.tracker import Tracker
from detector.window import Window

SHOWN: Final = (
    "utilization_percent",
    "memory_utilization_percent",
    "memory_used_bytes",
    "temperature_celsius",
    "power_watts",
    "sm_clock_mhz",
)
"""Metrics whose history is kept for people, whatever the rules ask for."""

REMEMBER_SECONDS: Final = 3600.0
"""Resolved incidents are remembered at least so long, to know those that flap."""


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A device as it was last seen."""

    host: str
    device: Device
    last_seen_at: float
    readings: dict[str, float]
    """Metric -> newest reading; only what was ever read and is not stale."""
    unavailable: dict[str, str]
    processes: tuple[Process, ...] | None
    visible: bool
    simulated: bool


@dataclass(frozen=True, slots=True)
class Coverage:
    """Whether a rule can judge a device."""

    rule: str
    host: str
    device: str
    answerable: bool
    reason: str
    """What is missing; empty where it can."""


class Engine:
    """Judges frames by rules, and by what *model* makes of them.

    *tick*: seconds of a host's own time between two looks, for rules that do not look less often anyway. *cool_down*: a resolved incident
    that returns within so many seconds reopens.
    """

    def __init__(self, rules: RuleSet, *, model: Model | None = None, tick: float = 5.0, cool_down: float = 600.0) -> None:
        self._configured, self._model, self._tick, self._cool_down = rules, model, tick, cool_down
        self._rules = [c for c in rules.values() if isinstance(c.default, Rule)]
        self._looks = [c.default for c in self._rules if isinstance(c.default, Rule)]
        history = {metric for rule in self._looks for metric in (*rule.needs, *rule.uses)}
        self._inventory = Inventory(history | set(SHOWN) | set(model.needs if model else ()))
        self._tracker = Tracker()
        self._judge = Judge(self._inventory, self._tracker, cool_down)
        events = [c for c in rules.values() if isinstance(c.default, JudgesEvents)]
        self._latches = Latches(events, self._inventory, self._tracker, cool_down, self._judge)
        self._paces = sorted({self._pace(rule) for rule in self._looks} | ({self._pace(model)} if model else set()))
        self._explained_by = {c.name: type(c.default).explained_by for c in rules.values()}

    # -- in -----------------------------------------------------------------------------------------------------------------
    def observe(self, *frames: Frame) -> list[Change]:
        """Take frames and say what changed. How frames are split between calls makes no difference."""
        return [change for some in _rounds(frames) for change in self._round(some)]

    def _round(self, frames: Sequence[Frame]) -> list[Change]:
        """Take one frame of each of some hosts."""
        fresh = [frame for frame in frames if not self._inventory.comes_again(frame)]
        taken = self._inventory.take_all(fresh)
        self._rename()
        changes: list[Change] = []
        due: dict[str, tuple[Host, tuple[float, ...]]] = {}
        for frame, (host, news) in zip(fresh, taken, strict=True):
            for event in frame.events:
                changes += self._latches.take(host, event)
            if paces := self._due(host, news):
                due[host.name] = (host, paces)
        changes += self._look(due)
        for name in self._tracker.busy([host.name for host, _ in taken]):
            changes += self._tidy(self._inventory.hosts[name])
        return link(changes, self._tracker, self._explained_by)

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Take up the open incidents of a former process. Those of rules that are no more are left alone."""
        for incident in incidents:
            configured = self._configured.get(incident.rule)
            if configured is not None:
                rule = configured.default
                self._tracker.restore(incident, rule.keep_for(incident.severity) if isinstance(rule, JudgesEvents) else 0.0)

    # -- out ----------------------------------------------------------------------------------------------------------------
    def incidents(self) -> list[Incident]:
        """Every incident that is open, pending ones included, and those resolved within the last hour."""
        return [track.incident for track in self._tracker.all() if track.incident is not None]

    def devices(self) -> list[DeviceStatus]:
        """All devices, as they were last seen."""
        ring = self._inventory.devices
        others = [n for n, name in enumerate(ring.names) if name != "device_visible"]
        out = []
        for host in self._inventory.hosts.values():
            if not host.devices:
                continue
            window = self._window("device", [host])
            table = np.array([window.last(name) for name in ring.names])
            listed = set(host.listed_rows.tolist())
            for uuid, row in host.devices.items():
                subject = self._inventory.subject("device", row)
                column = table[:, window.places[row]]
                readings = {ring.names[n]: float(column[n]) for n in np.flatnonzero(~np.isnan(column))}
                visible = row in listed
                seen = ring.newest_at[:, row].max() if visible else max(ring.newest_at[others, row].max(), ring.first_at[row])
                out.append(DeviceStatus(host.name, subject.device or Device(uuid), float(seen), readings, host.unavailable.get(uuid, {}),
                                        subject.processes, visible, host.simulated))  # fmt: skip
        return out

    def readings(self, uuid: str, metric: str, since: float, until: float) -> Series | None:
        """What is kept of a metric of a device; None where the device or the metric's history is not known."""
        for host in self._inventory.hosts.values():
            row = host.devices.get(self._inventory.resolve(host, uuid))
            if row is not None and metric in self._inventory.devices.history:
                return kept(self._inventory, host, "device", row, metric, since, until)
        return None

    def coverage(self) -> list[Coverage]:
        """For each rule and device whether the rule can judge it now, and if not, what is missing."""
        out = []
        for host in self._inventory.hosts.values():
            window = self._window("device", [host])
            for configured in self._rules:
                rule = configured.default
                if not isinstance(rule, Rule) or "device" not in rule.entity or not len(window):
                    continue
                missing = {metric: np.isnan(window.last(metric)) for metric in rule.needs if METRICS[metric].entity == "device"}
                for n, subject in enumerate(window.subjects):
                    uuid = subject.device.uuid if subject.device else ""
                    reasons = host.unavailable.get(uuid, {})
                    absent = [f"{metric} ({reasons.get(metric, 'no reading')})" for metric, gone in missing.items() if gone[n]]
                    out.append(Coverage(configured.name, host.name, uuid, not absent, ", ".join(absent)))
        return out

    @property
    def rule_errors(self) -> dict[str, str]:
        """Rule name -> why it was last unable to judge at all. One broken rule never silences the others."""
        return dict(self._judge.errors)

    def _pace(self, looks: Rule | Model) -> float:
        return max(looks.every, self._tick)

    # -- looking ------------------------------------------------------------------------------------------------------------
    def _due(self, host: Host, news: bool) -> tuple[float, ...]:
        """The paces of rules that should look at the host now."""
        now = host.clock.observed
        due = tuple(p for p in self._paces if p not in host.looked or now - host.looked[p] >= p - 1e-6 or (news and p == self._paces[0]))
        for pace in due:
            host.looked[pace] = now
        return due

    def _look(self, due: dict[str, tuple[Host, tuple[float, ...]]]) -> list[Change]:
        """Let the rules judge the hosts: together where they stand at the same bucket and the same rules are due."""
        batches: dict[tuple[int, tuple[float, ...]], list[Host]] = {}
        self._inventory.devices.open((host.name, host.clock.now) for host, _ in due.values())
        for host, paces in due.values():
            batches.setdefault((self._inventory.devices.heads(host.name)[0], paces), []).append(host)
        if self._model is not None:
            for entity, _, subject in self._inventory.gone:
                if entity == "device" and subject.device is not None:
                    self._model.forget(subject.host, subject.device.uuid)
        changes = self._judge.bury(self._rules)
        self._judge.begin()
        for (_, paces), hosts in batches.items():
            devices = self._window("device", hosts)
            if self._model is not None and self._pace(self._model) in paces and len(devices):
                self._ask_model(self._model, devices)
            windows: dict[Entity, Window] = {"device": devices, "job": self._window("job", hosts), "host": self._window("host", hosts)}
            windows["process"] = self._window("process", hosts, devices)
            for configured, rule in zip(self._rules, self._looks, strict=True):
                if self._pace(rule) in paces:
                    for entity in rule.entity:
                        if len(windows[entity]):
                            changes += self._judge.judge(configured, windows[entity], hosts)
        self._judge.end()
        return changes

    def _tidy(self, host: Host) -> list[Change]:
        """End what is over by time alone, and forget what is long over."""
        changes = self._latches.expire(host, AT_ONCE) + self._judge.give_up(host) + outlived(host.name, host.clock.now, self._tracker)
        self._tracker.drop_expired(host.name, host.clock.observed, host.clock.now, max(REMEMBER_SECONDS, self._cool_down))
        return changes

    def _rename(self) -> None:
        renamed, self._inventory.renamed = self._inventory.renamed, []
        for host, before, now in renamed:
            self._tracker.rename(host, before, now)

    def _ask_model(self, model: Model, devices: Window) -> None:
        try:
            devices.scores = model.score(devices)
            self._judge.errors.pop("model", None)
        except Exception as error:
            # The rules must not depend on the model's health.
            self._judge.failed("model", error)

    def _window(self, entity: Entity, hosts: Sequence[Host], devices: Window | None = None) -> Window:
        ring = self._inventory.ring(entity)
        rows = self._inventory.rows(entity, hosts)
        counts = [len(ring.rows(host.name)) for host in hosts]
        now = np.repeat([host.clock.now for host in hosts], counts)
        interval = np.repeat([host.clock.interval for host in hosts], counts)
        ring.open((host.name, host.clock.now) for host in hosts)
        heads = ring.heads(hosts[0].name)
        subjects = [self._inventory.subject(entity, row) for row in rows.tolist()]
        return Window(ring, rows, subjects, heads=heads, now=now, interval=interval, devices=devices)


def _rounds(frames: Sequence[Frame]) -> Iterator[list[Frame]]:
    """The frames in order, cut so that no host has two in a round."""
    some: list[Frame] = []
    hosts: set[str] = set()
    for frame in frames:
        if frame.host in hosts:
            yield some
            some, hosts = [], set()
        some.append(frame)
        hosts.add(frame.host)
    if some:
        yield some
