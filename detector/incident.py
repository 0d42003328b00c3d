"""An incident, and the whole of its life: pending, firing, resolved.

`advance` is the state machine. It is pure: it takes where a condition stands, one answer about it (true, false, or None for
"cannot tell") and the time, and returns where the condition stands next and what happened. Nothing else opens or closes incidents.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field, replace
from typing import Final, Literal

Severity = Literal["info", "warning", "critical"]
State = Literal["pending", "firing", "resolved"]
Transition = Literal["opened", "fired", "updated", "resolved", "reopened", "dropped"]

SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")
_NAMESPACE: Final = uuid.UUID("b3a7c0f2-6a57-5c0e-9f0f-6770757761aa")


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """The device as the incident saw it."""

    uuid: str
    index: int | None = None
    name: str | None = None
    kind: Literal["gpu", "mig"] = "gpu"
    parent: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Whose work is concerned. None: not known."""

    pid: int | None = None
    command: str | None = None
    user: str | None = None
    container: str | None = None
    namespace: str | None = None
    pod: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Suspect:
    """The one device of several that seems to cause it."""

    uuid: str
    reason: str


@dataclass(frozen=True, slots=True)
class Series:
    """Evidence: the readings of one metric, oldest first. `times` are Unix seconds; NaN in `values` is a missing reading."""

    metric: str
    unit: str
    times: tuple[float, ...]
    values: tuple[float, ...]
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    by: str
    at: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing that is wrong, from its first sign to its end. All times are Unix seconds, UTC; None: not (yet) happened."""

    id: str
    fingerprint: str
    """What makes two episodes the same thing: rule, host, and device, process, job or group."""
    rule: str
    severity: Severity
    state: State
    host: str
    started_at: float
    """When the condition was first seen, before it had held long enough to fire."""
    last_seen_at: float
    fired_at: float | None = None
    reopened_at: float | None = None
    resolved_at: float | None = None
    device: DeviceRef | None = None
    devices: tuple[DeviceRef, ...] = ()
    suspect: Suspect | None = None
    workload: Workload | None = None
    summary: str = ""
    description: str = ""
    action: str = ""
    runbook_url: str = ""
    value: float | None = None
    threshold: float | None = None
    unit: str = ""
    evidence: tuple[Series, ...] = ()
    cause: str | None = None
    effects: tuple[str, ...] = ()
    acknowledged: Acknowledgement | None = None
    silenced: bool = False
    flapping: bool = False
    occurrences: int = 1
    wasted_gpu_seconds: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    subject: str = ""
    """What the fingerprint is about within its rule and host: a device, a process on it, a job or a group."""

    @property
    def open(self) -> bool:
        return self.state != "resolved"


@dataclass(frozen=True, slots=True)
class Change:
    """One step in the life of an incident, with the incident as it was after it."""

    transition: Transition
    at: float
    incident: Incident


def fingerprint(rule: str, host: str, subject: str) -> str:
    """The identity of a thing that can be wrong. *subject* is a device, a process on a device, a job or a group."""
    return hashlib.sha256("\x1f".join((rule, host, subject)).encode()).hexdigest()[:16]


def incident_id(fingerprint: str, started_at: float) -> str:
    """The identity of one episode. The same recording gives the same ids, live or replayed."""
    return str(uuid.uuid5(_NAMESPACE, f"{fingerprint}/{started_at:.6f}"))


@dataclass(frozen=True, slots=True)
class Policy:
    """How patient the state machine is; seconds of observed time."""

    hold: float = 0.0
    """How long the condition must be true before it fires."""
    keep_firing: float = 60.0
    """How long it must be false before it resolves."""
    cool_down: float = 600.0
    """A return within this time after the resolution reopens the same incident."""
    flap_count: int = 3
    """So many returns within `flap_window` are flapping: said once, and the incident stays open until it has been quiet."""
    flap_window: float = 3600.0
    flap_quiet: float = 900.0


@dataclass(frozen=True, slots=True)
class Condition:
    """Where one rule stands on one subject. Moments are on the host's observed clock, which stands still while nobody records."""

    state: Literal["clear", "pending", "firing", "resolved"] = "clear"
    true_since: float | None = None
    clear_since: float | None = None
    resolved_at: float | None = None
    asked_at: float | None = None
    returns: tuple[float, ...] = ()
    """When it came back after having been clear, newest last."""
    flapping: bool = False


CLEAR: Final = Condition()


def advance(condition: Condition, answer: bool | None, clock: float, policy: Policy) -> tuple[Condition, Transition | None]:
    """The next condition and what happened, given one answer at *clock* seconds of observed time.

    None ("cannot tell") neither fires nor resolves, and time does not count while it lasts. A return within the cool-down reopens
    once it has held again. `dropped` is a pending condition that went away before it fired.
    """
    if answer is None:
        return _postponed(condition, clock), None
    condition = replace(condition, asked_at=clock)
    if condition.flapping and clock - condition.returns[-1] > policy.flap_window:
        condition = replace(condition, flapping=False, returns=())
    return _true(condition, clock, policy) if answer else _false(condition, clock, policy)


def _postponed(condition: Condition, clock: float) -> Condition:
    if condition.asked_at is None:
        return condition
    blind = clock - condition.asked_at
    later = {name: moment + blind for name in ("true_since", "clear_since") if (moment := getattr(condition, name)) is not None}
    return replace(condition, asked_at=clock, **later)


def _true(condition: Condition, clock: float, policy: Policy) -> tuple[Condition, Transition | None]:
    if condition.state == "firing":
        if condition.clear_since is None:
            return condition, None
        return _returned(replace(condition, clear_since=None), clock, policy), None
    since = clock if condition.true_since is None else condition.true_since
    if condition.state == "resolved" and condition.resolved_at is not None and since - condition.resolved_at > policy.cool_down:
        condition = replace(CLEAR, asked_at=clock, returns=condition.returns)
    if clock - since < policy.hold:
        if condition.state == "clear":
            return replace(condition, state="pending", true_since=since), "opened"
        return replace(condition, true_since=since), None
    fired = replace(condition, state="firing", true_since=since, clear_since=None, resolved_at=None)
    if condition.state == "resolved":
        return _returned(fired, clock, policy), "reopened"
    return fired, "fired"


def _returned(condition: Condition, clock: float, policy: Policy) -> Condition:
    recent = (*(moment for moment in condition.returns if clock - moment <= policy.flap_window), clock)[-16:]
    return replace(condition, returns=recent, flapping=condition.flapping or len(recent) >= policy.flap_count)


def _false(condition: Condition, clock: float, policy: Policy) -> tuple[Condition, Transition | None]:
    if condition.state == "pending":
        return CLEAR, "dropped"
    if condition.state != "firing":
        return replace(condition, true_since=None), None
    since = clock if condition.clear_since is None else condition.clear_since
    patience = max(policy.keep_firing, policy.flap_quiet) if condition.flapping else policy.keep_firing
    if clock - since < patience:
        return replace(condition, clear_since=since), None
    return replace(condition, state="resolved", true_since=None, clear_since=None, resolved_at=clock), "resolved"
