"""The definition under which a backfill was asked for, kept with its row."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("backfills", sa.Column("definition", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("backfills", "definition")
