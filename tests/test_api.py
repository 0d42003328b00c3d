"""The REST interface, through a client: what is asked, what comes back, and how errors are said."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import httpx2 as httpx
import pytest
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from detector.api import Health
from detector.api.app import create_app
from detector.api.routes_devices import stepped
from detector.engine import Coverage, DeviceStatus
from detector.errors import StoreError
from detector.frame import Device, Process
from detector.incident import Change, DeviceRef, Incident, Series
from detector.rule import AnyRule, Rule, name_of
from detector.schema import IncidentOut, rfc3339
from detector.store import Store

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z
NOW = START + 3600

ROUTES = [
    *("GET /api/v1/incidents", "GET /api/v1/incidents/{incident_id}", "GET /api/v1/incidents/{incident_id}/changes"),
    *("POST /api/v1/incidents/{incident_id}/acknowledge", "GET /api/v1/devices", "GET /api/v1/devices/{uuid}"),
    *("GET /api/v1/devices/{uuid}/readings", "GET /api/v1/rules", "GET /api/v1/coverage", "GET /healthz", "GET /readyz"),
]


@dataclass(frozen=True)
class Hot(Rule):
    """It is too hot."""

    limit_celsius: float = math.inf
    needs: ClassVar = ("temperature_celsius",)


ZERO = DeviceStatus(
    host="node-a",
    device=Device("GPU-0", index=0, name="NVIDIA H100", pci_bus_id="00000000:3B:00.0"),
    last_seen_at=START + 100,
    readings={"temperature_celsius": 61.0, "power_watts": math.nan},
    unavailable={"fan_speed_percent": "not_supported"},
    processes=(Process(4242, memory_used_bytes=1e9, command="python train.py", user="ada"),),
    visible=True,
    simulated=False,
)
ONE = replace(ZERO, device=Device("MIG-1", parent="GPU-1", mig_profile="1g.10gb"), processes=None, visible=False)

SERIES = {
    "temperature_celsius": Series("temperature_celsius", "celsius", tuple(START + n for n in range(5)), (60.0, math.nan, 63.0, 70.0, 71.0)),
    "energy_joules_total": Series("energy_joules_total", "joules", (START, START + 1, START + 2), (10.0, 20.0, 40.0)),
}


HEALTHY = Health("nvml", simulated=False, delivering=True, last_frame_at=START, problems=("rule xid failed: ZeroDivisionError",))


@dataclass
class FakeEngine:
    """What the engine knows, as the test wants it."""

    health_now: Health = HEALTHY
    known: list[DeviceStatus] = field(default_factory=lambda: [ZERO, ONE])
    asked: list[tuple[str, str, float, float]] = field(default_factory=list)

    def devices(self) -> list[DeviceStatus]:
        return self.known

    def readings(self, uuid: str, metric: str, since: float, until: float) -> Series | None:
        self.asked.append((uuid, metric, since, until))
        return SERIES.get(metric)

    def coverage(self) -> list[Coverage]:
        return [
            Coverage("overheating", "node-a", "GPU-0", False, "temperature_celsius (no reading)"),
            Coverage("xid", "node-a", "GPU-0", True, ""),
        ]

    def rules(self) -> list[AnyRule]:
        return [Hot(enabled=False)]

    def health(self) -> Health:
        return self.health_now


@dataclass
class Service:
    store: Store
    engine_view: FakeEngine


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with closing(Store(tmp_path / "gpuwarden.db")) as store:
        yield Service(store, FakeEngine())


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(create_app(service, now=lambda: NOW), raise_server_exceptions=False) as client:
        yield client


def incident(n: int = 0, **fields: Any) -> Incident:
    """The n-th incident, started n minutes after START."""
    at = START + 60 * n
    known: dict[str, Any] = {"rule": "overheating", "severity": "warning", "state": "firing", "host": "node-a", "fired_at": at}
    return Incident(**{"id": f"incident-{n}", "fingerprint": "f", "started_at": at, "last_seen_at": at, **known, **fields})


def record(service: Service, *incidents: Incident) -> None:
    service.store.record([Change("fired", told.started_at, told) for told in incidents])


def told(incident: Incident) -> Any:
    return IncidentOut.of(incident).model_dump(mode="json")


def listed(client: Any, query: str) -> list[int]:
    """The numbers of the incidents on one page."""
    answer = client.get(f"/api/v1/incidents{query}")
    assert 200 == answer.status_code, answer.text
    return [int(item["id"].removeprefix("incident-")) for item in answer.json()["items"]]


def problem(answer: Any, status: int) -> Any:
    """The problem details of an answer, which are well formed."""
    assert (status, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    body = answer.json()
    assert {"type", "title", "status", "detail", "instance"} <= body.keys()
    assert (status, answer.request.url.path) == (body["status"], body["instance"])
    return body


# -- incidents --------------------------------------------------------------------------------------------------------------
def test_an_incident_is_shown_as_the_schema_says(client: TestClient, service: Service) -> None:
    """Alone or in a page, an incident is the same JSON as everywhere else."""
    found = incident(devices=(DeviceRef("GPU-0", 0),), value=88.0, evidence=(SERIES["temperature_celsius"],))
    record(service, found)

    assert told(found) == client.get(f"/api/v1/incidents/{found.id}").json()
    assert {"items": [told(found)], "next_cursor": None} == client.get("/api/v1/incidents").json()


def test_pages_follow_each_other(client: TestClient, service: Service) -> None:
    """Each page names the cursor of the next one, the last one none; together they are everything, newest first."""
    record(service, *map(incident, range(7)))
    shown: list[str] = []
    cursor = None
    sizes = []
    while True:
        page = client.get("/api/v1/incidents", params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        shown += [item["id"] for item in page["items"]]
        sizes.append(len(page["items"]))
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert [3, 3, 1] == sizes
    assert [f"incident-{n}" for n in range(6, -1, -1)] == shown


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [2, 1, 0]),
        ("?state=firing", [1]),
        ("?state=firing&state=pending", [2, 1]),
        ("?severity=critical", [1]),
        ("?rule=xid", [2]),
        ("?device=GPU-0", [0]),
        ("?host=node-b", [1]),
        ("?since=1700000060", [2, 1]),
        ("?since=2023-11-14T22:14:20Z", [2, 1]),
        ("?since=2023-11-14T23:14:20.000%2B01:00", [2, 1]),
        ("?since=2023-11-14T23:14:20+01:00", [2, 1]),
        ("?until=1700000060", [0]),
        ("?since=1700000060&until=1700000120", [1]),
        ("?rule=xid&host=node-b", []),
        ("?limit=1", [2]),
    ],
)
def test_incidents_are_filtered(client: TestClient, service: Service, query: str, expected: list[int]) -> None:
    """Each filter, alone and together; times as RFC 3339 (even with a plus that was not encoded) or Unix seconds."""
    record(
        service,
        incident(0, state="resolved", devices=(DeviceRef("GPU-0"),)),
        incident(1, severity="critical", host="node-b"),
        incident(2, state="pending", rule="xid"),
    )

    assert expected == listed(client, query)


@pytest.mark.parametrize(
    ("path", "parameter", "value", "allowed"),
    [
        ("incidents?state=broken", "state", "broken", "'pending', 'firing' or 'resolved'"),
        ("incidents?state=firing&state=broken", "state", "broken", "'pending', 'firing' or 'resolved'"),
        ("incidents?severity=", "severity", "", "'info', 'warning' or 'critical'"),
        ("incidents?rule=", "rule", "", "at least 1 character"),
        ("incidents?since=yesterday", "since", "yesterday", "RFC 3339 with a zone (2023-11-14T22:13:20Z)"),
        ("incidents?until=2023-11-14T22:13:20", "until", "2023-11-14T22:13:20", "Unix seconds (1700000000)"),
        ("incidents?since=1700000000000", "since", "1700000000000", "in seconds, not milliseconds"),
        ("incidents?since=5&until=5", "until", "5", "after since (1970-01-01T00:00:05.000Z)"),
        ("incidents?limit=0", "limit", "0", "greater than or equal to 1"),
        ("incidents?limit=501", "limit", "501", "less than or equal to 500"),
        ("incidents?limit=ten", "limit", "ten", "integer"),
        ("incidents?cursor=abc", "cursor", "abc", "next_cursor of the page before"),
        ("incidents?sevrity=critical", "sevrity", "critical", "no such parameter"),
        ("incidents/incident-0/changes?cursor=-1", "cursor", "-1", "greater than or equal to 0"),
        ("devices/GPU-0/readings", "metric", None, "Field required"),
        ("devices/GPU-0/readings?metric=heat", "metric", "heat", "temperature_celsius"),
        ("devices/GPU-0/readings?metric=job_loss", "metric", "job_loss", "temperature_celsius"),
        ("devices/GPU-0/readings?metric=power_watts&step=0", "step", "0", "greater than or equal to 1"),
        ("devices/GPU-0/readings?metric=power_watts&since=1800000000", "since", "1800000000.0", "before until (2023-11-14T22:15:00.000Z)"),
    ],
)
def test_bad_input_is_said(client: TestClient, path: str, parameter: str, value: str | None, allowed: str) -> None:
    """The problem names the parameter, its value and what is allowed, in words and in fields."""
    found = problem(client.get(f"/api/v1/{path}"), 422)

    assert [(parameter, "query", value)] == [(error["parameter"], error["place"], error.get("value")) for error in found["errors"]]
    assert allowed in found["errors"][0]["message"]
    assert parameter in found["detail"]
    assert allowed in found["detail"]


def test_all_bad_input_is_said_at_once(client: TestClient) -> None:
    """Two mistakes are one answer."""
    found = problem(client.get("/api/v1/incidents?state=broken&limit=501"), 422)

    assert ["state", "limit"] == [error["parameter"] for error in found["errors"]]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/incidents/none"),
        ("GET", "/api/v1/incidents/none/changes"),
        ("POST", "/api/v1/incidents/none/acknowledge"),
        ("GET", "/api/v1/devices/none"),
        ("GET", "/api/v1/devices/none/readings?metric=power_watts"),
    ],
)
def test_an_unknown_id_is_not_found(client: TestClient, method: str, path: str) -> None:
    """The problem names the id."""
    body = {"by": "ada"} if method == "POST" else None

    assert "'none'" in problem(client.request(method, path, json=body), 404)["detail"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/v2/incidents", 404), ("DELETE", "/api/v1/incidents", 405)])
def test_a_route_that_does_not_exist_is_a_problem_too(client: TestClient, method: str, path: str, status: int) -> None:
    """Errors of the framework look like ours and say where to look."""
    assert "/docs" in problem(client.request(method, path), status)["detail"]


def test_changes_are_paged_oldest_first(client: TestClient, service: Service) -> None:
    """The history of an incident has what happened, when, and the incident as it was then."""
    resolved = incident(state="resolved", resolved_at=START + 90)
    service.store.record([Change("fired", START, incident()), Change("resolved", START + 90, resolved)])

    first = client.get("/api/v1/incidents/incident-0/changes?limit=1").json()
    rest = client.get(f"/api/v1/incidents/incident-0/changes?cursor={first['next_cursor']}").json()

    assert [{"id": 1, "transition": "fired", "at": "2023-11-14T22:13:20.000Z", "incident": told(incident())}] == first["items"]
    assert [("resolved", told(resolved))] == [(item["transition"], item["incident"]) for item in rest["items"]]
    assert rest["next_cursor"] is None


def test_a_page_behind_the_last_change_is_empty(client: TestClient, service: Service) -> None:
    """Whoever asks again whether anything happened since is not told that the incident does not exist."""
    record(service, incident())

    assert {"items": [], "next_cursor": None} == client.get("/api/v1/incidents/incident-0/changes?cursor=1").json()


def test_an_acknowledgement_is_kept(client: TestClient, service: Service) -> None:
    """The answer is the marked incident, and so is every later one; the mark has the time of the service."""
    record(service, incident())
    answer = client.post("/api/v1/incidents/incident-0/acknowledge", json={"by": " ada ", "note": "fan ordered"})

    assert 200 == answer.status_code
    assert {"by": "ada", "at": "2023-11-14T23:13:20.000Z", "note": "fan ordered"} == answer.json()["acknowledged"]
    assert answer.json() == client.get("/api/v1/incidents/incident-0").json()


@pytest.mark.parametrize(
    ("body", "parameter", "message"),
    [
        (b"{}", "by", "Field required"),
        (b'{"by": " "}', "by", "at least 1 character"),
        (b'{"by": 7}', "by", "valid string"),
        (b'{"by": "\\ud800"}', "by", "valid string"),
        (b'{"by": "ada", "at": 5}', "at", "no such parameter"),
        (b'{"by": "ada", "note": "%s"}' % (b"x" * 2001), "note", "at most 2000 characters"),
        (b'{"by":', "body", "this is no JSON"),
        (b"[]", "body", "dictionary"),
        (b"", "body", "Field required"),
    ],
)
def test_an_acknowledgement_that_is_wrong_is_refused(
    client: TestClient, service: Service, body: bytes, parameter: str, message: str
) -> None:
    """The problem says what is wrong with the body, and nothing is marked."""
    record(service, incident())
    answer = client.post("/api/v1/incidents/incident-0/acknowledge", content=body, headers={"Content-Type": "application/json"})

    assert [(parameter, "body")] == [(error["parameter"], error["place"]) for error in problem(answer, 422)["errors"]]
    assert message in answer.json()["errors"][0]["message"]
    assert incident() == service.store.incident("incident-0")


def test_a_foreign_page_cannot_acknowledge(client: TestClient, service: Service) -> None:
    """What a browser sends for another site without asking first (a form, plain text) is refused, and asking first is too."""
    record(service, incident())
    path = "/api/v1/incidents/incident-0/acknowledge"
    posted = client.post(path, content=b'{"by": "mallory"}', headers={"Content-Type": "text/plain", "Origin": "https://example.org"})
    asked = client.options(path, headers={"Origin": "https://example.org", "Access-Control-Request-Method": "POST"})

    assert "application/json" in problem(posted, 422)["detail"]
    assert 405 == asked.status_code
    assert not [name for answer in (posted, asked) for name in answer.headers if name.startswith("access-control")]


# -- devices ----------------------------------------------------------------------------------------------------------------
def test_a_device_is_shown_as_it_was_last_seen(client: TestClient, service: Service) -> None:
    """Identity, newest readings (a missing one is null), why others are missing, processes, and what is wrong with it."""
    record(service, incident(devices=(DeviceRef("GPU-0"),)), incident(1, devices=(DeviceRef("GPU-0"),), state="resolved"))

    assert {
        "uuid": "GPU-0",
        "host": "node-a",
        "index": 0,
        "name": "NVIDIA H100",
        "kind": "gpu",
        "parent": None,
        "mig_profile": None,
        "pci_bus_id": "00000000:3B:00.0",
        "power_state": None,
        "visible": True,
        "last_seen_at": "2023-11-14T22:15:00.000Z",
        "readings": {"temperature_celsius": 61.0, "power_watts": None},
        "unavailable": {"fan_speed_percent": "not_supported"},
        "processes": [
            {
                "pid": 4242,
                "memory_used_bytes": 1e9,
                "command": "python train.py",
                "user": "ada",
                **dict.fromkeys(("sm_utilization_percent", "container", "namespace", "pod", "job", "state", "started_at")),
            }
        ],
        "open_incidents": ["incident-0"],
        "simulated": False,
    } == client.get("/api/v1/devices/GPU-0").json()


def test_all_devices_are_listed(client: TestClient) -> None:
    """GPUs and MIG instances; processes that are not known are null, not none."""
    items = client.get("/api/v1/devices").json()["items"]

    assert [("GPU-0", "gpu", None), ("MIG-1", "mig", "GPU-1")] == [(item["uuid"], item["kind"], item["parent"]) for item in items]
    assert items[1]["processes"] is None


def test_readings_are_given_as_they_were_taken(client: TestClient, service: Service) -> None:
    """Several metrics, a series each; a missing reading is null, and a metric that cannot be read says why."""
    query = "metric=temperature_celsius&metric=fan_speed_percent&metric=temperature_celsius&since=1700000000&until=2023-11-14T22:13:30Z"
    page = client.get(f"/api/v1/devices/GPU-0/readings?{query}").json()

    assert ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:30.000Z", None) == (page["since"], page["until"], page["step"])
    assert [
        {
            "metric": "temperature_celsius",
            "unit": "celsius",
            "aggregation": None,
            "times": [rfc3339(START + n) for n in range(5)],
            "values": [60.0, None, 63.0, 70.0, 71.0],
            "unavailable": None,
        },
        {"metric": "fan_speed_percent", "unit": "percent", "aggregation": None, "times": [], "values": [], "unavailable": "not_supported"},
    ] == page["series"]
    assert [("GPU-0", name, START, START + 10) for name in ("temperature_celsius", "fan_speed_percent")] == service.engine_view.asked


def test_readings_are_those_of_the_last_hour_of_the_device(client: TestClient, service: Service) -> None:
    """Without a range it is the hour before the device was last seen, by its own clock and not by ours."""
    client.get("/api/v1/devices/GPU-0/readings?metric=power_watts")

    assert [("GPU-0", "power_watts", START + 100 - 3600, START + 100)] == service.engine_view.asked


@pytest.mark.parametrize(
    ("metric", "aggregation", "values"),
    [("temperature_celsius", "mean", [60.0, 66.5, 71.0]), ("energy_joules_total", "last", [20.0, 40.0])],
)
def test_readings_are_put_together_in_steps(client: TestClient, metric: str, aggregation: str, values: list[float]) -> None:
    """The mean of a gauge, missing readings left out; the last of a counter, whose mean says nothing."""
    series = client.get(f"/api/v1/devices/GPU-0/readings?metric={metric}&step=2").json()["series"][0]

    assert (aggregation, values) == (series["aggregation"], series["values"])
    assert [rfc3339(START + 2 * n) for n in range(len(values))] == series["times"]


@given(readings=st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=50), step=st.floats(1.0, 30.0))
def test_a_mean_lies_between_its_readings(readings: list[float], step: float) -> None:
    """Steps begin at multiples of the step, rise, hold at least one reading each, and no mean leaves the range of the readings."""
    series = stepped(Series("power_watts", "watts", tuple(START + n for n in range(len(readings))), tuple(readings)), step, "mean")
    known = [reading for reading in readings if not math.isnan(reading)]

    assert sorted(set(series.times)) == list(series.times)
    assert all(math.isclose(at / step, round(at / step)) for at in series.times)
    assert all(min(known) - 1e-6 <= value <= max(known) + 1e-6 for value in series.values)
    assert bool(known) == bool(series.values)


# -- the service ------------------------------------------------------------------------------------------------------------
def test_rules_are_shown_as_configured(client: TestClient) -> None:
    """Rules that are switched off too; a parameter that is infinite does not break the answer."""
    item = client.get("/api/v1/rules").json()["items"][0]

    assert (name_of(Hot), False, "It is too hot.") == (item["name"], item["enabled"], item["description"])
    assert item["parameters"]["limit_celsius"] is None


def test_coverage_says_what_cannot_be_judged(client: TestClient) -> None:
    """For each rule and device whether it can be judged, and if not, why."""
    assert {
        "items": [
            {"rule": "overheating", "host": "node-a", "device": "GPU-0", "answerable": False, "reason": "temperature_celsius (no reading)"},
            {"rule": "xid", "host": "node-a", "device": "GPU-0", "answerable": True, "reason": ""},
        ]
    } == client.get("/api/v1/coverage").json()


def test_a_living_process_is_healthy(client: TestClient) -> None:
    """It says what it reads, since when, and what does not work while the rest goes on."""
    assert {
        "status": "alive",
        "source": "nvml",
        "simulated": False,
        "last_frame_at": "2023-11-14T22:13:20.000Z",
        "problems": ["rule xid failed: ZeroDivisionError"],
    } == client.get("/healthz").json()


def test_what_is_simulated_says_so(client: TestClient, service: Service) -> None:
    """Nothing simulated is ever taken for real: neither the service nor a device."""
    service.engine_view.health_now = Health("simulator", simulated=True, delivering=True)
    service.engine_view.known = [replace(ZERO, simulated=True)]

    assert [True, True] == [client.get(path).json()["simulated"] for path in ("/healthz", "/readyz")]
    assert [True] == [item["simulated"] for item in client.get("/api/v1/devices").json()["items"]]


def refuse(*_: object) -> Any:
    raise StoreError("database /data/gpuwarden.db: database is locked; another process holds it")


@pytest.mark.parametrize(
    ("delivering", "writable", "reasons"),
    [
        (True, True, None),
        (False, True, ["the source nvml delivers nothing"]),
        (True, False, ["database /data/gpuwarden.db: database is locked; another process holds it"]),
        (False, False, ["the source nvml delivers nothing", "database /data/gpuwarden.db: database is locked; another process holds it"]),
    ],
)
def test_ready_is_a_source_that_delivers_and_a_store_that_can_be_written(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch, delivering: bool, writable: bool, reasons: list[str] | None
) -> None:
    """Else it is 503 with every reason; the process stays healthy, since restarting it mends neither."""
    service.engine_view.health_now = Health("nvml", simulated=False, delivering=delivering)
    if not writable:
        monkeypatch.setattr(Store, "check_writable", refuse)
    answer = client.get("/readyz")

    if reasons is None:
        assert (200, {"status": "ready", "simulated": False}) == (answer.status_code, answer.json())
    else:
        assert reasons == problem(answer, 503)["reasons"]
    assert 200 == client.get("/healthz").status_code


def test_a_store_that_refuses_is_said(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error, with the file and the way out, is the answer: 503, come again."""
    monkeypatch.setattr(Store, "incidents", refuse)

    assert "another process holds it" in problem(client.get("/api/v1/incidents"), 503)["detail"]


def test_a_bug_tells_nothing_of_itself(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is a problem like the others; its text, which may hold anything, stays in the log."""
    monkeypatch.setattr(service.engine_view, "devices", lambda: 1 / 0)

    assert "an error of gpuwarden itself; its log says more" == problem(client.get("/api/v1/devices/GPU-0"), 500)["detail"]


@pytest.mark.parametrize(
    "path", ["/healthz", "/api/v1/incidents", "/api/v1/incidents/none", "/api/v1/incidents?limit=x", "/nowhere", "/docs", "/openapi.json"]
)
def test_every_response_has_its_headers(client: TestClient, path: str) -> None:
    """Nothing is cached and no type is guessed, in errors too."""
    headers = client.get(path).headers

    assert ("nosniff", "no-store") == (headers["x-content-type-options"], headers["cache-control"])


def test_a_bug_has_its_headers_too(client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to an unexpected error is made outside of everything else, and has the same headers."""
    monkeypatch.setattr(service.engine_view, "health", lambda: 1 / 0)
    headers = client.get("/healthz").headers

    assert ("nosniff", "no-store") == (headers["x-content-type-options"], headers["cache-control"])


# -- what is documented -----------------------------------------------------------------------------------------------------
@pytest.fixture
def openapi(client: TestClient) -> Any:
    return client.get("/openapi.json").json()


def operations(openapi: Any) -> dict[str, Any]:
    return {f"{method.upper()} {path}": operation for path, methods in openapi["paths"].items() for method, operation in methods.items()}


def test_the_routes_are_those_of_the_contract(openapi: Any) -> None:
    """Scripts rely on these paths."""
    assert ROUTES == list(operations(openapi))


def test_every_route_says_what_it_answers(openapi: Any) -> None:
    """Each route has a sentence, a model of its answer, and its errors as problem details with an example."""
    for name, operation in operations(openapi).items():
        answers = operation["responses"]
        assert operation["description"], name
        assert "$ref" in answers.pop("200")["content"]["application/json"]["schema"], name
        for answer in answers.values():
            assert ["application/problem+json"] == list(answer["content"]), name
            assert {"$ref": "#/components/schemas/Problem"} == answer["content"]["application/problem+json"]["schema"], name
            assert answer["content"]["application/problem+json"]["example"], name


def test_errors_are_documented_where_they_occur(openapi: Any) -> None:
    """A route with parameters may refuse them, one with an id may not find it, one that asks the store may be refused."""
    statuses = {name: set(operation["responses"]) - {"200"} for name, operation in operations(openapi).items()}

    expected = ["422 503", "404 503", "404 422 503", "404 422 503", "503", "404 503", "404 422", "", "", "", "503"]
    assert dict(zip(ROUTES, map(set, map(str.split, expected)), strict=True)) == statuses


def test_models_have_examples_and_no_stranger_is_among_them(openapi: Any) -> None:
    """The documentation shows an incident that looks like one, and every reference leads somewhere."""
    schemas = openapi["components"]["schemas"]
    text = str(openapi)

    assert ["overheating"] == schemas["IncidentOut"]["properties"]["rule"]["examples"]
    assert not {"HTTPValidationError", "ValidationError"} & schemas.keys()
    assert all(f"#/components/schemas/{name}'" in text for name in schemas)
    assert {"type": "string", "format": "date-time"}.items() <= schemas["IncidentOut"]["properties"]["started_at"].items()


# -- for real ---------------------------------------------------------------------------------------------------------------
def test_a_real_server_answers_on_a_real_port(service: Service) -> None:
    """Over a socket, with the real server: an incident is listed, acknowledged and read back, and an error is a problem."""
    record(service, incident())
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it queues the client until the server is up
        server = uvicorn.Server(uvicorn.Config(create_app(service, now=lambda: NOW), log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
                assert [0] == listed(client, "?state=firing")
                marked = client.post("/api/v1/incidents/incident-0/acknowledge", json={"by": "ada"}).json()
                assert marked == client.get("/api/v1/incidents/incident-0").json()
                assert {"status": "ready", "simulated": False} == client.get("/readyz").json()
                problem(client.get("/api/v1/incidents/none"), 404)
        finally:
            server.should_exit = True
            thread.join()
