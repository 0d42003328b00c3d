"""The service: builds everything from the configuration and runs it.

One thread takes frames from the source, lets the engine observe them and stores what changed; the API answers from the store and from
snapshots of the engine. The only clock is here: a source that is recorded or simulated is paced by it.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from detector.api import Health
from detector.assembly import build_engine
from detector.config import SOURCES, Config, RecordingSource, SimulatorSource
from detector.engine import Coverage, DeviceStatus
from detector.errors import ConfigError, DetectorError, StoreError
from detector.frame import Frame
from detector.incident import Change, Series
from detector.model import TrainingProcess
from detector.rule import AnyRule
from detector.store import Store

log = logging.getLogger(__name__)

BATCH_FRAMES: Final = 256
REFRESH_SECONDS: Final = 10.0
"""How often open incidents are brought up to date in the store where nothing happened that would be a change."""
RETRY_SECONDS: Final = 1.0
"""How soon changes are offered again to a database that refused them, once no frame comes any more."""
SILENT_SECONDS: Final = 15.0
"""A source that gave no frame for so long delivers nothing."""
UNSAVED_CHANGES: Final = 100_000
"""So many changes wait for a database that refuses them; then the oldest updates, which later ones repeat, are dropped."""


class Service:
    """Everything that runs, as the API sees it: `store`, and the engine's snapshots as `engine_view`."""

    def __init__(self, config: Config, *, announce: Callable[[Change], None] | None = None) -> None:
        self.config = config
        self.store = open_store(config)
        live = speed_of(config) <= 1.0
        # In fast motion the worker could not keep up, and the model would wait for it.
        self._engine = build_engine(config, executor=TrainingProcess() if live else None)
        self._announce = announce
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._unsaved: list[Change] = []
        self._refusal: str | None = None
        self._failure: str | None = None
        self._ended = False
        self._last_frame: tuple[float, float] | None = None
        self._refreshed = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)
        self._engine.restore(self.store.open_incidents())

    @property
    def engine_view(self) -> Service:
        return self

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the observer and store what it knows. Safe to call at any time, once."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=30.0)
        self.store.close()

    def wait(self, seconds: float) -> bool:
        """Wait until the source has come to its end; False if it has not after so many seconds."""
        self._thread.join(timeout=seconds)
        return not self._thread.is_alive()

    # -- what the API asks -----------------------------------------------------------------------------------------------------
    def devices(self) -> Sequence[DeviceStatus]:
        with self._lock:
            return self._engine.devices()

    def readings(self, uuid: str, metric: str, since: float, until: float) -> Series | None:
        with self._lock:
            return self._engine.readings(uuid, metric, since, until)

    def coverage(self) -> Sequence[Coverage]:
        with self._lock:
            return self._engine.coverage()

    def rules(self) -> Sequence[AnyRule]:
        return [configured.default for configured in self.config.ruleset().values()]

    def health(self) -> Health:
        errors = tuple(f"rule {name} cannot judge: {error}" for name, error in self._engine.rule_errors.items())
        problems = tuple(problem for problem in (self._failure, self._refusal) if problem) + errors
        last = self._last_frame
        fresh = last is not None and time.monotonic() - last[0] < SILENT_SECONDS
        return Health(
            source=self.config.source.type,
            simulated=isinstance(self.config.source, SimulatorSource),
            delivering=self._failure is None and (fresh or self._ended),
            last_frame_at=last[1] if last else None,
            problems=problems,
        )

    # -- the observer ------------------------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        try:
            for frames in paced(frames_of(self.config), speed_of(self.config), self._stop):
                with self._lock:
                    changes = self._engine.observe(*frames)
                self._last_frame = (time.monotonic(), frames[-1].at)
                self._keep(changes)
            self._ended = not self._stop.is_set()
        except DetectorError as error:
            self._failure = str(error)
            log.error("the source stopped: %s", error)
        except Exception as error:
            self._failure = f"the observer stopped: {type(error).__name__}: {error}"
            log.exception("the observer stopped")
        finally:
            self._refresh()
            while self._unsaved and not self._stop.wait(RETRY_SECONDS):
                self._keep(())

    def _keep(self, changes: Sequence[Change]) -> None:
        """Store the changes, and those that could not be stored before, in their order. Nothing waits for a database that refuses."""
        for change in changes:
            if self._announce is not None:
                self._announce(change)
        self._unsaved.extend(changes)
        if self._unsaved:
            try:
                self.store.record(self._unsaved)
            except StoreError as error:
                if self._refusal is None:
                    log.error("incidents wait for the database: %s", error)
                self._refusal = str(error)
                self._unsaved = _bounded(self._unsaved)
                return
            self._unsaved = []
            self._refusal = None
        if time.monotonic() - self._refreshed >= REFRESH_SECONDS:
            self._refresh()

    def _refresh(self) -> None:
        self._refreshed = time.monotonic()
        with self._lock:
            current = self._engine.incidents()
        try:
            self.store.refresh(current)
        except StoreError as error:
            self._refusal = str(error)


def _bounded(changes: list[Change]) -> list[Change]:
    excess = len(changes) - UNSAVED_CHANGES
    if excess <= 0:
        return changes
    kept = []
    for change in changes:
        if excess > 0 and change.transition == "updated":
            excess -= 1
            continue
        kept.append(change)
    return kept


# -- pieces --------------------------------------------------------------------------------------------------------------------
def open_store(config: Config) -> Store:
    """The store of the configuration; its folder is made where it is missing. Raises StoreError."""
    if config.service.database is not None:
        return Store(config.service.database.get_secret_value())
    folder = config.service.data
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the data folder {folder} cannot be made: {error.strerror}; choose another with --data") from None
    return Store(folder / "gpuwarden.db")


def frames_of(config: Config) -> Iterator[Frame]:
    """The frames of the configured source. Raises SourceError or ConfigError."""
    source = config.source
    if isinstance(source, SimulatorSource):
        from detector.sources.simulator import Simulator

        return Simulator(gpus=source.gpus, seed=source.seed, faults=source.faults).frames()
    if isinstance(source, RecordingSource):
        from detector.sources.recording import ReadOptions, read_recording

        zone = config.service.timezone.key if config.service.timezone else None
        return read_recording(*source.paths, options=ReadOptions(format=source.format, timezone=zone))
    raise ConfigError(f"the source {source.type} is not available yet; use `--source simulator`, or `--replay PATH` to play a recording")


def speed_of(config: Config) -> float:
    return config.source.speed if isinstance(config.source, SimulatorSource | RecordingSource) else 1.0


def paced(frames: Iterable[Frame], speed: float, stop: threading.Event) -> Iterator[list[Frame]]:
    """The frames when they are due, *speed* of their seconds a second, in lists of those due together; ends early once *stop* is set."""
    began, first = time.monotonic(), math.nan
    due: list[Frame] = []
    for frame in frames:
        if math.isnan(first):
            first = frame.at
        wait = (frame.at - first) / speed - (time.monotonic() - began)
        if due and (wait > 0.0 or len(due) >= BATCH_FRAMES):
            yield due
            due = []
        if stop.is_set() or (wait > 0.0 and stop.wait(wait)):
            return
        due.append(frame)
    if due:
        yield due


def configured(config: Config, *, source: dict[str, Any], service: dict[str, Any]) -> Config:
    """*config* with what the command line says over it. A source of another type begins with that type's defaults."""
    said = {key: value for key, value in source.items() if value is not None and key != "type"}
    kind = SOURCES[source.get("type") or config.source.type]
    names = set(kind.__dataclass_fields__)
    if unknown := said.keys() - names:
        raise ConfigError(f"the source {kind.type} has no {', '.join(sorted(unknown))}")
    over = {key: value for key, value in service.items() if value is not None}
    base = replace(config.source, **said) if isinstance(config.source, kind) else kind(**said)
    return replace(config, source=base, service=replace(config.service, **over))


def listen(host: str, port: int, *, insecure: bool = False) -> socket.socket:
    """A listening socket. Raises ConfigError where the address is taken, is not ours, or is open to others without *insecure*."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        if not insecure and not ipaddress.ip_address(address[0]).is_loopback:
            raise ConfigError(
                f"{host} can be reached from outside and the API asks for no password: listen on 127.0.0.1, or say --insecure"
            )
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(128)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --port or --host") from None
    return opened


def serve(config: Config, *, insecure: bool = False, announce: bool = False, seconds: float | None = None) -> int:
    """Run the service until it is told to stop (SIGINT, SIGTERM), or for so many seconds. Returns the exit status."""
    import uvicorn

    from detector.api.app import create_app
    from detector.console import announcer, say

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    frames_of(config)  # refuses at once what cannot be read at all
    opened = listen(config.service.host, config.service.port, insecure=insecure)
    try:
        service = Service(config, announce=announcer() if announce else None)
        host, port = opened.getsockname()[:2]
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        what = f"{config.source.type} (simulated)" if service.health().simulated else config.source.type
        say(f"gpuwarden listens on {address}  (API: {address}/docs, incidents: {address}/api/v1/incidents); source: {what}")
        server = uvicorn.Server(
            uvicorn.Config(create_app(service), log_level="warning", access_log=False, server_header=False, lifespan="off")
        )
        # uvicorn raises what it caught once more when it has ended, and the default would end us before the store is closed.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
        service.start()
        timer = threading.Timer(seconds, lambda: setattr(server, "should_exit", True)) if seconds is not None else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            server.run(sockets=[opened])
        finally:
            service.stop()
    finally:
        opened.close()
    return 0
