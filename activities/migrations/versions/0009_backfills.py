"""Backfills, and which runs belong to them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

BACKFILLED = sa.text("kind = 'backfill'")


def upgrade() -> None:
    op.create_table(
        "backfills",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("backfill_id", KEY, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("start", INSTANT, nullable=False),
        sa.Column("end", INSTANT, nullable=False),
        sa.Column("existing", sa.Text(), nullable=False),
        sa.Column("max_concurrent", sa.BigInteger(), nullable=False),
        sa.Column("rate_per_minute", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("requested_at", INSTANT, nullable=False),
        sa.Column("total", sa.BigInteger(), nullable=False),
        sa.Column("succeeded", sa.BigInteger(), nullable=False),
        sa.Column("dead", sa.BigInteger(), nullable=False),
        sa.Column("cancelled", sa.BigInteger(), nullable=False),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("running", sa.JSON(), nullable=False),
        sa.Column("through", INSTANT, nullable=True),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("tenant", "backfill_id", name="pk_backfills"),
    )
    op.create_index("ix_backfills_tenant_job_id_requested_at", "backfills", ["tenant", "job_id", "requested_at"])
    op.add_column("runs", sa.Column("backfill_id", sa.Text(), nullable=True))
    op.create_index(
        "ix_runs_backfilled",
        "runs",
        ["tenant", "job_id", "scheduled_at"],
        postgresql_where=BACKFILLED,
        sqlite_where=BACKFILLED,
    )


def downgrade() -> None:
    op.drop_index("ix_runs_backfilled", "runs")
    op.drop_column("runs", "backfill_id")
    op.drop_index("ix_backfills_tenant_job_id_requested_at", "backfills")
    op.drop_table("backfills")
