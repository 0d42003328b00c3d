"""The REST interface as an ASGI application."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from detector.api import EngineView, Health, ServiceState, problems, routes_devices, routes_incidents, routes_service

__all__ = ["EngineView", "Health", "ServiceState", "create_app"]

_DESCRIPTION: Final = """Incidents on NVIDIA GPUs: what is wrong, on which GPU, whose job it is, since when, on what evidence, what to do.

Times are RFC 3339 in UTC; in a query they may also be Unix seconds. Errors are problem details (RFC 9457)."""


def create_app(state: ServiceState, *, now: Callable[[], float] = time.time) -> FastAPI:
    """The application that shows *state*. *now* tells the time of an acknowledgement, in Unix seconds."""
    app = FastAPI(title="gpuwarden", version="1", description=_DESCRIPTION, redoc_url=None)
    app.state.service = state
    app.state.now = now
    versioned = APIRouter(prefix="/api/v1")
    for module in (routes_incidents, routes_devices, routes_service):
        versioned.include_router(module.router)
    app.include_router(versioned)
    app.include_router(routes_service.probes)
    problems.install(app)
    app.add_middleware(_Headers)
    generate = app.openapi
    app.openapi = lambda: _with_problems(generate())  # type: ignore[method-assign]
    return app


class _Headers:
    """Puts the headers of every response on it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(problems.EVERY_RESPONSE)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the errors we have: problems, under their own media type, and none of FastAPI's own kind."""
    for responses in (operation["responses"] for path in document["paths"].values() for operation in path.values()):
        for status in [status for status in responses if status >= "400"]:
            content = responses[status]["content"]
            model = content.pop("application/json", {"schema": {}})
            if model["schema"].get("$ref", "").endswith("/HTTPValidationError"):
                del responses[status]
            else:
                content[problems.MEDIA_TYPE] |= model
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    return document
