"""One incident per root cause: which open incident explains which.

A rule says by which rules' incidents its own are explained (`explained_by`); this module finds the pairs. An effect is kept and shown
under its cause, and sends nothing of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from detector.incident import SEVERITIES, Change, Incident
from detector.tracker import Track, Tracker

EXPLAINS_SECONDS: Final = 600.0
"""An Xid stays open for hours after it came; what begins long after it has a cause of its own."""

OUTLIVES_SECONDS: Final = 150.0
"""Rules let go at their own pace: an effect that ends a moment after its cause was an effect all the same."""

ExplainedBy = Mapping[str, tuple[str, ...]]
"""Rule -> rules whose incidents explain its own."""


def cause_of(incident: Incident, others: Iterable[Incident], explained_by: ExplainedBy) -> Incident | None:
    """The open incident that explains *incident*: of a rule that its own rule names, on the same host, about all of its devices.

    An incident without a device is about the whole host. A note (info) explains nothing that is worse than itself.
    """
    rules = explained_by.get(incident.rule, ())
    found = [other for other in others if other.id != incident.id and other.rule in rules and _explains(other, incident)]
    return max(found, key=lambda other: (SEVERITIES.index(other.severity), -other.started_at), default=None)


def _explains(cause: Incident, effect: Incident) -> bool:
    if cause.state != "firing" or cause.host != effect.host or cause.cause is not None:
        return False
    if effect.started_at - cause.last_seen_at > EXPLAINS_SECONDS:
        return False
    if SEVERITIES.index(cause.severity) < min(SEVERITIES.index(effect.severity), SEVERITIES.index("warning")):
        return False
    return not cause.devices or (bool(effect.devices) and {d.uuid for d in effect.devices} <= {d.uuid for d in cause.devices})


def link(changes: Sequence[Change], tracker: Tracker, explained_by: ExplainedBy) -> list[Change]:
    """Link what began firing with what explains it, whichever came first; the changes, with their incidents as they are now."""
    moments = {change.incident.host: change.at for change in changes if change.transition in ("fired", "reopened", "updated")}
    linked: dict[str, Change] = {}
    for host, at in moments.items():
        firing = {t.incident.id: t for t in tracker.on_host(host) if t.incident is not None and t.incident.state == "firing"}
        for track in firing.values():
            incident = track.incident
            if incident is None or incident.cause is not None or not explained_by.get(incident.rule):
                continue
            cause = _root(incident, {key: t.incident for key, t in firing.items() if t.incident is not None}, explained_by)
            if cause is not None:
                linked |= {known.id: Change("updated", at, known) for known in _joined(firing, incident, cause)}
    if not linked:
        return list(changes)
    begun = ("fired", "reopened")
    told = {change.incident.id for change in changes if change.transition in begun}
    fresh = [
        replace(c, incident=linked[c.incident.id].incident) if c.incident.id in linked and c.transition in begun else c for c in changes
    ]
    return fresh + [change for key, change in linked.items() if key not in told]


def _root(incident: Incident, firing: Mapping[str, Incident], explained_by: ExplainedBy) -> Incident | None:
    """What explains the incident, or explains what explains it."""
    others = [replace(other, cause=None) for other in firing.values() if other.cause != incident.id]
    found = cause_of(incident, others, explained_by)
    cause = firing[found.id] if found is not None else None
    while cause is not None and cause.cause is not None and cause.cause in firing:
        cause = firing[cause.cause]
    return cause if cause is not None and cause.id != incident.id else None


def _joined(firing: Mapping[str, Track], effect: Incident, cause: Incident) -> list[Incident]:
    """Put *effect*, and what it had explained itself, under *cause*; all of them as they are now."""
    below = [firing[key] for key in (effect.id, *effect.effects) if key in firing]
    for track in below:
        if track.incident is not None:
            track.incident = replace(track.incident, cause=cause.id, effects=())
    top = firing[cause.id]
    effects = dict.fromkeys((*cause.effects, *(t.incident.id for t in below if t.incident is not None)))
    top.incident = replace(cause, effects=tuple(effects))
    return [track.incident for track in (*below, top) if track.incident is not None]


def outlived(host: str, at: float, tracker: Tracker) -> list[Change]:
    """What goes on for a while after its cause was over stands for itself."""
    changes = []
    tracks = tracker.on_host(host)
    over = {t.incident.id: t.incident.resolved_at for t in tracks if t.incident is not None}
    for track in tracks:
        incident = track.incident
        if incident is None or incident.cause is None or incident.state != "firing":
            continue
        ended = over.get(incident.cause, 0.0)
        if ended is not None and at - ended >= OUTLIVES_SECONDS:
            track.incident = replace(incident, cause=None)
            changes.append(Change("updated", at, track.incident))
    return changes
