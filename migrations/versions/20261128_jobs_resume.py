"""jobs tell where they were taken up, and since when they wait

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("resumed_from", sa.JSON(), nullable=True))
        table.add_column(sa.Column("queued_at", sa.DateTime(), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("jobs") as table:
        table.drop_column("queued_at")
        table.drop_column("resumed_from")
