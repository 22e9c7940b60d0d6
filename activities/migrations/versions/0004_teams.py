"""API keys, tenants' quotas and what jobs take of them, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
DOCUMENT = sa.JSON()


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", KEY, nullable=False),
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=True),
        sa.Column("revoked_at", INSTANT, nullable=True),
        sa.Column("last_used_at", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
    )
    op.create_table(
        "tenants",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("max_jobs", sa.BigInteger(), nullable=True),
        sa.Column("max_fires_per_minute", sa.Float(), nullable=True),
        sa.Column("updated_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="pk_tenants"),
    )
    op.create_table(
        "quota_claims",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("fires_per_minute", sa.Float(), nullable=False),
        sa.Column("claimed_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "job_id", name="pk_quota_claims"),
    )
    op.create_table(
        "audit_entries",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("entry_id", KEY, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("job_id", KEY, nullable=True),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("before", DOCUMENT, nullable=True),
        sa.Column("after", DOCUMENT, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("tenant", "entry_id", name="pk_audit_entries"),
    )
    op.create_index("ix_audit_entries_tenant_job_id_entry_id", "audit_entries", ["tenant", "job_id", "entry_id"])
    op.create_index("ix_audit_entries_at", "audit_entries", ["at"])


def downgrade() -> None:
    for table in ("audit_entries", "quota_claims", "tenants", "api_keys"):
        op.drop_table(table)
