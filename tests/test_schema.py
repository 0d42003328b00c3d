"""The JSON that REST, command line, webhook and store share."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detector.frame import Event
from detector.incident import Acknowledgement, Change, DeviceRef, Incident, Series, Severity, State, Suspect, Workload
from detector.rule import EventRule, Finding, Rule, name_of
from detector.schema import ChangeOut, DeviceRefOut, IncidentOut, RuleOut, WorkloadOut, incident_json, instant, rfc3339

START = 1_700_000_000.0

IN_DESIGN = [
    *("id", "fingerprint", "rule", "severity", "state", "host", "device", "devices", "suspect", "workload", "started_at", "fired_at"),
    *("reopened_at", "resolved_at", "last_seen_at", "summary", "description", "action", "runbook_url", "value", "threshold", "unit"),
    *("evidence", "cause", "effects", "acknowledged", "silenced", "flapping", "occurrences", "wasted_gpu_seconds", "labels"),
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
moments = st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda milliseconds: round(milliseconds / 1000, 3))
numbers = st.floats(allow_nan=False, allow_infinity=False)
devices = st.builds(DeviceRef, uuid=texts, index=st.none() | st.integers(0, 15), name=st.none() | texts, parent=st.none() | texts)
workloads = st.builds(Workload, pid=st.none() | st.integers(1, 2**22), command=st.none() | texts, job=st.none() | texts)


@st.composite
def series(draw: st.DrawFn) -> Series:
    readings = draw(st.lists(st.tuples(moments, numbers | st.just(math.nan)), max_size=5))
    return Series("power_watts", "watts", tuple(at for at, _ in readings), tuple(value for _, value in readings), draw(st.none() | texts))


incidents = st.builds(
    Incident,
    id=texts,
    fingerprint=texts,
    rule=texts,
    severity=st.sampled_from(get_args(Severity)),
    state=st.sampled_from(get_args(State)),
    host=texts,
    started_at=moments,
    last_seen_at=moments,
    fired_at=st.none() | moments,
    reopened_at=st.none() | moments,
    resolved_at=st.none() | moments,
    device=st.none() | devices,
    devices=st.lists(devices, max_size=3).map(tuple),
    suspect=st.none() | st.builds(Suspect, uuid=texts, reason=texts),
    workload=st.none() | workloads,
    summary=texts,
    value=st.none() | numbers,
    threshold=st.none() | numbers,
    evidence=st.lists(series(), max_size=2).map(tuple),
    cause=st.none() | texts,
    effects=st.lists(texts, max_size=2).map(tuple),
    acknowledged=st.none() | st.builds(Acknowledgement, by=texts, at=moments, note=texts),
    silenced=st.booleans(),
    flapping=st.booleans(),
    occurrences=st.integers(1, 1000),
    wasted_gpu_seconds=st.floats(0, 1e9),
    labels=st.dictionaries(texts, texts, max_size=3),
    subject=texts,
)


def incident(**fields: Any) -> Incident:
    known: dict[str, Any] = {"id": "i", "fingerprint": "f", "rule": "overheating", "severity": "warning", "state": "firing"}
    return Incident(**{**known, "host": "node-a", "started_at": START, "last_seen_at": START, **fields})


def on_the_wire(**fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(incident_json(incident(**fields)))
    return found


@dataclasses.dataclass(frozen=True)
class Hot(Rule):
    """It is too hot.

    Hotter than it should be.
    """

    limit_celsius: float = 90.0
    needs: ClassVar = ("temperature_celsius",)
    uses: ClassVar = ("fan_speed_percent",)


@dataclasses.dataclass(frozen=True)
class Bang(EventRule):
    """Something broke."""

    def judge(self, event: Event) -> Finding | None:
        return None


@given(incidents)
def test_an_incident_comes_back_as_it_was(told: Incident) -> None:
    """Through JSON and back nothing of an incident is lost, its times being exact to a millisecond."""
    again = IncidentOut.model_validate_json(incident_json(told)).to_incident()

    # As text, in which one NaN equals another.
    assert repr(told) == repr(again)


@given(incidents)
def test_an_incident_is_one_line_of_ascii(told: Incident) -> None:
    """Whatever a process calls itself, each incident stays on its line, for every reader of lines and in every locale."""
    line = incident_json(told)

    assert [line] == line.splitlines()
    assert line.isascii()


def test_the_fields_are_those_of_the_design() -> None:
    """The fields that receivers rely on, in the order of the design; what came later stands behind them."""
    assert IN_DESIGN == list(on_the_wire())[: len(IN_DESIGN)]


@pytest.mark.parametrize(("model", "kind"), [(IncidentOut, Incident), (DeviceRefOut, DeviceRef), (WorkloadOut, Workload)])
def test_no_field_is_forgotten(model: type[IncidentOut], kind: type[Incident]) -> None:
    """A field that an incident gains is told, or this test fails."""
    assert {field.name for field in dataclasses.fields(kind)} == set(model.model_fields)


def test_what_is_not_known_is_null() -> None:
    """An incident of which nothing more is known has nulls and empty lists, and every key."""
    told = on_the_wire()

    nulls = {"device", "suspect", "workload", "fired_at", "reopened_at", "resolved_at", "value", "threshold", "cause", "acknowledged"}
    assert nulls == {name for name, value in told.items() if value is None}
    assert ([], [], [], {}) == (told["devices"], told["evidence"], told["effects"], told["labels"])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_cannot_say_is_null(value: float) -> None:
    """NaN and infinity would make the line unreadable for strict parsers."""
    told = on_the_wire(value=value, threshold=value, evidence=(Series("job_loss", "loss", (START, START + 1), (value, 2.5)),))

    assert (None, None, [None, 2.5]) == (told["value"], told["threshold"], told["evidence"][0]["values"])


def test_times_are_rfc_3339_in_utc() -> None:
    """Each time is UTC with a Z and milliseconds, those of evidence and acknowledgement too."""
    evidence = (Series("power_watts", "watts", (START + 0.0004, START + 0.9996), (1.0, 2.0)),)
    told = on_the_wire(started_at=START + 0.5, acknowledged=Acknowledgement("ada", START), evidence=evidence)

    assert "2023-11-14T22:13:20.500Z" == told["started_at"]
    assert "2023-11-14T22:13:20.000Z" == told["acknowledged"]["at"]
    assert ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:21.000Z"] == told["evidence"][0]["times"]


@given(moments)
def test_a_time_is_what_the_calendar_says(at: float) -> None:
    """The text of a time is that of the standard library for the same millisecond."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=round(at * 1000))

    assert moment == datetime.fromisoformat(rfc3339(at))


@pytest.mark.parametrize(
    "text",
    ["2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000Z", "2023-11-14t22:13:20z", "2023-11-14 23:13:20+01:00", "1700000000", "1.7e9", START],
)
def test_a_time_may_be_written_in_several_ways(text: str | float) -> None:
    """RFC 3339 in any zone, and Unix seconds."""
    assert START == instant(text)


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2023-11-14", "2023-11-14T22:13:20", "2023-02-30T00:00:00Z", "1700000000000", "nan", "inf"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    """A time without a zone, a day that does not exist and milliseconds would all be guesses."""
    with pytest.raises(ValueError, match=r"RFC 3339|seconds|day"):
        instant(text)


def test_text_that_is_no_unicode_is_told_all_the_same() -> None:
    """A command line may hold any bytes; the broken ones become question marks and the incident is told."""
    command = b"train \xff".decode(errors="surrogateescape")

    assert "train ?" == on_the_wire(workload=Workload(command=command))["workload"]["command"]


def test_a_document_of_another_version_is_read() -> None:
    """Fields that are not known yet are passed over, fields that were not known then have their defaults."""
    told = on_the_wire()
    del told["labels"]

    assert incident() == IncidentOut.model_validate({**told, "colour": "red"}).to_incident()


def test_a_change_is_told_with_its_incident() -> None:
    """A change on the wire has its number, what happened, when, and the incident after it."""
    told = json.loads(ChangeOut.of(7, Change("fired", START, incident())).model_dump_json())

    assert {"id": 7, "transition": "fired", "at": "2023-11-14T22:13:20.000Z", "incident": on_the_wire()} == told


def test_a_rule_tells_its_parameters() -> None:
    """A rule is told with what it needs and every parameter as it is configured."""
    told = json.loads(RuleOut.of(Hot(limit_celsius=80.0, severity="critical")).model_dump_json())

    assert (name_of(Hot), "readings", True, "critical") == (told["name"], told["kind"], told["enabled"], told["severity"])
    assert "It is too hot.\n\nHotter than it should be." == told["description"]
    assert (["device"], ["temperature_celsius"], ["fan_speed_percent"]) == (told["entity"], told["needs"], told["uses"])
    assert {"enabled", "severity", *told["parameters"]} == {field.name for field in dataclasses.fields(Hot)}
    assert 80.0 == told["parameters"]["limit_celsius"]


def test_an_event_rule_has_no_severity_of_its_own() -> None:
    """The severity of an event rule depends on the event, and it needs no metrics."""
    told = RuleOut.of(Bang())

    assert ("events", None, (), (), {"keep_firing": 600.0}) == (told.kind, told.severity, told.needs, told.entity, told.parameters)


def test_telling_incidents_loads_neither_web_server_nor_database() -> None:
    """`gpuwarden replay --json` starts without FastAPI and SQLAlchemy."""
    code = "import sys, detector.schema; print(*sorted({'fastapi', 'sqlalchemy', 'alembic', 'uvicorn'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE, text=True)

    assert "" == loaded.stdout.strip()
