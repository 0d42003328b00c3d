"""Incidents and their changes in a database: SQLite by default, PostgreSQL by URL, the same code for both.

`changes` is what happened and is only ever appended to; `incidents` is where it led. Both are written in one transaction, which is
also where deliveries belong: their rows will point at the id of a change.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from detector.errors import StoreError
from detector.incident import Acknowledgement, Change, Incident, Severity, State
from detector.migrations import migrate
from detector.schema import AcknowledgementOut, IncidentOut

log = logging.getLogger(__name__)

METADATA: Final = sa.MetaData()

_INCIDENTS: Final = sa.Table(
    "incidents",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("severity", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("acknowledged_at", sa.Double),
    sa.Column("document", sa.Text, nullable=False),
    # The order of the listing, and all it filters by: what does not match is passed over without reading its document.
    sa.Index("incidents_listing", "started_at", "id", "state", "severity", "rule", "host"),
)

_DEVICES: Final = sa.Table(
    "incident_devices",
    METADATA,
    sa.Column("incident_id", sa.Text, primary_key=True),
    sa.Column("device", sa.Text, primary_key=True),
)

_CHANGES: Final = sa.Table(
    "changes",
    METADATA,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("incident_id", sa.Text, nullable=False),
    sa.Column("transition", sa.Text, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Index("changes_of_incident", "incident_id", "id"),
    sqlite_autoincrement=True,
)

_INSERT: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}

LOCK_PATIENCE_SECONDS: Final = 5.0
_WRITE_LOCK: Final = 0x67707577  # "gpuw": an advisory lock is known by its number

_WAY_OUT: Final = {
    sqlite3.SQLITE_BUSY: "another process holds it; end that process, or wait for it",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for this user",
    sqlite3.SQLITE_FULL: "free some space on its disk",
    sqlite3.SQLITE_IOERR: "check its disk, and whether it has space left",
    sqlite3.SQLITE_CANTOPEN: "its folder must exist, and be writable for this user",
    sqlite3.SQLITE_CORRUPT: "restore a copy, or move the file away and a new one is made",
    sqlite3.SQLITE_NOTADB: "restore a copy, or move the file away and a new one is made",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFilter:
    """Which incidents are wanted: all that match in every field. An empty tuple or None matches everything."""

    state: tuple[State, ...] = ()
    severity: tuple[Severity, ...] = ()
    rule: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    """uuids of devices that are concerned; a GPU stands for its MIG instances too."""
    host: tuple[str, ...] = ()
    since: float | None = None
    """Started at this moment or later."""
    until: float | None = None
    """Started before this moment."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place in the listing behind one incident. It stays the same place whatever is inserted meanwhile."""

    started_at: float
    id: str

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(f"{self.started_at!r} {self.id}".encode()).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that was given out as *text*. Raises ValueError."""
        try:
            started_at, incident_id = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode().split(" ", 1)
            return cls(float(started_at), incident_id)
        except ValueError:
            raise ValueError("that is no cursor; take next_cursor of the page before, or leave it out") from None


@dataclass(frozen=True, slots=True)
class Page:
    """Part of the listing of incidents, newest first. `next` is None on the last page."""

    items: tuple[Incident, ...]
    next: Cursor | None


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """A change and its number, which rises with every change that is recorded."""

    id: int
    change: Change


class Store:
    """Where incidents outlive the process. One thread writes, any thread reads; several processes may share a database.

    *database* is the path of a SQLite file, made if it is missing, or a URL. Opening brings the schema up to date. Every method raises
    StoreError when the database refuses; nothing of that call is stored then, and the next call tries afresh.
    """

    def __init__(self, database: str | Path) -> None:
        url = _url(database)
        self._place = str(url.database) if url.get_backend_name() == "sqlite" else url.render_as_string()
        self._reader = _engine(url)
        self._writer = self._reader.execution_options(writes=True)
        self._insert = _INSERT[url.get_backend_name()]
        try:
            with self._writing() as connection:
                migrate(connection, self._place)
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        self._reader.dispose()

    # -- writing ------------------------------------------------------------------------------------------------------------
    def record(self, changes: Sequence[Change]) -> None:
        """Store the changes, oldest first, and where they lead, all or nothing. When it returns they are on the disk.

        A change that is stored already is not stored twice, so after a StoreError the caller may repeat the call.
        An incident that was dropped before it fired leaves the listing; its changes stay.
        """
        if changes:
            with self._writing() as connection:
                self._record(connection, changes)

    def refresh(self, incidents: Iterable[Incident]) -> None:
        """Bring stored incidents up to date (last seen, value, waste) where nothing happened that would be a change."""
        current = {incident.id: incident for incident in incidents}
        if current:
            with self._writing() as connection:
                known = {row.id for row in _picked(connection, sa.select(_INCIDENTS.c.id), current)}
                marks = _marks(connection, known)
                told = [_marked(told, marks) for key in known if (told := _told(current[key]))]
                self._save(connection, [(incident, incident.model_dump_json()) for incident in told])

    def acknowledge(self, incident_id: str, acknowledgement: Acknowledgement) -> Incident | None:
        """Mark an incident as seen by someone; returns it, or None where there is no such incident.

        The mark stays for the whole life of the incident; a later one replaces it. What the engine says of the incident afterwards
        keeps it, whether the engine knows of it or not.
        """
        with self._writing() as connection:
            document = connection.scalar(sa.select(_INCIDENTS.c.document).where(_INCIDENTS.c.id == incident_id))
            if document is None:
                return None
            incident = replace(_incident(document), acknowledged=acknowledgement)
            self._record(connection, [Change("updated", acknowledgement.at, incident)])
            return incident

    def check_writable(self) -> None:
        """Raise StoreError if the database cannot be written now. It is tried: a row comes and goes within one transaction."""
        with self._writing() as connection:
            connection.execute(sa.insert(_DEVICES), {"incident_id": "", "device": ""})
            connection.execute(sa.delete(_DEVICES).where(_DEVICES.c.incident_id == ""))

    def _record(self, connection: sa.Connection, changes: Sequence[Change]) -> None:
        marks = _marks(connection, {change.incident.id for change in changes})
        rows: list[dict[str, object]] = []
        final: dict[str, tuple[Change, IncidentOut, str]] = {}
        for change in changes:
            told = _told(change.incident)
            if told is None:
                continue
            document = told.model_dump_json()
            # The same change is the same row, however often it is handed over and whatever was acknowledged meanwhile.
            digest = hashlib.blake2b(f"{change.transition} {change.at!r} {document}".encode(), digest_size=16).digest()
            if (marked := _marked(told, marks)) is not told:
                told, document = marked, marked.model_dump_json()
            rows.append({"incident_id": told.id, "transition": change.transition, "at": change.at, "digest": digest, "document": document})
            final[told.id] = (change, told, document)
        if rows:
            connection.execute(self._insert(_CHANGES).on_conflict_do_nothing(index_elements=["digest"]), rows)
            _drop(connection, [told.id for change, told, _ in final.values() if change.transition == "dropped"])
            self._save(connection, [(told, document) for change, told, document in final.values() if change.transition != "dropped"])

    def _save(self, connection: sa.Connection, incidents: Sequence[tuple[IncidentOut, str]]) -> None:
        """Replace what is stored of the incidents, each given with its document."""
        if not incidents:
            return
        rows = [
            {
                **{name: getattr(told, name) for name in ("id", "started_at", "state", "severity", "rule", "host")},
                "acknowledged_at": told.acknowledged.at if told.acknowledged else None,
                "document": document,
            }
            for told, document in incidents
        ]
        upsert = self._insert(_INCIDENTS)
        newer = {name: upsert.excluded[name] for name in rows[0] if name != "id"}
        connection.execute(upsert.on_conflict_do_update(index_elements=["id"], set_=newer), rows)
        keys = [{"key": told.id} for told, _ in incidents]
        connection.execute(sa.delete(_DEVICES).where(_DEVICES.c.incident_id == sa.bindparam("key")), keys)
        pairs = {(told.id, uuid) for told, _ in incidents for device in told.devices for uuid in (device.uuid, device.parent) if uuid}
        if pairs:
            connection.execute(sa.insert(_DEVICES), [{"incident_id": key, "device": uuid} for key, uuid in sorted(pairs)])

    # -- reading ------------------------------------------------------------------------------------------------------------
    def incident(self, incident_id: str) -> Incident | None:
        with self._reading() as connection:
            document = connection.scalar(sa.select(_INCIDENTS.c.document).where(_INCIDENTS.c.id == incident_id))
        return None if document is None else _incident(document)

    def incidents(self, wanted: IncidentFilter | None = None, after: Cursor | None = None, limit: int = 50) -> Page:
        """At most *limit* incidents that match, newest first, from behind *after* on."""
        query = sa.select(_INCIDENTS.c.started_at, _INCIDENTS.c.id, _INCIDENTS.c.document).where(*_conditions(wanted or IncidentFilter()))
        if after is not None:
            query = query.where(sa.tuple_(_INCIDENTS.c.started_at, _INCIDENTS.c.id) < (after.started_at, after.id))
        query = query.order_by(_INCIDENTS.c.started_at.desc(), _INCIDENTS.c.id.desc()).limit(limit + 1)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        shown = rows[:limit]
        more = len(rows) > limit
        return Page(tuple(_incident(row.document) for row in shown), Cursor(shown[-1].started_at, shown[-1].id) if more else None)

    def open_incidents(self) -> tuple[Incident, ...]:
        """Every incident that is pending or firing, oldest first: what a new process takes up again."""
        query = sa.select(_INCIDENTS.c.document).where(_INCIDENTS.c.state != "resolved")
        with self._reading() as connection:
            documents = connection.scalars(query.order_by(_INCIDENTS.c.started_at, _INCIDENTS.c.id)).all()
        return tuple(_incident(document) for document in documents)

    def open_by_device(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """(host, uuid of a device) -> ids of the incidents, pending or firing, that concern it, oldest first."""
        query = sa.select(_INCIDENTS.c.host, _DEVICES.c.device, _INCIDENTS.c.id).where(_INCIDENTS.c.state != "resolved")
        query = query.join(_DEVICES, _DEVICES.c.incident_id == _INCIDENTS.c.id).order_by(_INCIDENTS.c.started_at, _INCIDENTS.c.id)
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        with self._reading() as connection:
            for host, device, incident_id in connection.execute(query):
                found[host, device] = (*found.get((host, device), ()), incident_id)
        return found

    def changes(self, incident_id: str, after: int = 0, limit: int = 500) -> tuple[RecordedChange, ...]:
        """What happened to an incident, oldest first, from behind the change with number *after* on."""
        query = sa.select(_CHANGES).where(_CHANGES.c.incident_id == incident_id, _CHANGES.c.id > after).order_by(_CHANGES.c.id).limit(limit)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return tuple(RecordedChange(row.id, Change(row.transition, row.at, _incident(row.document))) for row in rows)

    # -- connections --------------------------------------------------------------------------------------------------------
    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._explained(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._explained(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            # A connection that was opened while the file could not be written never can: the next call opens its own.
            self._reader.dispose()
            raise StoreError(f"database {self._place}: {_reason(error)}") from error


def _told(incident: Incident) -> IncidentOut | None:
    """The incident in words of the schema; None where it has none, for one bad rule must not hold up the incidents of the others."""
    try:
        return IncidentOut.of(incident)
    except ValidationError:
        log.exception("incident %s of rule %s cannot be stored", incident.id, incident.rule)
        return None


def _marks(connection: sa.Connection, ids: Collection[str]) -> dict[str, AcknowledgementOut]:
    """Who acknowledged which of these incidents."""
    query = sa.select(_INCIDENTS.c.document).where(_INCIDENTS.c.acknowledged_at.is_not(None))
    incidents = (IncidentOut.model_validate_json(row.document) for row in _picked(connection, query, ids))
    return {incident.id: incident.acknowledged for incident in incidents if incident.acknowledged}


def _marked(told: IncidentOut, marks: dict[str, AcknowledgementOut]) -> IncidentOut:
    """The incident with the later of its own acknowledgement and the stored one."""
    stored = marks.get(told.id)
    if stored is None or (told.acknowledged and told.acknowledged.at >= stored.at):
        return told
    return told.model_copy(update={"acknowledged": stored})


def _drop(connection: sa.Connection, ids: Sequence[str]) -> None:
    if ids:
        keys = [{"key": key} for key in ids]
        connection.execute(sa.delete(_INCIDENTS).where(_INCIDENTS.c.id == sa.bindparam("key")), keys)
        connection.execute(sa.delete(_DEVICES).where(_DEVICES.c.incident_id == sa.bindparam("key")), keys)


def _incident(document: str) -> Incident:
    return IncidentOut.model_validate_json(document).to_incident()


def _picked(connection: sa.Connection, query: sa.Select[Any], ids: Collection[str]) -> Iterator[sa.Row[Any]]:
    """The rows of *query* for these incidents, some hundred at a time: a statement takes a limited number of values."""
    keys = sorted(ids)
    for n in range(0, len(keys), 500):
        yield from connection.execute(query.where(_INCIDENTS.c.id.in_(keys[n : n + 500])))


def _conditions(wanted: IncidentFilter) -> list[sa.ColumnElement[bool]]:
    exact = {
        _INCIDENTS.c.state: wanted.state,
        _INCIDENTS.c.severity: wanted.severity,
        _INCIDENTS.c.rule: wanted.rule,
        _INCIDENTS.c.host: wanted.host,
    }
    conditions: list[sa.ColumnElement[bool]] = [column.in_(values) for column, values in exact.items() if values]
    if wanted.device:
        concerned = sa.select(_DEVICES.c.incident_id).where(_DEVICES.c.device.in_(wanted.device))
        conditions.append(_INCIDENTS.c.id.in_(concerned))
    if wanted.since is not None:
        conditions.append(_INCIDENTS.c.started_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(_INCIDENTS.c.started_at < wanted.until)
    return conditions


# -- the database -----------------------------------------------------------------------------------------------------------
def _url(database: str | Path) -> URL:
    if isinstance(database, Path):
        return URL.create("sqlite", database=str(database))
    try:
        url = make_url(database)
    except ArgumentError:
        # It is not quoted: what cannot be taken apart may hold a password anywhere.
        raise StoreError("that is no database URL; write sqlite:////path/to/file.db or postgresql://user:password@host/name") from None
    if url.get_backend_name() not in _INSERT:
        raise StoreError(f"a database {url.drivername}://... is not supported; it must be sqlite:// or postgresql://")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise StoreError("a database in memory loses every incident, and threads cannot share it; name a file: sqlite:////path/to/file.db")
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _engine(url: URL) -> sa.Engine:
    try:
        if url.get_backend_name() == "postgresql":
            engine = sa.create_engine(url, hide_parameters=True)
            sa.event.listen(engine, "begin", _begin_postgresql)
            return engine
        engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": LOCK_PATIENCE_SECONDS})
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise StoreError(f"database {url.render_as_string()}: {error}; pip install 'gpuwarden[postgres]' brings what is needed") from error
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # Transactions are begun by _begin_sqlite, not by the driver, which would leave schema changes and reads outside of them.
    connection.isolation_level = None
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # NORMAL would lose the newest transactions with the power, and a GPU that dies may take its host along. Changes are few: one
        # fsync for each call of record() is a fair price for "recorded means kept".
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        # The pool closes only what it has got.
        connection.close()
        raise


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer asks for the write lock at once: one that reads first and asks later fails without waiting.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")


def _begin_postgresql(connection: sa.Connection) -> None:
    # One writer at a time, as in SQLite: changes become visible in the order of their numbers, an acknowledgement is never overwritten
    # by a change that had not seen it, and two processes do not migrate at once.
    if connection.get_execution_options().get("writes"):
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * LOCK_PATIENCE_SECONDS)}")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")


def _reason(error: SQLAlchemyError) -> str:
    """What the database said, and the way out where there is one."""
    said = " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    way_out = _WAY_OUT.get(code & 0xFF)
    return f"{said}; {way_out}" if way_out else said
