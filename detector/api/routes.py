"""What all routes share: the service they speak for, and moments in a query."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Depends, Request
from pydantic import BeforeValidator, WithJsonSchema

from detector.api import ServiceState
from detector.schema import instant


def _service(request: Request) -> ServiceState:
    service: ServiceState = request.app.state.service
    return service


Service = Annotated[ServiceState, Depends(_service)]

# The plus of +01:00 reads as a space where a client did not encode it.
_LOST_PLUS: Final = re.compile(r" (?=\d\d:\d\d$)")


def _moment(value: str | float) -> float:
    return instant(_LOST_PLUS.sub("+", value) if isinstance(value, str) else value)


Moment = Annotated[
    float,
    BeforeValidator(_moment),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}], "examples": ["2023-11-14T22:13:20Z"]}),
]
"""RFC 3339 with a zone, or Unix seconds."""
