"""Calendars, and which of them a job's definition carries."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SEARCHABLE_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

HAS_CALENDARS = sa.text("calendars IS NOT NULL")


def upgrade() -> None:
    op.create_table(
        "calendars",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("definition", sa.JSON(), nullable=False),
        sa.Column("days", sa.JSON(), nullable=False),
        sa.Column("weekend", sa.JSON(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name", name="pk_calendars"),
    )
    op.add_column("jobs", sa.Column("calendars", SEARCHABLE_DOCUMENT, nullable=True))
    op.create_index(
        "ix_jobs_with_calendars",
        "jobs",
        ["tenant", "job_id"],
        postgresql_where=HAS_CALENDARS,
        sqlite_where=HAS_CALENDARS,
    )


def downgrade() -> None:
    op.drop_index("ix_jobs_with_calendars", "jobs")
    op.drop_column("jobs", "calendars")
    op.drop_table("calendars")
