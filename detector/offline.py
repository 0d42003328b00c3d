"""Replay: the service's own engine over recordings, for the command line and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import TYPE_CHECKING

from detector.assembly import build_engine
from detector.engine import Engine
from detector.frame import Frame
from detector.incident import Incident

if TYPE_CHECKING:
    from detector.config import Config

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


def replay(source: Paths | Iterable[Frame], config: Config | str | PathLike[str] | None = None, *, pending: bool = False) -> list[Incident]:
    """Every incident of a recording, in its final state, oldest first.

    *source* is a path, several paths (merged by time) or frames; *config* a configuration or the path of one. Incidents that never
    fired are left out unless *pending* is true. Raises SourceError where nothing can be read, ConfigError where *config* is wrong.
    """
    engine = build_engine(config)
    return run(engine, _frames(source), pending=pending)


def run(engine: Engine, frames: Iterable[Frame], *, pending: bool = False, watch: Callable[[Frame], None] | None = None) -> list[Incident]:
    """Let *engine* observe all *frames*; the incidents in their final state, oldest first."""
    incidents: dict[str, Incident] = {}
    for frame in frames:
        for change in engine.observe(frame):
            if change.transition == "dropped":
                incidents.pop(change.incident.id, None)
            else:
                incidents[change.incident.id] = change.incident
        if watch is not None:
            watch(frame)
    # What is still open has been seen since the last change that was worth telling.
    incidents.update((incident.id, incident) for incident in engine.incidents() if incident.id in incidents)
    wanted = [incident for incident in incidents.values() if pending or incident.fired_at is not None]
    return sorted(wanted, key=lambda incident: (incident.started_at, incident.rule, incident.id))


def _frames(source: Paths | Iterable[Frame]) -> Iterable[Frame]:
    from detector.sources.recording import read_recording

    if isinstance(source, str | PathLike):
        return read_recording(source)
    items = list(source) if not hasattr(source, "__next__") else source
    if isinstance(items, list) and items and isinstance(items[0], str | PathLike):
        return read_recording(*items)
    return items  # type: ignore[return-value]
