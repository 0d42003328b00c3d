"""What gpuwarden says in JSON: one schema for REST, command line, webhook, event stream and the documents in the store.

Inside a model an instant is a float, Unix seconds, exact to a millisecond; on the wire it is RFC 3339 in UTC. A number that JSON
cannot say (NaN, infinity) is null. Only Pydantic is imported here, so the command line can print incidents without the service.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from detector.incident import Acknowledgement, Change, DeviceRef, Incident, Series, Severity, State, Suspect, Transition, Workload
from detector.metrics import Entity
from detector.rule import AnyRule, Rule, name_of, parameters

_EPOCH: Final = datetime(1970, 1, 1)
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_FIRST: Final = datetime.min.replace(tzinfo=UTC).timestamp()
_LAST: Final = datetime.max.replace(tzinfo=UTC, microsecond=999_000).timestamp()


# The series of an incident share their times, and pages of incidents share many.
@lru_cache(maxsize=4096)
def rfc3339(at: float) -> str:
    """*at* (Unix seconds) as `2023-11-14T22:13:20.000Z`."""
    return (_EPOCH + timedelta(milliseconds=round(at * 1000))).isoformat(timespec="milliseconds") + "Z"


@lru_cache(maxsize=4096)
def instant(value: str | float) -> float:
    """Unix seconds, exact to a millisecond, from RFC 3339 text, or from Unix seconds as a number or as text. Raises ValueError."""
    at = _seconds(value)
    if not _FIRST <= at <= _LAST:
        raise ValueError(f"{value!r} is not within the years 1 to 9999; Unix times are in seconds, not milliseconds")
    return round(at, 3)


def _seconds(value: str | float) -> float:
    if not isinstance(value, str):
        return value
    if _RFC3339.fullmatch(value):
        return datetime.fromisoformat(value.upper()).timestamp()
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither RFC 3339 with a zone (2023-11-14T22:13:20Z) nor Unix seconds (1700000000)") from None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _encodable(value: object) -> object:
    """Text that UTF-8 can carry: a command line is bytes, and Python hands on the broken ones as lone surrogates."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


Instant = Annotated[
    float,
    BeforeValidator(instant),
    PlainSerializer(rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2023-11-14T22:13:20.000Z"]}),
]
Instants = Annotated[
    tuple[float, ...],
    # The whole series at once: a call of Python for each of some hundred times would be most of the work on an incident.
    BeforeValidator(lambda times: tuple(map(instant, times))),
    PlainSerializer(lambda times: list(map(rfc3339, times)), return_type=list[str]),
    WithJsonSchema({"type": "array", "items": {"type": "string", "format": "date-time"}}),
]
Numbers = Annotated[tuple[float | None, ...], BeforeValidator(lambda values: tuple(map(_finite, values)))]
Number = Annotated[float | None, BeforeValidator(_finite)]
Text = Annotated[str, BeforeValidator(_encodable)]


class Document(BaseModel):
    """Read from the dataclass of the same fields, never changed afterwards."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class DeviceRefOut(Document):
    """A GPU or MIG instance as the incident saw it."""

    uuid: Text = Field(examples=["GPU-5f0c9b7e-2d7a-4c40-9a53-0d1c7a3c3a10"])
    index: int | None = None
    name: Text | None = None
    kind: Literal["gpu", "mig"] = "gpu"
    parent: Text | None = Field(None, description="uuid of the GPU that a MIG instance is a part of")
    pci_bus_id: Text | None = None


class SuspectOut(Document):
    """The one device of several that seems to cause it."""

    uuid: Text
    reason: Text = Field(examples=["its power fell a minute before that of the others"])


class WorkloadOut(Document):
    """Whose work is concerned; null is not known."""

    pid: int | None = Field(None, examples=[4242])
    command: Text | None = Field(None, examples=["python train.py"])
    user: Text | None = Field(None, examples=["ada"])
    container: Text | None = None
    namespace: Text | None = None
    pod: Text | None = None
    job: Text | None = Field(None, examples=["llm-7b"])


class SeriesOut(Document):
    """Readings of one metric, oldest first; a null value is a missing reading."""

    metric: str = Field(examples=["temperature_celsius"])
    unit: str = Field(examples=["celsius"])
    times: Instants = Field(examples=[["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.000Z"]])
    values: Numbers = Field(examples=[[87.0, None]])
    device: Text | None = Field(None, description="uuid of the device; null: the incident's own, or the host's")


class AcknowledgementOut(Document):
    """Who has seen it, when, and what they said."""

    by: Text = Field(examples=["ada"])
    at: Instant
    note: Text = ""


class IncidentOut(Document):
    """One thing that is wrong, from its first sign to its end."""

    id: str = Field(examples=["0d4bd6a4-4a39-5d0c-8f5a-5c3e6f0d9b11"])
    fingerprint: str = Field(description="the same for every episode of the same thing", examples=["9b8a51f0c37de264"])
    rule: str = Field(examples=["overheating"])
    severity: Severity = Field(examples=["critical"])
    state: State = Field(examples=["firing"])
    host: Text = Field(examples=["node-a"])
    device: DeviceRefOut | None = Field(None, description="the suspect or first of `devices`; null when the host is concerned")
    devices: tuple[DeviceRefOut, ...] = ()
    suspect: SuspectOut | None = None
    workload: WorkloadOut | None = None
    started_at: Instant
    fired_at: Instant | None = Field(None, description="first firing")
    reopened_at: Instant | None = None
    resolved_at: Instant | None = None
    last_seen_at: Instant
    summary: Text = Field("", examples=["GPU 0 is at 88 °C, 2 °C below the temperature at which it slows down."])
    description: Text = ""
    action: Text = Field("", examples=["Check the airflow and the fans of the node."])
    runbook_url: Text = ""
    value: Number = Field(None, examples=[88.0])
    threshold: Number = Field(None, examples=[85.0])
    unit: str = Field("", examples=["celsius"])
    evidence: tuple[SeriesOut, ...] = ()
    cause: str | None = Field(None, description="id of the incident that explains this one")
    effects: tuple[str, ...] = Field((), description="ids of the incidents that this one explains")
    acknowledged: AcknowledgementOut | None = None
    silenced: bool = False
    flapping: bool = False
    occurrences: int = Field(1, description="how often the condition or event was seen")
    wasted_gpu_seconds: float = 0.0
    labels: dict[Text, Text] = Field(default_factory=dict)
    subject: Text = Field("", description="what the fingerprint is about: a device, a process on it, a job or a group")

    @classmethod
    def of(cls, incident: Incident) -> IncidentOut:
        return cls.model_validate(incident)

    def to_incident(self) -> Incident:
        """The incident again, its times exact to a millisecond. A null value of a series is NaN."""
        nested = {
            "device": DeviceRef(**dict(self.device)) if self.device else None,
            "devices": tuple(DeviceRef(**dict(device)) for device in self.devices),
            "suspect": Suspect(**dict(self.suspect)) if self.suspect else None,
            "workload": Workload(**dict(self.workload)) if self.workload else None,
            "evidence": tuple(_series(series) for series in self.evidence),
            "acknowledged": Acknowledgement(**dict(self.acknowledged)) if self.acknowledged else None,
        }
        return Incident(**{**dict(self), **nested})


def _series(series: SeriesOut) -> Series:
    values = tuple(math.nan if value is None else value for value in series.values)
    return Series(**{**dict(series), "values": values})


class ChangeOut(Document):
    """One step in the life of an incident, with the incident as it was after it."""

    id: int = Field(description="rises with every change that is recorded")
    transition: Transition
    at: Instant
    incident: IncidentOut

    @classmethod
    def of(cls, number: int, change: Change) -> ChangeOut:
        return cls(id=number, transition=change.transition, at=change.at, incident=IncidentOut.of(change.incident))


class RuleOut(Document):
    """A rule as it is configured, and what it needs."""

    name: str = Field(examples=["overheating"])
    kind: Literal["readings", "events"] = Field(description="whether it judges readings over time, or one event at a time")
    enabled: bool
    severity: Severity | None = Field(description="null: it depends on the event")
    description: str
    entity: tuple[Entity, ...] = Field(description="what it judges: devices, processes, jobs; empty for events")
    needs: tuple[str, ...] = Field(description="metrics without which it cannot tell")
    uses: tuple[str, ...] = Field(description="metrics that it also looks at where they exist")
    parameters: dict[str, Any] = Field(description="what an operator may set; durations in seconds")

    @classmethod
    def of(cls, rule: AnyRule) -> RuleOut:
        values = {name: getattr(rule, name) for name in parameters(type(rule))}
        readings = isinstance(rule, Rule)
        return cls(
            name=name_of(rule),
            kind="readings" if readings else "events",
            enabled=rule.enabled,
            severity=values.get("severity"),
            description=inspect.cleandoc(type(rule).__doc__ or ""),
            entity=rule.entity if isinstance(rule, Rule) else (),
            needs=rule.needs if isinstance(rule, Rule) else (),
            uses=rule.uses if isinstance(rule, Rule) else (),
            parameters={name: value for name, value in values.items() if name not in ("enabled", "severity")},
        )


def incident_json(incident: Incident) -> str:
    """The incident as one line of JSON, ASCII only: no terminal, locale or line splitter takes it apart."""
    return json.dumps(IncidentOut.of(incident).model_dump(mode="json"), separators=(",", ":"), allow_nan=False)
