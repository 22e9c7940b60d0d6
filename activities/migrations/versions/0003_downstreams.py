"""What is called by which job, which runs are parked, and what scheduler processes say of downstreams."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    op.add_column("jobs", sa.Column("downstream", KEY, nullable=False, server_default=sa.text("''")))
    named = "definition ->> 'downstream'" if is_postgresql else "json_extract(definition, '$.downstream')"
    op.execute(f"UPDATE jobs SET downstream = coalesce({named}, '')")
    calls = sa.text("downstream <> '' AND state <> 'deleted'")
    op.create_index("ix_jobs_downstreams", "jobs", ["tenant", "downstream"], postgresql_where=calls, sqlite_where=calls)
    parked = sa.text("status = 'parked'")
    # The status, which is the same in all of it, makes SQLite choose it.
    columns = ["tenant", "status", "job_id"]
    op.create_index("ix_runs_parked", "runs", columns, postgresql_where=parked, sqlite_where=parked)
    _create_gate_reports()


def downgrade() -> None:
    op.drop_table("gate_reports")
    op.drop_index("ix_runs_parked", "runs")
    op.drop_index("ix_jobs_downstreams", "jobs")
    op.drop_column("jobs", "downstream")


def _create_gate_reports() -> None:
    op.create_table(
        "gate_reports",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("downstream", KEY, nullable=False),
        sa.Column("worker", KEY, nullable=False),
        sa.Column("seen_at", INSTANT, nullable=False),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "downstream", "worker", name="pk_gate_reports"),
    )
    op.create_index("ix_gate_reports_seen_at", "gate_reports", ["seen_at"])
