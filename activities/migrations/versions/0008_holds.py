"""Holds over jobs with some labels, and which jobs carry them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
SEARCHABLE_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")

HELD = sa.text("holds IS NOT NULL")
NOT_RELEASED = sa.text("released_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "holds",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("hold_id", KEY, nullable=False),
        sa.Column("selector", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("held_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("until", INSTANT, nullable=True),
        sa.Column("catch_up", sa.Text(), nullable=False),
        sa.Column("released_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("tenant", "hold_id", name="pk_holds"),
    )
    op.create_index("ix_holds_tenant_created_at_hold_id", "holds", ["tenant", "created_at", "hold_id"])
    op.create_index(
        "ix_holds_not_released",
        "holds",
        ["tenant", "until"],
        postgresql_where=NOT_RELEASED,
        sqlite_where=NOT_RELEASED,
    )
    op.add_column("jobs", sa.Column("holds", SEARCHABLE_DOCUMENT, nullable=True))
    op.create_index("ix_jobs_held", "jobs", ["tenant", "job_id"], postgresql_where=HELD, sqlite_where=HELD)


def downgrade() -> None:
    op.drop_index("ix_jobs_held", "jobs")
    op.drop_column("jobs", "holds")
    op.drop_table("holds")
