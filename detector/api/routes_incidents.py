"""Incidents: listing them, their history, and acknowledging them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from detector.api.problems import documented, not_found
from detector.api.routes import Moment, Service
from detector.incident import Acknowledgement, Severity, State
from detector.schema import ChangeOut, IncidentOut, rfc3339
from detector.store import Cursor, IncidentFilter

router: Final = APIRouter(prefix="/incidents", tags=["incidents"])

Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class IncidentQuery(BaseModel):
    """Filters may be given several times: an incident matches one value of each."""

    model_config = ConfigDict(extra="forbid")

    state: list[State] = Field([], description="pending, firing or resolved")
    severity: list[Severity] = Field([], description="info, warning or critical")
    rule: list[Word] = Field([], examples=[["overheating"]])
    device: list[Word] = Field([], description="uuid of a device that is concerned; a GPU stands for its MIG instances too")
    host: list[Word] = []
    since: Moment | None = Field(None, description="started at this moment or later; RFC 3339 with a zone, or Unix seconds")
    until: Moment | None = Field(None, description="started before this moment; RFC 3339 with a zone, or Unix seconds")
    cursor: str | None = Field(None, description="`next_cursor` of the page before")
    limit: int = Field(50, ge=1, le=500, description="the most incidents on one page")

    @field_validator("cursor")
    @classmethod
    def _one_of_ours(cls, cursor: str | None) -> str | None:
        return cursor if cursor is None else str(Cursor.parse(cursor))

    @field_validator("until")
    @classmethod
    def _in_order(cls, until: float | None, query: ValidationInfo) -> float | None:
        since = query.data.get("since")
        if since is not None and until is not None and since >= until:
            raise ValueError(f"Input should be after since ({rfc3339(since)})")
        return until

    def filter(self) -> IncidentFilter:
        return IncidentFilter(
            state=tuple(self.state),
            severity=tuple(self.severity),
            rule=tuple(self.rule),
            device=tuple(self.device),
            host=tuple(self.host),
            since=self.since,
            until=self.until,
        )


class IncidentPage(BaseModel):
    """Incidents, newest first."""

    items: tuple[IncidentOut, ...]
    next_cursor: str | None = Field(description="for the next page; null on the last one")


class ChangeQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cursor: int = Field(0, ge=0, le=2**63 - 1, description="`next_cursor` of the page before")
    limit: int = Field(100, ge=1, le=500, description="the most changes on one page")


class ChangePage(BaseModel):
    """Changes, oldest first."""

    items: tuple[ChangeOut, ...]
    next_cursor: int | None = Field(description="for the next page; null on the last one")


class AcknowledgeIn(BaseModel):
    """Who has seen the incident, and what they have to say."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"by": "ada", "note": "fan ordered, swap on Monday"}]})

    by: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    note: Annotated[str, StringConstraints(max_length=2000)] = ""


@router.get("", responses=documented(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE))
def list_incidents(service: Service, query: Annotated[IncidentQuery, Query()]) -> IncidentPage:
    """Incidents that match, newest first (by when they started). New ones do not shift the pages that follow a cursor."""
    after = None if query.cursor is None else Cursor.parse(query.cursor)
    page = service.store.incidents(query.filter(), after, query.limit)
    return IncidentPage(items=tuple(map(IncidentOut.of, page.items)), next_cursor=None if page.next is None else str(page.next))


@router.get("/{incident_id}", responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE))
def get_incident(service: Service, incident_id: str) -> IncidentOut:
    """One incident. One that was pending and went away before it fired is gone; its changes stay."""
    incident = service.store.incident(incident_id)
    if incident is None:
        raise not_found("incident", incident_id)
    return IncidentOut.of(incident)


@router.get(
    "/{incident_id}/changes",
    responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE),
)
def list_changes(service: Service, incident_id: str, query: Annotated[ChangeQuery, Query()]) -> ChangePage:
    """What happened to an incident, oldest first, each time with the incident as it was then."""
    recorded = service.store.changes(incident_id, query.cursor, query.limit + 1)
    if not recorded and not query.cursor:
        raise not_found("incident", incident_id)
    shown = recorded[: query.limit]
    return ChangePage(
        items=tuple(ChangeOut.of(one.id, one.change) for one in shown),
        next_cursor=shown[-1].id if len(recorded) > query.limit else None,
    )


@router.post(
    "/{incident_id}/acknowledge",
    responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE),
)
def acknowledge(request: Request, service: Service, incident_id: str, seen: AcknowledgeIn) -> IncidentOut:
    """Mark an incident as seen by someone. It changes nothing about its state; a later acknowledgement replaces the former."""
    mark = Acknowledgement(seen.by, request.app.state.now(), seen.note)
    incident = service.store.acknowledge(incident_id, mark)
    if incident is None:
        raise not_found("incident", incident_id)
    return IncidentOut.of(incident)
