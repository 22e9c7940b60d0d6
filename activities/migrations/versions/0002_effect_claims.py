"""The claims of effects.

A team's worker that came first may have made the table already: it makes the same one where there is none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "effect_claims",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("job_id", KEY, nullable=False),
        sa.Column("idempotency_key", KEY, nullable=False),
        sa.Column("name", KEY, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("lease_until", INSTANT, nullable=False),
        sa.Column("claims", sa.BigInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.Column("touched_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "job_id", "idempotency_key", "name", name="pk_effect_claims"),
        if_not_exists=True,
    )
    op.create_index("ix_effect_claims_touched_at", "effect_claims", ["touched_at"], if_not_exists=True)


def downgrade() -> None:
    op.drop_table("effect_claims")
