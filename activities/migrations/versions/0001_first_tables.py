"""The mirror (jobs, runs, attempts, ledger) and the idempotency records.

On PostgreSQL the mirror's large tables are partitioned by month from the start: it cannot be done to a full table later without
copying it. Here they get their default partitions only; the months are made as they are needed.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
DOCUMENT = sa.JSON()
SEARCHABLE_DOCUMENT = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    _create_jobs()
    _create_runs()
    _create_attempts()
    _create_ledger()
    _create_idempotency_records()
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(
            "ix_jobs_labels",
            "jobs",
            ["labels"],
            postgresql_using="gin",
            postgresql_ops={"labels": "jsonb_path_ops"},
        )
        for table in ("runs", "attempts", "ledger"):
            op.execute(f"CREATE TABLE {table}_default PARTITION OF {table} DEFAULT")


def downgrade() -> None:
    for table in ("idempotency_records", "ledger", "attempts", "runs", "jobs"):
        op.drop_table(table)


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("definition", DOCUMENT, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("labels", SEARCHABLE_DOCUMENT, nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("task_queue", sa.Text(), nullable=False),
        sa.Column("search_text", sa.Text(), nullable=False),
        sa.Column("registered_at", INSTANT, nullable=False),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.Column("next_run_at", INSTANT, nullable=True),
        sa.Column("next_target_at", INSTANT, nullable=True),
        sa.Column("high_water", INSTANT, nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("counts", DOCUMENT, nullable=False),
        sa.Column("active_runs", sa.BigInteger(), nullable=False),
        sa.Column("waiting_runs", sa.BigInteger(), nullable=False),
        sa.Column("last_run_id", sa.Text(), nullable=True),
        sa.Column("last_status", sa.Text(), nullable=True),
        sa.Column("last_finished_at", INSTANT, nullable=True),
        sa.Column("last_success_at", INSTANT, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("trouble", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "job_id", name="pk_jobs"),
    )
    op.create_index(
        "ix_jobs_active_next_run_at",
        "jobs",
        ["next_run_at"],
        postgresql_where=sa.text("state = 'active'"),
        sqlite_where=sa.text("state = 'active'"),
    )
    op.create_index("ix_jobs_tenant_state_job_id", "jobs", ["tenant", "state", "job_id"])


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("scheduled_at", INSTANT, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target_at", INSTANT, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("stands_for", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("max_attempts", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("idempotency_key", sa.Text(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("detached", sa.Boolean(), nullable=False),
        sa.Column("redrive_of", sa.Text(), nullable=True),
        sa.Column("redriven_by", sa.Text(), nullable=True),
        sa.Column("dispatched_at", INSTANT, nullable=True),
        sa.Column("started_at", INSTANT, nullable=True),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.Column("next_attempt_at", INSTANT, nullable=True),
        sa.Column("parkings", sa.BigInteger(), nullable=False),
        sa.Column("excused", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint", DOCUMENT, nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("failure", DOCUMENT, nullable=True),
        sa.Column("result", DOCUMENT, nullable=True),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("workflow_run_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "run_id", "scheduled_at", name="pk_runs"),
        postgresql_partition_by="RANGE (scheduled_at)",
    )
    op.create_index("ix_runs_tenant_job_id_scheduled_at_run_id", "runs", ["tenant", "job_id", "scheduled_at", "run_id"])
    op.create_index(
        "ix_runs_tenant_job_id_status_scheduled_at_run_id",
        "runs",
        ["tenant", "job_id", "status", "scheduled_at", "run_id"],
    )
    op.create_index(
        "ix_runs_dead_letters",
        "runs",
        ["tenant", "finished_at", "run_id"],
        postgresql_where=sa.text("status = 'dead'"),
        sqlite_where=sa.text("status = 'dead'"),
    )
    op.create_index(
        "uq_runs_nominal_time",
        "runs",
        ["tenant", "job_id", "scheduled_at"],
        unique=True,
        postgresql_where=sa.text("kind IN ('scheduled', 'catch_up')"),
        sqlite_where=sa.text("kind IN ('scheduled', 'catch_up')"),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("scheduled_at", INSTANT, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("dispatched_at", INSTANT, nullable=False),
        sa.Column("started_at", INSTANT, nullable=True),
        sa.Column("finished_at", INSTANT, nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("failure", DOCUMENT, nullable=True),
        sa.PrimaryKeyConstraint("tenant", "run_id", "scheduled_at", "number", name="pk_attempts"),
        postgresql_partition_by="RANGE (scheduled_at)",
    )


def _create_ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("first", INSTANT, nullable=False),
        sa.Column("last", INSTANT, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("run_id", sa.Text(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "job_id", "first", name="pk_ledger"),
        postgresql_partition_by="RANGE (first)",
    )
    op.create_index("ix_ledger_tenant_job_id_last_first", "ledger", ["tenant", "job_id", "last", "first"])


def _create_idempotency_records() -> None:
    op.create_table(
        "idempotency_records",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("body_hash", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("claimed_at", INSTANT, nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response_headers", DOCUMENT, nullable=True),
        sa.Column("response_body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "scope", "key", name="pk_idempotency_records"),
    )
    op.create_index("ix_idempotency_records_created_at", "idempotency_records", ["created_at"])
