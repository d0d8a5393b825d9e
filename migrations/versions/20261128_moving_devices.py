"""devices that beat and do not move

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    with op.batch_alter_table("participants") as table:
        table.add_column(sa.Column("moved_at", sa.DateTime(), nullable=True))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("participants") as table:
        table.drop_column("moved_at")
