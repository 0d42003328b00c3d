"""The REST interface under `/api/v1`, and what it needs of the service that runs it.

`detector.api.app.create_app` builds it. Nothing here loads FastAPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from detector.incident import Series
from detector.rule import AnyRule

if TYPE_CHECKING:
    from detector.engine import Coverage, DeviceStatus
    from detector.store import Store


@dataclass(frozen=True, slots=True)
class Health:
    """How the service itself is doing."""

    source: str
    """The type of the source: `nvml`, `simulator` ..."""
    simulated: bool
    delivering: bool
    """Whether the source still sends frames as often as it should."""
    last_frame_at: float | None = None
    """None: no frame has come yet."""
    problems: tuple[str, ...] = ()
    """What does not work, a sentence each, while the rest goes on: a rule that fails, a notifier that is refused."""


class EngineView(Protocol):
    """Snapshots of what the engine knows. Called from many threads while the engine runs in its own."""

    def devices(self) -> Sequence[DeviceStatus]: ...

    def readings(self, uuid: str, metric: str, since: float, until: float) -> Series | None:
        """The readings that are kept, oldest first; None where the device or the metric's history is not known."""

    def coverage(self) -> Sequence[Coverage]: ...

    def rules(self) -> Sequence[AnyRule]:
        """Every rule as it is configured, those that are switched off included."""

    def health(self) -> Health: ...


class ServiceState(Protocol):
    """What the routes read and write."""

    @property
    def store(self) -> Store: ...

    @property
    def engine_view(self) -> EngineView: ...
