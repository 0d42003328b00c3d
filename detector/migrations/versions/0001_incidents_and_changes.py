"""Incidents and their changes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("acknowledged_at", sa.Double),
        sa.Column("document", sa.Text, nullable=False),
    )
    op.create_index("incidents_listing", "incidents", ["started_at", "id", "state", "severity", "rule", "host"])
    op.create_table(
        "incident_devices",
        sa.Column("incident_id", sa.Text, primary_key=True),
        sa.Column("device", sa.Text, primary_key=True),
    )
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("incident_id", sa.Text, nullable=False),
        sa.Column("transition", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("document", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("changes_of_incident", "changes", ["incident_id", "id"])
