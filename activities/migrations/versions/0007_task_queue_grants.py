"""Task queues that are granted to tenants."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INSTANT = sa.DateTime(timezone=True)
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "task_queue_grants",
        sa.Column("tenant", KEY, nullable=False),
        sa.Column("pattern", KEY, nullable=False),
        sa.Column("granted_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "pattern", name="pk_task_queue_grants"),
    )


def downgrade() -> None:
    op.drop_table("task_queue_grants")
