"""The database's schema, revision by revision.

A new revision is a new file in `versions/`, written by hand and numbered on; `HEAD` follows it.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

from sqlalchemy import Connection, column, inspect, select, table

from detector.errors import StoreError

HEAD: Final = "0001"
"""The newest revision. Known without loading Alembic, which a service whose database is up to date never needs."""

_ALEMBIC: Final = Lock()  # it keeps the migration that is under way in a global of its own


def migrate(connection: Connection, place: str) -> None:
    """Bring the database at *place* up to HEAD within the transaction of *connection*. Raises StoreError where it is newer."""
    current = revision(connection)
    if current == HEAD:
        return

    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "detector:migrations")
    config.attributes["connection"] = connection
    if current is not None and current not in {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}:
        raise StoreError(
            f"database {place} was written by a newer gpuwarden: it is of revision {current}, this one knows revisions up to {HEAD}; "
            "upgrade gpuwarden, or name another database"
        )
    with _ALEMBIC:
        command.upgrade(config, HEAD)


def revision(connection: Connection) -> str | None:
    """The revision that the database is at; None: it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version: str | None = connection.scalar(select(column("version_num")).select_from(table("alembic_version")))
    return version
