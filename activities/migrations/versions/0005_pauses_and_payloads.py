"""Why a job is paused, and the payloads of single runs."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("pause", sa.JSON(), nullable=True))
    op.add_column("runs", sa.Column("override", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("runs", "override")
    op.drop_column("jobs", "pause")
