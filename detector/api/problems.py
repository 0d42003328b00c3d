"""Errors of the REST interface as RFC 9457 problem details: what is wrong, which value, what is allowed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from detector.errors import StoreError
from detector.schema import Text

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"

EVERY_RESPONSE: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
"""Headers of every response: nothing is guessed to be a script, and nobody keeps a picture of yesterday."""


class ParameterError(BaseModel):
    """One value of a request that cannot be used."""

    parameter: str = Field(examples=["limit"])
    place: str = Field(description="query, path or body", examples=["query"])
    value: Text | None = Field(description="what was given, cut to 200 characters; null: nothing was", examples=["501"])
    message: str = Field(description="what is allowed", examples=["Input should be less than or equal to 500"])


class Problem(BaseModel):
    """RFC 9457 problem details."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str = Field(description="path of the request")
    errors: tuple[ParameterError, ...] | None = Field(None, description="which values of the request cannot be used")
    reasons: tuple[str, ...] | None = Field(None, description="all that is wrong, a sentence each")


class ProblemError(Exception):
    """Raised by a route to answer with a problem."""

    def __init__(self, status: HTTPStatus, detail: str, *, reasons: Sequence[str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.reasons = reasons


def not_found(what: str, name: str) -> ProblemError:
    return ProblemError(HTTPStatus.NOT_FOUND, f"there is no {what} {name!r}")


def unusable(parameter: str, value: str, message: str) -> RequestValidationError:
    """A query parameter that is well formed but means nothing here."""
    return RequestValidationError([{"loc": ("query", parameter), "input": value, "msg": message, "type": "value_error"}])


def documented(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for its OpenAPI description."""
    return {int(status): {"model": Problem, **_DOCUMENTED[status]} for status in statuses}


def _example(status: HTTPStatus, description: str, detail: str, instance: str, **more: object) -> dict[str, Any]:
    example = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail, "instance": instance, **more}
    return {"description": description, "content": {MEDIA_TYPE: {"example": example}}}


_DOCUMENTED: Final = {
    HTTPStatus.NOT_FOUND: _example(HTTPStatus.NOT_FOUND, "Nothing has this id.", "there is no incident '4711'", "/api/v1/incidents/4711"),
    HTTPStatus.UNPROCESSABLE_ENTITY: _example(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "A value of the request cannot be used.",
        "limit = '501': Input should be less than or equal to 500",
        "/api/v1/incidents",
        errors=[{"parameter": "limit", "place": "query", "value": "501", "message": "Input should be less than or equal to 500"}],
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: _example(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The service cannot do it now; the reasons say why.",
        "not ready: the source nvml delivers nothing",
        "/readyz",
        reasons=["the source nvml delivers nothing"],
    ),
}


def install(app: FastAPI) -> None:
    """Let every error of *app* leave as a problem."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_unusable_request)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(StoreError, _on_store_error)
    app.add_exception_handler(Exception, _on_bug)


def _on_problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)
    return _response(request, error.status, error.detail, reasons=error.reasons)


def _on_unusable_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = [_parameter_error(found) for found in error.errors()]
    detail = "; ".join(f"{found.parameter}{'' if found.value is None else f' = {found.value!r}'}: {found.message}" for found in errors)
    return _response(request, HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors)


def _parameter_error(found: Mapping[str, Any]) -> ParameterError:
    # ("query", "state", 0): which of several values it was shows in the value.
    place, *names = (part for part in found["loc"] if isinstance(part, str))
    given = found["input"]
    message = found["msg"].removeprefix("Value error, ")
    if found["type"] == "missing":
        given = None
    elif found["type"] == "json_invalid":
        given, message = None, f"this is no JSON: {found['ctx']['error']}, at character {found['loc'][-1]}"
    elif isinstance(given, bytes):
        given, message = given.decode(errors="replace"), "Content-Type should be application/json"
    elif found["type"] == "extra_forbidden":
        message = "there is no such parameter here; /docs lists those there are"
    value = None if given is None else str(given)[:200]
    return ParameterError(parameter=".".join(names) or place, place=place, value=value, message=message)


def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    detail = f"{request.method} {request.url.path}: {error.detail}; /docs lists what there is"
    return _response(request, HTTPStatus(error.status_code), detail, headers=error.headers)


def _on_store_error(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s: %s", request.method, request.url.path, error)
    return _response(request, HTTPStatus.SERVICE_UNAVAILABLE, str(error))


def _on_bug(request: Request, error: Exception) -> JSONResponse:
    # The server logs the traceback; what it says is nobody's business outside.
    return _response(request, HTTPStatus.INTERNAL_SERVER_ERROR, "an error of gpuwarden itself; its log says more")


def _response(
    request: Request,
    status: HTTPStatus,
    detail: str,
    *,
    errors: Sequence[ParameterError] | None = None,
    reasons: Sequence[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    problem = Problem(
        title=status.phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
        errors=None if errors is None else tuple(errors),
        reasons=None if reasons is None else tuple(reasons),
    )
    return JSONResponse(
        problem.model_dump(mode="json", exclude_none=True), int(status), {**(headers or {}), **EVERY_RESPONSE}, media_type=MEDIA_TYPE
    )
