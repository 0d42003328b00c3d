"""Incidents outlive the process: what was recorded is there, whatever happened since."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from hypothesis import given, settings
from hypothesis import strategies as st

from detector import store as store_module
from detector.errors import StoreError
from detector.incident import Acknowledgement, Change, DeviceRef, Incident, Transition
from detector.migrations import HEAD
from detector.store import METADATA, Cursor, IncidentFilter, Store

ROOT = Path(__file__).parents[1]
START = 1_700_000_000.0
ADA = Acknowledgement("ada", START + 100, "fan ordered")


def incident(n: int = 0, **fields: Any) -> Incident:
    """The n-th incident, started n minutes after START."""
    at = START + 60 * n
    known: dict[str, Any] = {"rule": "overheating", "severity": "warning", "state": "firing", "host": "node-a", "fired_at": at}
    return Incident(**{"id": f"incident-{n:05}", "fingerprint": "f", "started_at": at, "last_seen_at": at, **known, **fields})


def change(told: Incident, transition: Transition = "fired", at: float | None = None) -> Change:
    return Change(transition, told.last_seen_at if at is None else at, told)


def ids(incidents: tuple[Incident, ...]) -> list[int]:
    return [int(told.id.removeprefix("incident-")) for told in incidents]


def transitions(store: Store, incident_id: str) -> list[Transition]:
    return [recorded.change.transition for recorded in store.changes(incident_id)]


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    with closing(Store(path)) as store:
        yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpuwarden.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


# -- what is recorded is there ----------------------------------------------------------------------------------------------
def test_what_was_recorded_is_there_after_reopening(path: Path) -> None:
    """An incident is where its last change led, its changes are as they were recorded, oldest first."""
    fired = incident(devices=(DeviceRef("GPU-0"),), summary="It is hot.")
    resolved = replace(fired, state="resolved", resolved_at=START + 90)
    history = [change(fired), change(resolved, "resolved", START + 90)]

    with opened(path) as store:
        store.record(history[:1])
        store.record(history[1:])
    with opened(path) as store:
        assert resolved == store.incident(fired.id)
        assert history == [recorded.change for recorded in store.changes(fired.id)]


def test_an_unknown_incident_is_none(store: Store) -> None:
    """No incident, no changes, nothing to acknowledge."""
    assert (None, (), None) == (store.incident("x"), store.changes("x"), store.acknowledge("x", ADA))


def test_recording_nothing_is_nothing(store: Store) -> None:
    """An engine that has no news may say so."""
    store.record([])

    assert () == store.incidents().items


def test_changes_are_numbered_upwards_and_paged(store: Store) -> None:
    """The numbers of changes rise over all incidents; a page begins behind the number given."""
    for at in range(5):
        store.record([change(incident(n), "updated", START + at) for n in (0, 1)])

    both = [recorded.id for n in (0, 1) for recorded in store.changes(incident(n).id)]
    first = store.changes(incident().id, limit=2)
    rest = store.changes(incident().id, after=first[-1].id)

    assert list(range(1, 11)) == sorted(both)
    assert [START + at for at in range(5)] == [recorded.change.at for recorded in (*first, *rest)]


def test_a_repeated_call_records_nothing_twice(store: Store) -> None:
    """A caller that does not know whether a call succeeded repeats it; only what is new is added."""
    batch = [change(incident(), "opened"), change(incident(), "fired")]
    store.record(batch)
    store.record([*batch, change(incident(), "updated", START + 9)])

    assert ["opened", "fired", "updated"] == transitions(store, incident().id)


def test_an_incident_that_never_fired_leaves_the_listing(store: Store) -> None:
    """A pending incident that went away is no longer listed nor taken up again; its changes tell that it was there."""
    pending = incident(state="pending", fired_at=None)
    store.record([change(pending, "opened")])
    assert (pending,) == store.open_incidents()

    store.record([change(replace(pending, state="resolved"), "dropped", START + 5)])

    assert ((), (), None) == (store.incidents().items, store.open_incidents(), store.incident(pending.id))
    assert ["opened", "dropped"] == transitions(store, pending.id)


def test_many_changes_go_into_one_transaction(store: Store) -> None:
    """A storm of more incidents than one statement takes values is recorded all the same."""
    store.record([change(incident(n)) for n in range(40_000)])

    assert [39_999] == ids(store.incidents(limit=1).items)


def test_an_incident_that_cannot_be_told_does_not_hold_up_the_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """What a broken rule says (here no text at all) is logged and left out; the incidents of other rules are recorded."""
    store.record([change(incident(0, summary=None)), change(incident(1))])

    assert [1] == ids(store.incidents().items)
    assert "incident-00000 of rule overheating" in caplog.text


def test_a_refresh_changes_what_is_known_and_tells_nothing(store: Store) -> None:
    """Last sight and value follow the engine without a change; an incident that is not stored is not invented."""
    store.record([change(incident(0))])
    store.refresh([incident(0, last_seen_at=START + 50, value=91.0), incident(1)])

    found = store.incident(incident(0).id)
    assert found is not None
    assert (START + 50, 91.0) == (found.last_seen_at, found.value)
    assert ["fired"] == transitions(store, incident(0).id)
    assert [0] == ids(store.incidents().items)


# -- open incidents and acknowledgements ------------------------------------------------------------------------------------
def test_open_incidents_are_those_to_take_up_again(store: Store) -> None:
    """After a restart the engine takes up what is pending or firing, oldest first, and leaves what is resolved."""
    store.record([change(incident(n, state=state)) for n, state in enumerate(("firing", "resolved", "pending"))])

    assert [0, 2] == ids(store.open_incidents())


def test_open_incidents_are_found_by_device(store: Store) -> None:
    """A device knows the open incidents that concern it, on its own host; a GPU knows those of its MIG instances."""
    mig = DeviceRef("MIG-1", kind="mig", parent="GPU-1")
    store.record(
        [
            change(incident(0, devices=(DeviceRef("GPU-0"), mig))),
            change(incident(1, devices=(DeviceRef("GPU-0"),))),
            change(incident(2, devices=(DeviceRef("GPU-0"),), state="resolved")),
            change(incident(3, devices=(DeviceRef("GPU-0"),), host="node-b")),
        ]
    )

    zero, one, other = incident(0).id, incident(1).id, incident(3).id
    expected = {("node-a", "GPU-0"): (zero, one), ("node-a", "GPU-1"): (zero,), ("node-a", "MIG-1"): (zero,), ("node-b", "GPU-0"): (other,)}
    assert expected == store.open_by_device()


def test_an_acknowledgement_is_a_change(store: Store) -> None:
    """Acknowledging returns the marked incident, stores it and says so in its history."""
    store.record([change(incident())])

    marked = replace(incident(), acknowledged=ADA)
    assert marked == store.acknowledge(incident().id, ADA)
    assert marked == store.incident(incident().id)
    assert [change(incident()), Change("updated", ADA.at, marked)] == [recorded.change for recorded in store.changes(incident().id)]


def test_an_acknowledgement_survives_an_engine_that_does_not_know_it(store: Store) -> None:
    """What the engine records or refreshes afterwards keeps the mark, in the incident and in its history."""
    store.record([change(incident())])
    store.acknowledge(incident().id, ADA)
    resolved = incident(state="resolved", resolved_at=START + 200)
    store.record([change(resolved, "resolved", START + 200)])
    store.refresh([resolved])

    assert replace(resolved, acknowledged=ADA) == store.incident(incident().id)
    assert ADA == store.changes(incident().id)[-1].change.incident.acknowledged


@pytest.mark.parametrize(("engine_at", "winner"), [(ADA.at - 1, "ada"), (ADA.at + 1, "bob")])
def test_the_later_acknowledgement_wins(store: Store, engine_at: float, winner: str) -> None:
    """The engine may know an acknowledgement from before a restart while a later one is stored, or the other way round."""
    store.record([change(incident())])
    store.acknowledge(incident().id, ADA)
    store.record([change(incident(acknowledged=Acknowledgement("bob", engine_at)), "updated", START + 300)])

    found = store.incident(incident().id)
    assert found is not None
    assert found.acknowledged is not None
    assert winner == found.acknowledged.by


def test_a_repeated_change_is_the_same_change_after_an_acknowledgement(store: Store) -> None:
    """The mark that the store adds does not make a repeated change a new one."""
    store.record([change(incident())])
    store.acknowledge(incident().id, ADA)
    store.record([change(incident())])

    assert ["fired", "updated"] == transitions(store, incident().id)


# -- listing ----------------------------------------------------------------------------------------------------------------
FILTERS = {
    "everything": (IncidentFilter(), [4, 3, 2, 1, 0]),
    "state": (IncidentFilter(state=("firing",)), [3, 2]),
    "states": (IncidentFilter(state=("firing", "pending")), [4, 3, 2]),
    "severity": (IncidentFilter(severity=("critical",)), [3, 1]),
    "rule": (IncidentFilter(rule=("xid",)), [2]),
    "host": (IncidentFilter(host=("node-b",)), [1]),
    "device": (IncidentFilter(device=("GPU-1",)), [4, 1]),
    "mig instance": (IncidentFilter(device=("MIG-1",)), [4]),
    "since": (IncidentFilter(since=START + 120), [4, 3, 2]),
    "until": (IncidentFilter(until=START + 120), [1, 0]),
    "all fields": (IncidentFilter(state=("firing",), severity=("critical",), host=("node-a",), device=("GPU-0",), since=START), [3]),
    "nothing": (IncidentFilter(rule=("no_such_rule",)), []),
}


@pytest.mark.parametrize(("wanted", "expected"), FILTERS.values(), ids=FILTERS.keys())
def test_a_filter_finds_what_matches_in_every_field(store: Store, wanted: IncidentFilter, expected: list[int]) -> None:
    """Newest first; a device is found wherever it is concerned, a GPU also through its MIG instances."""
    zero, one, mig = DeviceRef("GPU-0"), DeviceRef("GPU-1"), DeviceRef("MIG-1", kind="mig", parent="GPU-1")
    store.record(
        [
            change(incident(0, state="resolved", devices=(zero,))),
            change(incident(1, state="resolved", severity="critical", host="node-b", devices=(zero, one))),
            change(incident(2, rule="xid")),
            change(incident(3, severity="critical", devices=(zero,))),
            change(incident(4, state="pending", devices=(mig,))),
        ]
    )

    assert expected == ids(store.incidents(wanted).items)


def test_a_device_that_is_no_longer_concerned_is_no_longer_found(store: Store) -> None:
    """When a device gets a better name the incident moves with it."""
    store.record([change(incident(devices=(DeviceRef("INDEX-0"),)))])
    store.record([change(incident(devices=(DeviceRef("GPU-0"),)), "updated", START + 5)])

    assert [] == ids(store.incidents(IncidentFilter(device=("INDEX-0",))).items)
    assert [0] == ids(store.incidents(IncidentFilter(device=("GPU-0",))).items)


def test_since_takes_a_time_as_it_was_shown(store: Store) -> None:
    """An incident shown with a time is found from that time on, though it started a fraction of a millisecond before."""
    store.record([change(incident(started_at=START + 0.0006))])

    assert [0] == ids(store.incidents(IncidentFilter(since=START + 0.001)).items)


# Few different starts, so that many incidents have the same one.
minutes = st.lists(st.integers(0, 5), max_size=30)


@settings(max_examples=40)
@given(before=minutes, meanwhile=minutes, limit=st.integers(1, 7))
def test_pages_hold_still_while_incidents_come_in(before: list[int], meanwhile: list[int], limit: int) -> None:
    """Paging shows each incident that was there from the start exactly once and in order, whatever is inserted between two pages."""
    starts = [*before, *meanwhile]
    found = [incident(n, started_at=START + minute) for n, minute in enumerate(starts)]
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "gpuwarden.db") as store:
        store.record([change(told) for told in found[: len(before)]])
        late = iter(found[len(before) :])
        shown: list[Incident] = []
        after = None
        while True:
            page = store.incidents(after=after, limit=limit)
            shown += page.items
            if page.next is None:
                break
            after = Cursor.parse(str(page.next))
            store.record([change(told) for told in islice(late, 3)])

    ordered = sorted(found[: len(before)], key=lambda told: (told.started_at, told.id), reverse=True)
    assert [told.id for told in ordered] == [told.id for told in shown if told in ordered]
    assert len(shown) == len({told.id for told in shown})


@given(started_at=st.floats(0, 2e10), incident_id=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_cursor_comes_back_as_it_was(started_at: float, incident_id: str) -> None:
    """A cursor survives a query string unquoted."""
    text = str(Cursor(started_at, incident_id))

    assert Cursor(started_at, incident_id) == Cursor.parse(text)
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.text())
def test_what_is_no_cursor_is_refused(text: str) -> None:
    """Any other text is a ValueError or, by chance, a place in the listing; never another error."""
    with suppress(ValueError):
        Cursor.parse(text)


# -- a process that dies ----------------------------------------------------------------------------------------------------
WRITER = """
import itertools, sys
sys.path.insert(0, "tests")
from test_store import Path, Store, change, incident
store = Store(Path(sys.argv[1]))
for n in itertools.count():
    store.record([change(incident(n), "opened"), change(incident(n), "fired")])
    print(n, flush=True)
"""


@pytest.mark.parametrize("acknowledged", [1, 7, 20])
def test_a_killed_process_loses_nothing_that_was_recorded(path: Path, acknowledged: int) -> None:
    """kill -9 while it writes: all that record() returned for is there, and of the rest all of a call or nothing."""
    with subprocess.Popen([sys.executable, "-c", WRITER, path], cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for _ in range(acknowledged):
            writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        recorded = acknowledged + len(writer.stdout.read().split())

    with opened(path) as store:
        found = ids(store.incidents(limit=10_000).items)[::-1]
        assert found in ([*range(recorded)], [*range(recorded + 1)])
        assert [["opened", "fired"]] * len(found) == [transitions(store, incident(n).id) for n in found]


# -- a database that refuses ------------------------------------------------------------------------------------------------
@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def refusal(path: Path) -> str:
    """Why the database cannot be opened."""
    with pytest.raises(StoreError) as refused:
        Store(path)
    return str(refused.value)


def assert_refused_then_taken(store: Store, path: Path, refuses: Any, message: str) -> None:
    """Within *refuses* nothing can be recorded and the error names the file; afterwards the same call succeeds."""
    batch = [change(incident(1), "opened"), change(incident(1), "fired")]
    with refuses:
        with pytest.raises(StoreError, match=message) as refused:
            store.record(batch)
        with pytest.raises(StoreError, match=message):
            store.check_writable()
        assert str(path) in str(refused.value)
    store.record(batch)
    store.check_writable()
    assert ["opened", "fired"] == transitions(store, incident(1).id)


def test_a_locked_database_is_written_again_when_it_is_free(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process holds the write lock for longer than we wait: readers go on, writers are told, and later succeed."""
    monkeypatch.setattr(store_module, "LOCK_PATIENCE_SECONDS", 0.01)
    with opened(path) as store:
        store.record([change(incident(0))])
        with locked(path):
            assert [0] == ids(store.incidents().items)
        assert_refused_then_taken(store, path, locked(path), "locked; another process holds it")


def test_a_locked_database_cannot_be_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening waits for the lock and then says who is in the way."""
    monkeypatch.setattr(store_module, "LOCK_PATIENCE_SECONDS", 0.01)
    with opened(path), locked(path):
        assert f"database {path}: database is locked; another process holds it; end that process, or wait for it" == refusal(path)


@pytest.fixture
def nobodys_folder() -> Iterator[Path]:
    """A folder of a user without privileges, whom the test becomes: nothing is read-only for root."""
    folder = Path(tempfile.mkdtemp())
    root = os.geteuid() == 0
    if root:
        shutil.chown(folder, 65534, 65534)
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    shutil.rmtree(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    paths = [*folder.iterdir(), folder]
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    yield
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode)


def test_a_read_only_database_is_written_again_when_it_may_be(nobodys_folder: Path) -> None:
    """A file that cannot be written is refused with its path, at opening and at writing; once it can be, writing goes on."""
    path = nobodys_folder / "gpuwarden.db"
    with opened(path) as store:
        store.record([change(incident(0))])
    with read_only(nobodys_folder):
        assert "make the file and its folder writable for this user" in refusal(path)
    with opened(path) as store:
        with read_only(nobodys_folder):
            # A connection that is open may still write; closing lets go of it, and one that is opened now may not.
            store.close()
            with pytest.raises(StoreError, match=r"make the file and its folder writable"):
                store.record([change(incident(1))])
        store.record([change(incident(1))])
        assert [1, 0] == ids(store.incidents().items)


@contextmanager
def no_space() -> Iterator[None]:
    """No database opened meanwhile may grow."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes this as "no more than there are"

    sa.event.listen(sa.Pool, "connect", limit)
    try:
        yield
    finally:
        sa.event.remove(sa.Pool, "connect", limit)


def test_a_full_disk_loses_nothing(path: Path) -> None:
    """A batch that does not fit is stored in no part; when there is space again the same store takes the same batch."""
    batch = [change(incident(n, description="x" * 5000)) for n in range(20)]
    with opened(path) as store:
        store.record([change(incident(99))])
    with no_space():
        store = Store(path)
        with pytest.raises(StoreError, match="full; free some space on its disk"):
            store.record(batch)
    with closing(store):
        assert [99] == ids(store.incidents().items)
        store.record(batch)
        assert [99, *range(19, -1, -1)] == ids(store.incidents().items)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """The error names the file and the way out."""
    path.write_bytes(b"this is no database at all, it is a text" * 100)

    assert f"database {path}: file is not a database; restore a copy, or move the file away and a new one is made" == refusal(path)


def test_a_damaged_database_is_refused(path: Path) -> None:
    """Pages overwritten with rubbish end in one clear error, at opening or at the first use."""
    with opened(path) as store:
        store.record([change(incident(n)) for n in range(200)])
    damaged = bytearray(path.read_bytes())
    damaged[4096:] = b"\xa5" * (len(damaged) - 4096)
    path.write_bytes(damaged)

    assert "restore a copy, or move the file away" in refusal(path)


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    """A typing error in the path does not create folders."""
    path = tmp_path / "absent" / "gpuwarden.db"

    assert f"database {path}: unable to open database file; its folder must exist, and be writable for this user" == refusal(path)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("/var/lib/gpuwarden.db", r"no database URL; write sqlite:////path/to/file.db"),
        ("mysql://user:secret@host/name", r"mysql://\.\.\. is not supported"),
        ("sqlite://", r"in memory loses every incident"),
        ("sqlite:///:memory:", r"in memory loses every incident"),
        ("postgresql+nosuchdriver://user:secret@host/name", r"pip install 'gpuwarden\[postgres\]'"),
    ],
)
def test_a_wrong_url_is_refused_without_its_password(url: str, message: str) -> None:
    """The error says what to write instead, and keeps the secret."""
    with pytest.raises(StoreError, match=message) as refused:
        Store(url)

    assert "secret" not in str(refused.value)


def test_a_file_may_be_named_by_url(path: Path) -> None:
    """A path and the URL of the same file open the same database."""
    with opened(path) as store:
        store.record([change(incident())])
    with closing(Store(f"sqlite:///{path}")) as store:
        assert [0] == ids(store.incidents().items)


# -- migrations -------------------------------------------------------------------------------------------------------------
def test_the_migrations_lead_to_the_tables_that_the_code_expects(path: Path) -> None:
    """A new database, brought up revision by revision, differs in nothing from the tables as the code declares them."""
    with opened(path):
        pass
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        assert HEAD == context.get_current_revision()
        assert [] == compare_metadata(context, METADATA)
    engine.dispose()


def test_head_is_the_newest_revision() -> None:
    """A revision that is added moves HEAD, or it would never be applied."""
    config = Config()
    config.set_main_option("script_location", "detector:migrations")

    assert [HEAD] == ScriptDirectory.from_config(config).get_heads()


def test_a_newer_database_is_refused(path: Path) -> None:
    """A database that a newer gpuwarden wrote is left alone."""
    with opened(path), closing(sqlite3.connect(path)) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.commit()
    expected = f"database {path} was written by a newer gpuwarden: it is of revision 9999, this one knows revisions up to {HEAD}; "

    assert expected + "upgrade gpuwarden, or name another database" == refusal(path)


def test_a_migration_that_fails_leaves_nothing_behind(path: Path) -> None:
    """Opening is one transaction: where a table is in the way no other table is made."""
    with closing(sqlite3.connect(path)) as stranger:
        stranger.execute("CREATE TABLE changes (mine)")
        assert "changes" in refusal(path)
        assert [("changes",)] == stranger.execute("SELECT name FROM sqlite_master").fetchall()


# -- several at once --------------------------------------------------------------------------------------------------------
def test_many_may_open_a_new_database_at_once(path: Path) -> None:
    """Whoever comes first makes the tables, the others find them."""
    with ThreadPoolExecutor(8) as threads:
        for store in threads.map(lambda _: Store(path), range(8)):
            store.close()


def test_two_stores_share_one_file(path: Path) -> None:
    """Two services that write to one file lose nothing of each other, and their changes have different numbers."""
    with opened(path) as one, opened(path) as two, ThreadPoolExecutor(2) as threads:

        def write(store: Store, numbers: range) -> None:
            for n in numbers:
                store.record([change(incident(n))])

        for done in [threads.submit(write, one, range(0, 50, 2)), threads.submit(write, two, range(1, 50, 2))]:
            done.result()

        assert list(range(49, -1, -1)) == ids(one.incidents(limit=100).items) == ids(two.incidents(limit=100).items)
        assert list(range(1, 51)) == sorted(recorded.id for n in range(50) for recorded in one.changes(incident(n).id))


def test_readers_and_acknowledgements_go_on_while_one_thread_writes(store: Store) -> None:
    """The API's threads read and acknowledge while the engine's thread records: no mark is lost, and no reader sees half a batch."""
    store.record([change(incident(n)) for n in range(10)])

    def acknowledge(n: int) -> None:
        store.acknowledge(incident(n).id, Acknowledgement(f"user-{n}", START + n))

    def read() -> int:
        return len(store.incidents(limit=1000).items)

    with ThreadPoolExecutor(8) as threads:
        reads = [threads.submit(read) for _ in range(30)]
        marks = [threads.submit(acknowledge, n) for n in range(10)]
        for batch in range(10):
            store.record([change(incident(n), "updated", START + batch) for n in range(10)])
            store.record([change(incident(n)) for n in range(100 + 10 * batch, 110 + 10 * batch)])
        for mark in marks:
            mark.result()
        assert {0} == {read.result() % 10 for read in reads}

    assert [f"user-{n}" for n in range(10)] == [
        told.acknowledged.by for n in range(10) if (told := store.incident(incident(n).id)) and told.acknowledged
    ]
