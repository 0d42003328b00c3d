"""Devices and what was read of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from detector.api import EngineView
from detector.api.problems import documented, not_found, unusable
from detector.api.routes import Moment, Service
from detector.engine import DeviceStatus
from detector.incident import Series
from detector.metrics import METRICS
from detector.schema import Document, Instant, Instants, Number, Numbers, Text, rfc3339

router: Final = APIRouter(prefix="/devices", tags=["devices"])

_READABLE: Final = tuple(name for name, metric in METRICS.items() if metric.entity == "device")


class ProcessOut(Document):
    """A process on a device; null is not known, never "none"."""

    pid: int
    memory_used_bytes: Number = None
    sm_utilization_percent: Number = None
    command: Text | None = None
    user: Text | None = None
    container: Text | None = None
    namespace: Text | None = None
    pod: Text | None = None
    job: Text | None = None
    state: Text | None = Field(None, description="the letter of /proc/PID/stat, or `dead`")
    started_at: Instant | None = None


class DeviceOut(Document):
    """A GPU or MIG instance as it was last seen."""

    uuid: Text = Field(examples=["GPU-5f0c9b7e-2d7a-4c40-9a53-0d1c7a3c3a10"])
    host: Text
    index: int | None
    name: Text | None
    kind: Literal["gpu", "mig"]
    parent: Text | None = Field(description="uuid of the GPU that a MIG instance is a part of")
    mig_profile: Text | None
    pci_bus_id: Text | None
    power_state: Literal["active", "suspended"] | None
    visible: bool = Field(description="whether the newest readings of its host list it")
    last_seen_at: Instant
    readings: dict[str, Number] = Field(
        description="metric -> newest reading; what is absent was not read", examples=[{"temperature_celsius": 61.0, "power_watts": 312.5}]
    )
    unavailable: dict[str, Text] = Field(description="metric -> why it cannot be read", examples=[{"fan_speed_percent": "not_supported"}])
    processes: tuple[ProcessOut, ...] | None = Field(description="null: not known; empty: there are none")
    open_incidents: tuple[str, ...] = Field(description="ids of the incidents, pending or firing, that concern it")
    simulated: bool

    @classmethod
    def of(cls, status: DeviceStatus, open_by_device: Mapping[tuple[str, str], tuple[str, ...]]) -> DeviceOut:
        device = status.device
        return cls(
            uuid=device.uuid,
            host=status.host,
            index=device.index,
            name=device.name,
            kind=device.kind,
            parent=device.parent,
            mig_profile=device.mig_profile,
            pci_bus_id=device.pci_bus_id,
            power_state=device.power_state,
            visible=status.visible,
            last_seen_at=status.last_seen_at,
            readings=dict(status.readings),
            unavailable=dict(status.unavailable),
            processes=None if status.processes is None else tuple(map(ProcessOut.model_validate, status.processes)),
            open_incidents=open_by_device.get((status.host, device.uuid), ()),
            simulated=status.simulated,
        )


class DeviceList(BaseModel):
    """Devices, host by host."""

    items: tuple[DeviceOut, ...]


class ReadingsOut(Document):
    """Readings of one metric, oldest first."""

    metric: str = Field(examples=["temperature_celsius"])
    unit: str = Field(examples=["celsius"])
    aggregation: Literal["mean", "last"] | None = Field(
        description="what a value says of its step: the mean of a gauge, the last of a counter or state; null: readings as they were taken"
    )
    times: Instants = Field(description="when it was read, or the beginning of the step")
    values: Numbers = Field(description="null: the reading is missing")
    unavailable: Text | None = Field(description="why the metric cannot be read; null where it can or the reason is not known")


class ReadingsPage(BaseModel):
    """Readings of one device, a series for each metric that was asked for."""

    uuid: Text
    since: Instant
    until: Instant
    step: float | None
    series: tuple[ReadingsOut, ...]


class ReadingsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    metric: list[str] = Field(min_length=1, description="may be given several times", examples=[["temperature_celsius"]])
    since: Moment | None = Field(None, description="RFC 3339 with a zone, or Unix seconds; default: an hour before `until`")
    until: Moment | None = Field(None, description="RFC 3339 with a zone, or Unix seconds; default: when the device was last seen")
    step: float | None = Field(
        None, ge=1, le=86400, description="seconds; readings are put together in steps that begin at multiples of it, in Unix time"
    )


@router.get("", responses=documented(HTTPStatus.SERVICE_UNAVAILABLE))
def list_devices(service: Service) -> DeviceList:
    """Every device of every host, as it was last seen."""
    open_by_device = service.store.open_by_device()
    return DeviceList(items=tuple(DeviceOut.of(status, open_by_device) for status in service.engine_view.devices()))


@router.get("/{uuid}", responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE))
def get_device(service: Service, uuid: str) -> DeviceOut:
    """One device, as it was last seen."""
    return DeviceOut.of(_device(service.engine_view, uuid), service.store.open_by_device())


@router.get("/{uuid}/readings", responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY))
def list_readings(service: Service, uuid: str, query: Annotated[ReadingsQuery, Query()]) -> ReadingsPage:
    """Readings of a device, one series a metric, from `since` (included) to `until` (included).

    With `step` a series has one value a step: the mean of a gauge, the last reading of a counter or a state, whose mean says nothing.
    A missing reading counts neither way, and a step in which nothing was read is left out.
    """
    view = service.engine_view
    for metric in query.metric:
        if metric not in _READABLE:
            raise unusable("metric", metric, f"Input should be one of {', '.join(_READABLE)}")
    status = _device(view, uuid)
    until = status.last_seen_at if query.until is None else query.until
    since = until - 3600.0 if query.since is None else query.since
    if since > until:
        raise unusable("since", str(query.since), f"Input should be before until ({rfc3339(until)})")
    series = tuple(_readings(view, status, metric, since, until, query.step) for metric in dict.fromkeys(query.metric))
    return ReadingsPage(uuid=uuid, since=since, until=until, step=query.step, series=series)


def _device(view: EngineView, uuid: str) -> DeviceStatus:
    status = next((status for status in view.devices() if status.device.uuid == uuid), None)
    if status is None:
        raise not_found("device", uuid)
    return status


def _readings(view: EngineView, status: DeviceStatus, metric: str, since: float, until: float, step: float | None) -> ReadingsOut:
    row = METRICS[metric]
    series = view.readings(status.device.uuid, metric, since, until) or Series(metric, row.unit, (), ())
    aggregation: Literal["mean", "last"] | None = None
    if step is not None:
        aggregation = "mean" if row.kind == "gauge" else "last"
        series = stepped(series, step, aggregation)
    return ReadingsOut(
        metric=metric,
        unit=row.unit,
        aggregation=aggregation,
        times=series.times,
        values=series.values,
        unavailable=status.unavailable.get(metric),
    )


def stepped(series: Series, step: float, aggregation: Literal["mean", "last"]) -> Series:
    """The series with one value for each step of *step* seconds in which something was read, at the time the step begins."""
    steps: dict[float, list[float]] = {}
    for at, value in zip(series.times, series.values, strict=True):
        if not math.isnan(value):
            steps.setdefault(math.floor(at / step) * step, []).append(value)
    values = (math.fsum(taken) / len(taken) if aggregation == "mean" else taken[-1] for taken in steps.values())
    return Series(series.metric, series.unit, tuple(steps), tuple(values), series.device)
