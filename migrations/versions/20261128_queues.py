"""queues by capability

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply: every worker does everything until it says otherwise."""
    with op.batch_alter_table("jobs") as table:
        table.add_column(sa.Column("queue", sa.String(length=255), nullable=False, server_default="gpu"))
    with op.batch_alter_table("workers") as table:
        table.add_column(sa.Column("queues", sa.String(length=255), nullable=False, server_default="cpu,gpu"))
    with op.batch_alter_table("jobs") as table:
        table.alter_column("queue", server_default=None)
    with op.batch_alter_table("workers") as table:
        table.alter_column("queues", server_default=None)


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("workers") as table:
        table.drop_column("queues")
    with op.batch_alter_table("jobs") as table:
        table.drop_column("queue")
