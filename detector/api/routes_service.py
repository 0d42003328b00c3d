"""The service itself: its rules, what they can judge, and how it is."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from detector.api.problems import ProblemError, documented
from detector.api.routes import Service
from detector.errors import StoreError
from detector.schema import Document, Instant, RuleOut, Text

router: Final = APIRouter(tags=["service"])
probes: Final = APIRouter(tags=["service"])
"""Outside the versioned prefix, where a supervisor looks for them."""


class RuleList(BaseModel):
    items: tuple[RuleOut, ...]


class CoverageOut(Document):
    """Whether a rule can judge a device now."""

    rule: str
    host: Text
    device: Text = Field(description="uuid")
    answerable: bool
    reason: Text = Field(description="what is missing; empty where it can", examples=["temperature_slowdown_celsius (not_supported)"])


class CoverageList(BaseModel):
    items: tuple[CoverageOut, ...]


class HealthOut(BaseModel):
    status: Literal["alive"] = "alive"
    source: str = Field(examples=["nvml"])
    simulated: bool = Field(description="whether what is shown is made up by the simulator")
    last_frame_at: Instant | None = Field(description="when the newest readings were taken; null: none were")
    problems: tuple[Text, ...] = Field(description="what does not work while the rest goes on, a sentence each")


class ReadyOut(BaseModel):
    status: Literal["ready"] = "ready"
    simulated: bool


@router.get("/rules")
def list_rules(service: Service) -> RuleList:
    """Every rule with its parameters as configured, those that are switched off included."""
    return RuleList(items=tuple(map(RuleOut.of, service.engine_view.rules())))


@router.get("/coverage")
def list_coverage(service: Service) -> CoverageList:
    """For each rule and device whether the rule can judge it, and if not, what is missing."""
    return CoverageList(items=tuple(map(CoverageOut.model_validate, service.engine_view.coverage())))


@probes.get("/healthz")
def healthz(service: Service) -> HealthOut:
    """The process is alive. It stays so while a source is silent or the store is locked: restarting it would mend neither."""
    health = service.engine_view.health()
    return HealthOut(source=health.source, simulated=health.simulated, last_frame_at=health.last_frame_at, problems=health.problems)


@probes.get("/readyz", responses=documented(HTTPStatus.SERVICE_UNAVAILABLE))
def readyz(service: Service) -> ReadyOut:
    """The source delivers and the store can be written; else 503 with all the reasons."""
    health = service.engine_view.health()
    reasons = [] if health.delivering else [f"the source {health.source} delivers nothing"]
    try:
        service.store.check_writable()
    except StoreError as error:
        reasons.append(str(error))
    if reasons:
        raise ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {'; '.join(reasons)}", reasons=reasons)
    return ReadyOut(simulated=health.simulated)
